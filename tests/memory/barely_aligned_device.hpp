// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <memory>

#include "support/ledger_device.hpp"

/// A device with the minimum alignment that the concept permits: pinned memory starts at odd
/// multiples of 256 bytes. Not thread-safe.
struct barely_aligned_device : ledger_device {
  [[nodiscard]] penstock::pinned_block allocate_pinned(std::size_t bytes) const {
    auto block = ledger_device::allocate_pinned(bytes + shift);
    auto* data = static_cast<std::byte*>(block.data) + shift;
    out_->emplace(data, bytes);
    return {data, block.pinned};
  }
  void deallocate_pinned(void* data, std::size_t bytes) const noexcept {
    out_->erase(static_cast<std::byte*>(data));
    ledger_device::deallocate_pinned(static_cast<std::byte*>(data) - shift, bytes + shift);
  }

  /// Returns true if a single allocated block contains all of the bytes.
  [[nodiscard]] bool holds(const void* data, std::size_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(data);
    const auto above = out_->upper_bound(const_cast<std::byte*>(begin));
    if (above == out_->begin()) return false;
    const auto& [block, length] = *std::prev(above);
    return begin + bytes <= block + length;
  }

 private:
  static constexpr std::size_t shift = 256;

  std::shared_ptr<std::map<std::byte*, std::size_t>> out_ =
      std::make_shared<std::map<std::byte*, std::size_t>>();
};
