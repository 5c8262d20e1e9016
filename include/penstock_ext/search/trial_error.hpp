// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A text is not the JSON of `tuned_options` or of trials: at which byte of it, what was expected
/// there and what was found.
class [[gnu::visibility("default")]] trial_error : public error {
 public:
  trial_error(std::size_t offset, const std::string& expected, const std::string& found)
      : error("tuned options: at byte " + std::to_string(offset) + ": expected " + expected +
              ", found " + found),
        offset_(offset) {}
  /// The byte of the text that could not be read.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

 private:
  std::size_t offset_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
