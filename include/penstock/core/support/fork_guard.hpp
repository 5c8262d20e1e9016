// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <stdexcept>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The ID of this process, stored in a page that the kernel fills with zeros in each child created
/// by fork(). Reading this page costs a load, whereas getpid() costs a system call.
class process_mark {
 public:
  /// Returns the ID of this process.
  [[nodiscard]] ::pid_t current() const noexcept {
    // Relaxed ordering suffices, because every thread of a process stores the same ID.
    const ::pid_t known = id_ == nullptr ? 0 : id_->load(std::memory_order_relaxed);
    return known != 0 ? known : load_id();
  }

  /// Returns the process mark, whose page is never unmapped.
  [[nodiscard]] static const process_mark& instance() noexcept {
    static const process_mark mark{true};
    return mark;
  }

  /// Maps the page if `has_page` is true. Without the page, `current` always calls getpid().
  explicit process_mark(bool has_page) noexcept {
    if (!has_page) return;
    constexpr std::size_t bytes = sizeof(std::atomic<::pid_t>);  // rounded up to a page
    void* const page =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    // The first call fails before Linux 4.14. The second call detects an emulator that accepts any
    // advice.
    if (::madvise(page, bytes, MADV_WIPEONFORK) != 0 || ::madvise(page, bytes, -1) == 0) {
      ::munmap(page, bytes);
      return;
    }
    id_ = new (page) std::atomic<::pid_t>{0};
  }

 private:
  [[gnu::cold]] ::pid_t load_id() const noexcept {
    const ::pid_t id = ::getpid();
    if (id_ != nullptr) id_->store(id, std::memory_order_relaxed);
    return id;
  }

  std::atomic<::pid_t>* id_ = nullptr;  // 0 until the first call in a process
};

/// Records the process in which threads were started. A child created by fork() has a copy of the
/// objects, but does not have the threads.
class fork_guard {
 public:
  /// Records the calling process if `has_threads` is true. An object without threads also works in
  /// a child created by fork().
  explicit fork_guard(bool has_threads) noexcept
      : mark_(&process_mark::instance()), id_(has_threads ? mark_->current() : 0) {}

  /// Returns true if the calling process is a child of the recorded process, created by fork().
  [[nodiscard]] bool is_in_child() const noexcept { return id_ != 0 && mark_->current() != id_; }

  /// Throws `std::logic_error` in a child created by fork(). `what` names the object with the
  /// threads, and `remedy` describes an alternative for the caller.
  void require(const char* what, const char* remedy) const {
    if (is_in_child()) throw_in_child(what, remedy);
  }

 private:
  [[noreturn, gnu::cold]] void throw_in_child(const char* what, const char* remedy) const {
    throw std::logic_error(str_cat({"penstock::", what, ": its threads are in process ", id_,
                                    ", the parent of this process by fork(): ", remedy}));
  }

  const process_mark* mark_;
  ::pid_t id_;  // 0 without threads
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
