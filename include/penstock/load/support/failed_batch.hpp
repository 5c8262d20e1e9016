// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <exception>
#include <optional>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The exception that stands for a batch, and where it came from. It is caught where the dataset
/// throws it, travels with its batch as a value, and is thrown once: to the consumer, at the
/// batch's turn.
struct failed_batch {
  std::exception_ptr error;           ///< null: there is none
  std::optional<failure> place = {};  ///< empty where it belongs to no batch

  /// Whether there is one.
  [[nodiscard]] explicit operator bool() const noexcept { return error != nullptr; }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
