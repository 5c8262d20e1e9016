// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if nvImageCodec itself fails, for a reason other than an error in an image. The message
/// contains the function and its status.
class [[gnu::visibility("default")]] nvimgcodec_error : public error {
 public:
  using error::error;
};

/// The requested GPU or back end is not available because there is no driver, no such GPU, or no
/// extension of nvImageCodec for it.
class [[gnu::visibility("default")]] nvimgcodec_unavailable : public nvimgcodec_error {
 public:
  using nvimgcodec_error::nvimgcodec_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
