// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <penstock/load/detail/tuning/pace.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Measures a loop window by window: some batches that were read with one setting. For one thread.
class pace_meter {
 public:
  /// The next window begins anew, a few batches later: when the change that was made now shows.
  /// Where a loop may live on what was read ahead before, it is when a batch was waited for, at the
  /// latest after `read_ahead` batches.
  void settle(std::uint64_t read_ahead = 0) noexcept {
    unsettled_ = settling;
    read_ahead_ = read_ahead;
    window_ = {};
  }
  /// What comes next is not what the last batch led to: a range begins. Some batches are left out;
  /// the window goes on after them, or short ranges would never fill one.
  void pause() noexcept { is_fresh_ = true; }

  /// The consumer got a batch at `now`, and has waited `waited` ticks so far for batches to be
  /// read. `busy()` is called where a window begins or ends, and gives the ticks that all readers
  /// have worked, or nothing: then that is one batch later. Returns a window of at least `length`
  /// batches that ends here.
  template <class Busy>
  std::optional<pace> note(std::uint64_t now, std::uint64_t waited, double length,
                           Busy& busy) noexcept {
    const double all = since(last_, now);
    const double waits = (std::min)(all, since(waited_, waited));
    last_ = now;
    waited_ = waited;
    if (is_fresh_) {
      is_fresh_ = false;
      unsettled_ = settling;
      read_ahead_ = 0;
      return std::nullopt;
    }
    if (read_ahead_ != 0) {
      read_ahead_ = waits > 0 ? 0 : read_ahead_ - 1;
      return std::nullopt;
    }
    if (unsettled_ > 1) {
      --unsettled_;
      return std::nullopt;
    }
    if (unsettled_ == 1) {
      const std::optional<std::uint64_t> worked = busy();
      if (worked) begin(now, *worked);
      return std::nullopt;
    }
    window_.step.add(all - waits);
    window_.waits.add(waits);
    if (window_.waits.count() < length) return std::nullopt;
    const std::optional<std::uint64_t> worked = busy();
    if (!worked) return std::nullopt;
    pace whole = window_;
    // Of the part since the last pause, of which there is one: it is a rate.
    whole.busy.add(since(worked_, *worked) / (std::max)(1.0, since(began_, now)));
    window_ = {};
    begin(now, *worked);
    return whole;
  }

 private:
  static constexpr unsigned settling = 2;

  static double since(std::uint64_t before, std::uint64_t after) noexcept {
    return after > before ? static_cast<double>(after - before) : 0.0;
  }
  void begin(std::uint64_t now, std::uint64_t worked) noexcept {
    unsettled_ = 0;
    began_ = now;
    worked_ = worked;
  }

  bool is_fresh_ = true;
  unsigned unsettled_ = settling;  // batches until a window begins
  std::uint64_t read_ahead_ = 0;   // batches before that
  std::uint64_t last_ = 0;
  std::uint64_t waited_ = 0;
  std::uint64_t began_ = 0;
  std::uint64_t worked_ = 0;
  pace window_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
