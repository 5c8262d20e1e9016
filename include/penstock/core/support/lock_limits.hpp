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

/// Describes the system's limits on locked memory, for error messages: the limit of the process
/// and, under the Windows Subsystem for Linux, that of Windows. `root` is for tests.
[[nodiscard, gnu::cold]] inline std::string lock_limits(const std::string& root = "") {
  ::rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool is_unlimited = limit.rlim_cur == RLIM_INFINITY;
  std::string text = str_cat(
      {"the process may lock ",
       is_unlimited ? str_cat_arg{"any number of"} : str_cat_arg{limit.rlim_cur}, " bytes"});
  // The kernel of WSL 1 is called "Microsoft", and that of WSL 2 "microsoft-standard-WSL2".
  if (text_of_file(root + "/proc/version").find("icrosoft") != std::string::npos) {
    text += ", and under WSL Windows limits page-locked memory too";
  }
  return text;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
