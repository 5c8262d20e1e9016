// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <csignal>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Blocks all signals on the current thread during its lifetime. Threads started in that time
/// inherit the mask, so they never receive the program's signals.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    ::sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &former_);
  }
  signals_blocked(signals_blocked&&) = delete;
  ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

 private:
  ::sigset_t former_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
