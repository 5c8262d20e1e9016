// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The device slots whose copy is queued and that are not handed out yet, the oldest first. As many
/// as there are slots at most; allocates only at construction. For one thread.
class issued_slots {
 public:
  explicit issued_slots(std::size_t most) : ring_(most) {}

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// The oldest; there must be one, as for `pop`.
  [[nodiscard]] std::size_t front() const noexcept { return ring_[first_]; }
  void pop() noexcept {
    first_ = (first_ + 1) % ring_.size();
    --count_;
  }
  /// Adds the youngest.
  void push(std::size_t slot) noexcept {
    ring_[(first_ + count_) % ring_.size()] = slot;
    ++count_;
  }

 private:
  std::vector<std::size_t> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
