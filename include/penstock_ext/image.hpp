// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Image decoding, cropping, resizing and augmentation. The decoders are in `image/jpeg/jpeg.hpp`
/// (`penstock::jpeg`), `image/png/png.hpp` (`penstock::png`) and `image/nvimgcodec`
/// (`penstock::nvimgcodec`).

#include <penstock_ext/image/augment/affine.hpp>
#include <penstock_ext/image/augment/color.hpp>
#include <penstock_ext/image/augment/one_pass.hpp>
#include <penstock_ext/image/augment/to_chw.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>
#include <penstock_ext/image/resize.hpp>
