// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Has the system read the pages of mapped bytes that it does not have in memory, as they come: in
/// their order, neighbours by one call. The last ones are asked for at the end of this object.
class read_soon {
 public:
  read_soon() = default;
  read_soon(read_soon&&) = delete;
  ~read_soon() { ask(); }

  /// The `count` bytes from `first` on, which are mapped.
  void add(const std::byte* first, std::size_t count) noexcept {
    if (count == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(first) & ~(page_ - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(first) + count;
    if (begin < begin_ || begin > end_) {
      ask();
      begin_ = begin;
      end_ = end;
    } else if (end > end_) {
      end_ = end;
    }
  }

 private:
  void ask() const noexcept {
    // A hint: what the system refuses is read when it is looked at.
    if (begin_ != end_) {
      static_cast<void>(
          ::madvise(reinterpret_cast<void*>(begin_), end_ - begin_, MADV_WILLNEED));  // NOLINT
    }
  }

  std::uintptr_t page_ = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::uintptr_t begin_ = 0;  // of what is not asked for yet; a page's
  std::uintptr_t end_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
