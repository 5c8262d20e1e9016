// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/penstock.hpp>

namespace checked_tests {

namespace ps = penstock;

/// A dataset in which every element of sample k is k.
struct ramps {
  using record_type = ps::record<ps::field<"x", float, 4, 4>, ps::field<"label", std::int32_t>>;
  [[nodiscard]] static std::uint64_t size() { return 40; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    for (float& x : ps::get<"x">(out).flat()) x = static_cast<float>(index);
    ps::get<"label">(out) = static_cast<std::int32_t>(index);
  }
};

/// Makes a loader with ten batches of four samples.
[[nodiscard]] inline auto make_loader(std::size_t workers) {
  return ps::loader{
      ramps{}, ps::sequential{}, ps::cpu_device{}, {.batch_size = 4, .workers = workers}};
}

/// A feed that copies the batches of `make_loader` on a stream.
struct streamed {
  explicit streamed(std::size_t workers, ps::transfer_options options = {},
                    const ps::cpu_device& on = {})
      : device(on),
        loader(ramps{}, ps::sequential{}, device, {.batch_size = 4, .workers = workers}),
        stream(device.make_stream()),
        feed(loader, stream, std::move(options)) {}

  ps::cpu_device device;
  ps::loader<ramps, ps::sequential, ps::cpu_device> loader;
  ps::cpu_stream stream;
  decltype(ps::transfer{loader, stream}) feed;
};

/// Returns true if the bytes are the pattern that a checked build writes to free memory.
[[nodiscard]] inline bool is_poison(const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (first[i] != 0xFF) return false;
  }
  return true;
}

}  // namespace checked_tests
