// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// nvImageCodec itself failed, and not on account of a picture: the message has the function and
/// the status that it gave.
class [[gnu::visibility("default")]] nvimgcodec_error : public error {
 public:
  using error::error;
};

/// The GPU or the back end that was asked for is not available: no driver, no such GPU, or none of
/// nvImageCodec's extensions for it.
class [[gnu::visibility("default")]] nvimgcodec_unavailable : public nvimgcodec_error {
 public:
  using nvimgcodec_error::nvimgcodec_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
