// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A tensor that was handed over cannot be read as what it was asked to be. Its deleter has been
/// called, or is called where the exception passes.
class [[gnu::visibility("default")]] dlpack_error : public error {
 public:
  /// `where` says which function, and which field if there are several.
  dlpack_error(std::string_view where, std::string_view part, std::string expected,
               std::string found, std::string_view advice)
      : error(std::string{where} + ": " + std::string{part} + ": expected " + expected +
              ", found " + found + ": " + std::string{advice}),
        part_(part),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// What does not fit: "tensor" (there is none), "version", "rank", "type", "device", "shape",
  /// "strides", "data", "alignment".
  [[nodiscard]] const std::string& part() const noexcept { return part_; }
  /// What would have been right.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// What the tensor says.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string part_;
  std::string expected_;
  std::string found_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
