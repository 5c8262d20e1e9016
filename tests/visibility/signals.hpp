// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace parts {

/// Returns true if the library, compiled with `PENSTOCK_COMPILED`, cannot create a `stop_on_signal`
/// for the signal `number`, because the signal is in use.
[[gnu::visibility("default")]] bool is_in_use(int number);
/// Returns true if a `stop_on_signal` in the library receives the signal `number`.
[[gnu::visibility("default")]] bool gets(int number);

}  // namespace parts
