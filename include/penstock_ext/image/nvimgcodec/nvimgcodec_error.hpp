// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if nvImageCodec fails for a reason other than an invalid image. The message contains the
/// function name and status.
class [[gnu::visibility("default")]] nvimgcodec_error : public error {
 public:
  using error::error;
};

/// Thrown if the requested GPU or back end is not available, for example because the driver, the
/// GPU, or its nvImageCodec extension is missing.
class [[gnu::visibility("default")]] nvimgcodec_unavailable : public nvimgcodec_error {
 public:
  using nvimgcodec_error::nvimgcodec_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
