// SPDX-License-Identifier: BSL-1.0
// Plays a libc++ that has no std::stop_token.
#include <version>
#define _LIBCPP_VERSION 160000
#undef __cpp_lib_jthread
