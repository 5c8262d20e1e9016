// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The free slots of a `batcher`, in the order in which they came back. One that comes back with a
/// copy out of it under way is free at the end of that, which the memory knows. No thread-safety of
/// its own.
class free_requests {
 public:
  /// All of `count` slots are free.
  explicit free_requests(std::size_t count) : is_copied_(count) {
    free_.reserve(count);
    for (std::uint32_t slot = 0; slot < count; ++slot) free_.push_back(slot);
  }

  /// Whether none has come back.
  [[nodiscard]] bool is_empty() const noexcept { return free_.empty(); }
  /// A slot comes back.
  void give(std::uint32_t slot, bool behind_copy) noexcept {
    is_copied_[slot] = behind_copy ? 1 : 0;
    free_.push_back(slot);
  }
  /// Takes the first slot that nothing reads any more. Throws what the device throws.
  template <class Memory>
  [[nodiscard]] std::optional<std::uint32_t> take(Memory& memory) {
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      const std::uint32_t slot = *at;
      if (is_copied_[slot] != 0 && !memory.is_drained(slot)) continue;
      if (is_copied_[slot] != 0) memory.renew(slot);
      free_.erase(at);
      return slot;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::uint32_t> free_;
  std::vector<std::uint8_t> is_copied_;  // by slot
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
