// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown by `filter` if reading a sample or the predicate throws. The original exception is
/// nested: `std::rethrow_if_nested` throws it.
class [[gnu::visibility("default")]] filter_error : public error, public std::nested_exception {
 public:
  /// Reports that sample `index` threw the current exception, whose message is `problem`.
  filter_error(std::uint64_t index, sample_origin origin, std::string_view problem)
      : error(detail::str_cat({"filter: sample ", index, text_of(index, origin), ": ", problem})),
        index_(index),
        origin_(origin) {}

  /// Returns the index of the sample in the unfiltered dataset.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }
  /// Returns the sample in its source dataset.
  [[nodiscard]] sample_origin origin() const noexcept { return origin_; }

 private:
  static std::string text_of(std::uint64_t index, sample_origin origin) {
    if (origin == sample_origin{index, 0}) return {};
    const std::string part =
        origin.part == 0 ? "the dataset" : detail::str_cat({"part ", origin.part});
    return detail::str_cat({" (", origin.index, " in ", part, " below)"});
  }

  std::uint64_t index_;
  sample_origin origin_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
