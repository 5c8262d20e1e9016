// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// An object's name leads, or may lead, to a file outside of its store's folder: it starts at the
/// root, has ".." in it, or a link on its way points elsewhere. Nothing was opened.
class [[gnu::visibility("default")]] object_name_error : public file_error {
 public:
  using file_error::file_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
