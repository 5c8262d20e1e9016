// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace example {

/// `size()` elements of device memory, owned. Move-only.
template <class T, class Device>
class device_array {
 public:
  /// Throws `penstock::out_of_memory`. `size` must not be 0.
  device_array(const Device& device, std::size_t size)
      : device_(device), size_(size), data_(static_cast<T*>(device.allocate(size * sizeof(T)))) {}
  device_array(device_array&& other) noexcept
      : device_(other.device_), size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  device_array& operator=(device_array&&) = delete;
  ~device_array() {
    if (data_ != nullptr) device_.deallocate(data_, size_ * sizeof(T));
  }

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Copies `values` to the elements starting at `first` and waits for the copy.
  void upload(std::span<const T> values, typename Device::stream_ref stream,
              std::size_t first = 0) {
    device_.copy_async(data_ + first, values.data(), values.size_bytes(), stream);
    device_.synchronize(stream);
  }
  /// Copies the first elements to `values` and waits for the copy.
  void download(std::span<T> values, typename Device::stream_ref stream) const {
    device_.copy_async(values.data(), data_, values.size_bytes(), stream);
    device_.synchronize(stream);
  }

 private:
  Device device_;
  std::size_t size_;
  T* data_;
};

}  // namespace example
