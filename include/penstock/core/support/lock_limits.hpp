// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>

#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/support/text_of_file.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Describes the limits on locked memory for error messages: the process limit and, on the Windows
/// Subsystem for Linux, the Windows limit. `root` is for tests.
[[nodiscard, gnu::cold]] inline std::string lock_limits(const std::string& root = "") {
  ::rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool is_unlimited = limit.rlim_cur == RLIM_INFINITY;
  std::string text = str_cat(
      {"the process may lock ",
       is_unlimited ? str_cat_arg{"any number of"} : str_cat_arg{limit.rlim_cur}, " bytes"});
  // The kernel name contains "Microsoft" on WSL 1 and "microsoft-standard-WSL2" on WSL 2.
  if (text_of_file(root + "/proc/version").find("icrosoft") != std::string::npos) {
    text += ", and under WSL Windows limits page-locked memory too";
  }
  return text;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
