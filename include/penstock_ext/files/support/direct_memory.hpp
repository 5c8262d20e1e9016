// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Memory for reads past the page cache (O_DIRECT), in huge pages where the system has them: a
/// request to the disk has as many segments as its memory, and with few of them it was 2.4 times as
/// fast. One thread at a time.
class direct_memory {
 public:
  /// What devices with blocks of up to 4 KiB ask of an address, a place in the file and a size.
  static constexpr std::size_t alignment = 4096;

  /// Room for `bytes` bytes; what it held before may be gone.
  [[nodiscard]] std::byte* room_for(std::size_t bytes) {
    if (bytes > bytes_) {
      bytes = (bytes + huge_page - 1) / huge_page * huge_page;
      memory_.reset();
      bytes_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{huge_page})));
      bytes_ = bytes;
      ::madvise(memory_.get(), bytes, MADV_HUGEPAGE);
    }
    return memory_.get();
  }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  struct aligned_delete {
    void operator()(std::byte* bytes) const noexcept {
      ::operator delete(bytes, std::align_val_t{huge_page});
    }
  };

  std::unique_ptr<std::byte, aligned_delete> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
