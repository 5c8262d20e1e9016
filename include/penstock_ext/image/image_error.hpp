// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

// What may be wrong with an encoded picture. Each is a `file_error`: `path()` is the blob's key,
// `offset()` the byte of the blob near which a decoder stood, 0 where it can't tell.

/// A picture's bytes end before the pixels that were asked for.
class [[gnu::visibility("default")]] image_truncated : public file_truncated {
 public:
  using file_truncated::file_truncated;
};

/// A picture's bytes are damaged: its header contradicts itself, or its pixels can't be right.
class [[gnu::visibility("default")]] image_corrupt : public file_corrupt {
 public:
  using file_corrupt::file_corrupt;
};

/// A picture is sound, as far as is known, but of a format or of a kind that no decoder here reads;
/// `found()` names it.
class [[gnu::visibility("default")]] image_unsupported : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// A picture is larger than a limit of its decoder: in pixels, in memory or in the work that it
/// asks for. Found out before memory is taken.
class [[gnu::visibility("default")]] image_too_large : public file_error {
 public:
  using file_error::file_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
