// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The last few of many numbered values that take time to make, shared by threads: each is made by
/// the first thread that asks for it, and the others wait for that one. The value that was asked
/// for the longest ago makes room. From any thread.
template <class Value>
class window_cache {
 public:
  /// Keeps `most` >= 1 values.
  explicit window_cache(std::size_t most) : places_(most) {}
  window_cache(const window_cache&) = delete;
  window_cache& operator=(const window_cache&) = delete;

  /// Value `number`; `make()` makes it where it is not kept. It lives while it is held. Throws what
  /// `make` throws, and the next call tries again then.
  template <class Make>
  [[nodiscard]] std::shared_ptr<const Value> get(std::uint64_t number, const Make& make) {
    const std::shared_ptr<entry> found = entry_of(number);
    const std::lock_guard lock{found->mutex};
    if (!found->value) found->value.emplace(make());
    return {found, &*found->value};
  }

 private:
  struct entry {
    std::mutex mutex;            // held while the value is made
    std::optional<Value> value;  // guarded by it; never changed once it is there
  };
  struct place {
    std::uint64_t number = 0;
    std::uint64_t used = 0;  // the call that asked for it last; 0: none yet
    std::shared_ptr<entry> value;
  };

  [[nodiscard]] std::shared_ptr<entry> entry_of(std::uint64_t number) {
    const std::lock_guard lock{mutex_};
    ++calls_;
    place* oldest = &places_.front();
    for (place& one : places_) {
      if (one.value && one.number == number) {
        one.used = calls_;
        return one.value;
      }
      if (one.used < oldest->used) oldest = &one;
    }
    auto made = std::make_shared<entry>();
    *oldest = {number, calls_, std::move(made)};
    return oldest->value;
  }

  std::mutex mutex_;  // guards the rest
  std::vector<place> places_;
  std::uint64_t calls_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
