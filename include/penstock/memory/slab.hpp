#pragma once

#include <cstddef>
#include <utility>

#include <penstock/device/device.hpp>
#include <penstock/device/host_device.hpp>

namespace penstock::inline v0 {

/// Which memory a slab is made of.
enum class memory_kind {
  device,    ///< device memory
  pinned,    ///< host memory for asynchronous copies
  pageable,  ///< ordinary host memory: copies out of it are slower and, on a GPU, synchronous
};

/// One contiguous piece of memory, taken at construction and freed at destruction. Aligned to 256
/// bytes at least. Move-only. The owner sees to it that nothing still uses it when it goes.
template <device Device>
class slab {
 public:
  /// Throws `out_of_memory`; `bytes` must not be 0.
  slab(const Device& where, std::size_t bytes, memory_kind kind)
      : device_(where), bytes_(bytes), kind_(kind) {
    switch (kind) {
      case memory_kind::device:
        data_ = static_cast<std::byte*>(device_.allocate(bytes));
        break;
      case memory_kind::pinned: {
        const pinned_block block = device_.allocate_pinned(bytes);
        data_ = static_cast<std::byte*>(block.data);
        pinned_ = block.pinned;
        break;
      }
      case memory_kind::pageable:
        data_ = static_cast<std::byte*>(host_device{}.allocate(bytes));
        break;
    }
  }

  slab(slab&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        kind_(other.kind_),
        pinned_(other.pinned_) {}
  slab& operator=(slab&&) = delete;

  ~slab() {
    if (data_ == nullptr) return;
    switch (kind_) {
      case memory_kind::device:
        device_.deallocate(data_, bytes_);
        break;
      case memory_kind::pinned:
        device_.deallocate_pinned(data_, bytes_);
        break;
      case memory_kind::pageable:
        host_device{}.deallocate(data_, bytes_);
        break;
    }
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] memory_kind kind() const noexcept { return kind_; }
  /// Whether the memory really is page-locked: false where the system refused.
  [[nodiscard]] bool pinned() const noexcept { return pinned_; }

 private:
  Device device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  memory_kind kind_;
  bool pinned_ = false;
};

}  // namespace penstock::inline v0
