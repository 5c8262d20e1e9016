// SPDX-License-Identifier: BSL-1.0
// Imitates a libc++ without std::stop_token.
#include <version>
#define _LIBCPP_VERSION 160000
#undef __cpp_lib_jthread
