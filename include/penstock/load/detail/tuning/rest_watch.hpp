// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>

#include <penstock/load/detail/tuning/pace.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Watches a loop for which no better setting is known: tells when it is no longer the loop that it
/// was, and when it is time to look again all the same, each time later.
class rest_watch {
 public:
  /// What a window of a rest says.
  enum class word {
    rests,    ///< go on
    is_over,  ///< it has lasted long enough
    is_long,  ///< the same, and longer than any chance lasts: what has failed may be tried again
    changed,  ///< this is another loop
  };

  /// A rest begins, at this pace.
  void begin(const pace& settled) noexcept {
    settled_ = settled;
    seen_ = {};
    odd_windows_ = 0;
  }
  /// The next rest is a short one.
  void shorten() noexcept { length_ = shortest; }

  /// One more window of it.
  [[nodiscard]] word note(const pace& window) noexcept {
    seen_.add(window, true);
    // An abrupt change shows in two windows, one after the other, since a single one may be noise.
    // A small one shows in all of them together.
    odd_windows_ = is_other(window, 2) ? odd_windows_ + 1 : 0;
    const double rested = seen_.waits.count();
    const bool has_drifted = rested >= enough && is_other(seen_, 1);
    if (odd_windows_ == 2 || has_drifted) {
      if (odd_windows_ == 2) seen_ = window;
      length_ = shortest;
      return word::changed;
    }
    if (rested < length_) return word::rests;
    const bool is_long = length_ >= long_ago;
    length_ = (std::min)(2 * length_, longest);
    return is_long ? word::is_long : word::is_over;
  }
  /// How the loop has run meanwhile.
  [[nodiscard]] const pace& seen() const noexcept { return seen_; }

 private:
  static constexpr double enough = 32;  // batches, as all that follows
  static constexpr double shortest = 64;
  static constexpr double long_ago = 1024;
  static constexpr double longest = 16384;
  static constexpr double errors = 2;  // standard errors that a change has to exceed

  [[nodiscard]] bool is_other(const pace& now, double times) const noexcept {
    const auto is_off = [](const gain& seen, double share) {
      return seen.is_above(share, errors) || seen.is_below(-share, errors);
    };
    return is_off(gain_of(settled_, now, true), 0.03 * times) ||
           is_off(gain_of(settled_, now, false), 0.15 * times);
  }

  pace settled_;
  pace seen_;
  double length_ = shortest;
  int odd_windows_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
