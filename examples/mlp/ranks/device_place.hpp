// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective.hpp"

namespace mlp {

/// Where a rank's device is: bytes that ranks exchange.
struct device_place {
  std::array<char, 256> host{};  ///< the machine's name, or the container's
  std::array<char, 64> bus{};    ///< the device's place on the bus
  std::array<std::byte, 16>
      id{};  ///< the device's own, in all the world; zeros where there is none

  /// Of this process.
  [[nodiscard]] static device_place of(std::string_view bus,
                                       const std::array<std::byte, 16>& id = {}) {
    device_place here;
    ::gethostname(here.host.data(), here.host.size() - 1);
    std::memcpy(here.bus.data(), bus.data(), (std::min)(bus.size(), here.bus.size() - 1));
    here.id = id;
    return here;
  }

  /// Parts of one GPU are at one place on the bus, and have ids of their own; ranks in two
  /// containers have two names for one machine.
  [[nodiscard]] bool is_same_device(const device_place& other) const {
    if (id != decltype(id){} && other.id != decltype(id){}) return id == other.id;
    return host == other.host && bus == other.bus;
  }
};

/// What is wrong where ranks have been given one device, such as "ranks 0 and 1 share the GPU
/// 0000:3B:00.0 of node7"; "" where each has its own. All ranks have to call it, and all get one
/// answer.
template <collective Ranks>
[[nodiscard]] std::string shared_devices(const device_place& mine, Ranks& ranks) {
  std::vector<device_place> all(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}));
  std::string found;
  std::vector<bool> is_named(all.size());
  for (std::size_t first = 0; first < all.size(); ++first) {
    std::string who;
    for (std::size_t other = first + 1; other < all.size(); ++other) {
      if (is_named[other] || !all[first].is_same_device(all[other])) continue;
      is_named[other] = true;
      who += " and " + std::to_string(other);
    }
    if (who.empty() || is_named[first]) continue;
    if (!found.empty()) found += "; ";
    found += "ranks " + std::to_string(first) + who + " share the GPU " + all[first].bus.data() +
             " of " + all[first].host.data();
  }
  return found;
}

}  // namespace mlp
