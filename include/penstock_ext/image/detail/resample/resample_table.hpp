// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Bits after the point of a coefficient: what 32 leave when 8 are the result's, one is for weights
/// that sum up to more than 1 before others take it away, and one is the sign.
inline constexpr int coefficient_bits = 22;
/// What every sum of products begins with, so that it is rounded and not cut off.
inline constexpr std::int32_t coefficient_half = 1 << (coefficient_bits - 1);

/// One axis of a resize: `length` pixels become `scaled`, of which `count` are wanted from `first`
/// on, the last one first where they are reversed.
struct resample_span {
  std::size_t length = 0;
  std::size_t scaled = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  bool reversed = false;

  friend bool operator==(const resample_span&, const resample_span&) = default;
};

/// Which source pixels make a pixel: `taps` of them from `start` on.
struct resample_window {
  std::uint32_t start = 0;
  std::uint32_t taps = 0;
};

/// The windows of one axis and their coefficients, kept until another span comes. `coefficients(i)`
/// are those of the i-th pixel wanted, 4 * groups() of them, zeros after the last tap.
class resample_table {
 public:
  /// Whether it is the table of `span` already; if not, remembers `span` as what is made next.
  bool was_made_for(const resample_span& span) {
    if (made_ && span == span_) return true;
    span_ = span;
    made_ = false;
    return false;
  }

  /// Fills the table with the weights that the object `weight` gives.
  template <class Weight>
  void make(Weight weight) {
    const double scale =
        static_cast<double>(static_cast<float>(span_.length)) / static_cast<double>(span_.scaled);
    const double filter_scale = scale < 1 ? 1 : scale;
    const double support = Weight::support * filter_scale;
    const double inverse = 1 / filter_scale;
    const auto most = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
    reserve((most + 3) / 4);
    weights_.resize((std::max)(weights_.size(), most));
    const auto length = static_cast<std::int64_t>(span_.length);
    for (std::size_t i = 0; i < span_.count; ++i) {
      const std::size_t at = span_.first + (span_.reversed ? span_.count - 1 - i : i);
      const double centre = rounded((static_cast<double>(at) + 0.5) * scale);
      const double first = centre - support + 0.5;
      const double last = centre + support + 0.5;
      const auto from = (std::max)(static_cast<std::int64_t>(first), std::int64_t{0});
      const auto to = (std::min)(static_cast<std::int64_t>(last), length);
      const auto taps = static_cast<std::size_t>(to - from);
      double sum = 0;
      for (std::size_t tap = 0; tap < taps; ++tap) {
        const auto x = static_cast<double>(from + static_cast<std::int64_t>(tap));
        weights_[tap] = weight(rounded((x - centre + 0.5) * inverse));
        sum += weights_[tap];
      }
      std::int32_t* const out = coefficients(i);
      for (std::size_t tap = 0; tap < taps; ++tap) out[tap] = fixed(weights_[tap], sum);
      std::fill(out + taps, out + 4 * groups_, 0);
      windows_[i] = {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(taps)};
    }
    finish();
  }

  /// Fills the table for pixels that stay as they are.
  void make_identity() {
    reserve(1);
    for (std::size_t i = 0; i < span_.count; ++i) {
      const std::size_t at = span_.first + (span_.reversed ? span_.count - 1 - i : i);
      std::fill_n(coefficients(i), 4, 0);
      *coefficients(i) = 1 << coefficient_bits;
      windows_[i] = {static_cast<std::uint32_t>(at), 1};
    }
    finish();
  }

  /// Pixels wanted.
  [[nodiscard]] std::size_t size() const noexcept { return span_.count; }
  /// The window of pixel `i`.
  [[nodiscard]] resample_window window(std::size_t i) const noexcept { return windows_[i]; }
  /// Groups of four coefficients that a pixel has.
  [[nodiscard]] std::size_t groups() const noexcept { return groups_; }
  /// The coefficients of pixel `i`.
  [[nodiscard]] const std::int32_t* coefficients(std::size_t i) const noexcept {
    return coefficients_.data() + i * 4 * groups_;
  }
  /// The coefficients of pixel `i`.
  [[nodiscard]] std::int32_t* coefficients(std::size_t i) noexcept {
    return coefficients_.data() + i * 4 * groups_;
  }
  /// The first source pixel that any window has.
  [[nodiscard]] std::size_t begin() const noexcept { return begin_; }
  /// One after the last source pixel that any window has.
  [[nodiscard]] std::size_t end() const noexcept { return end_; }

 private:
  void reserve(std::size_t groups) {
    groups_ = groups;
    const std::size_t needed = span_.count * 4 * groups;
    if (coefficients_.size() < needed) coefficients_.resize(needed);
    if (windows_.size() < span_.count) windows_.resize(span_.count);
  }

  static std::int32_t fixed(double weight, double sum) noexcept {
    const double share = sum != 0 ? weight / sum : weight;
    const double scaled = share * (1 << coefficient_bits);  // exact
    return static_cast<std::int32_t>(share < 0 ? scaled - 0.5 : scaled + 0.5);
  }

  // Both ends of the windows only grow from pixel to pixel.
  void finish() noexcept {
    const resample_window& one = windows_[0];
    const resample_window& other = windows_[span_.count - 1];
    begin_ = (std::min)(one.start, other.start);
    end_ = (std::max)(one.start + one.taps, other.start + other.taps);
    made_ = true;
  }

  resample_span span_;
  bool made_ = false;
  std::size_t groups_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::vector<std::int32_t> coefficients_;
  std::vector<resample_window> windows_;
  std::vector<double> weights_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
