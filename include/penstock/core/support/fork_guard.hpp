// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <stdexcept>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Records the process in which threads were started. A child made by fork() has a copy of their
/// data, but not the threads.
class fork_guard {
 public:
  /// Records the calling process if `has_threads` is true. An object without threads also works in
  /// a child made by fork().
  explicit fork_guard(bool has_threads) noexcept : id_(has_threads ? ::getpid() : 0) {}

  /// Returns true if the calling process is a child that the recorded process made by fork().
  [[nodiscard]] bool is_in_child() const noexcept { return id_ != 0 && ::getpid() != id_; }

  /// Throws `std::logic_error` in a child made by fork(). `what` names the object with the threads,
  /// and `remedy` describes what the caller can do instead.
  void require(const char* what, const char* remedy) const {
    if (is_in_child()) throw_in_child(what, remedy);
  }

 private:
  [[noreturn, gnu::cold]] void throw_in_child(const char* what, const char* remedy) const {
    throw std::logic_error(str_cat({"penstock::", what, ": its threads are in process ", id_,
                                    ", the parent of this process by fork(): ", remedy}));
  }

  ::pid_t id_;  // 0: there are no threads
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
