// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Deletes what has threads of its own, such as a `blob_read_ahead`, but not in a child made by
/// fork(): there are none to be joined.
struct delete_unless_forked {
  template <class T>
  void operator()(T* one) const noexcept {
    if (!one->is_in_child()) delete one;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
