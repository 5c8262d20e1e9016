// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/device/device.hpp>

namespace contract {

/// Device memory that is freed at the end of the scope.
template <penstock::device Device>
class device_memory {
 public:
  device_memory(const Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(device.allocate(bytes))) {}
  device_memory(device_memory&&) = delete;
  ~device_memory() { device_.deallocate(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Device device_;
  std::size_t bytes_;
  std::byte* data_;
};

template <penstock::device Device>
class pinned_memory {
 public:
  pinned_memory(const Device& device, std::size_t bytes)
      : device_(device),
        bytes_(bytes),
        data_(static_cast<std::byte*>(device.allocate_pinned(bytes).data)) {}
  pinned_memory(pinned_memory&&) = delete;
  ~pinned_memory() { device_.deallocate_pinned(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::byte* begin() const { return data_; }
  [[nodiscard]] std::byte* end() const { return data_ + bytes_; }

 private:
  Device device_;
  std::size_t bytes_;
  std::byte* data_;
};

/// Fills memory with bytes that change if they are shifted by one or if two halves are swapped.
inline void fill_pattern(std::byte* data, std::size_t bytes, std::uint32_t seed) {
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 1664525U + 1013904223U;
    data[i] = static_cast<std::byte>(state >> 24);
  }
}

}  // namespace contract
