// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <penstock/load/support/hill_climber.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A move, with the ticks of a batch.
struct logged_move {
  std::uint64_t batch = 0;
  trial_result said;
  std::uint64_t ticks_from = 0;
  std::uint64_t ticks_to = 0;
};

/// The last moves, by their number modulo how many there are room for.
struct logged_moves {
  static constexpr std::size_t most = 32;
  tuning_setting now;
  std::uint64_t count = 0;
  std::array<logged_move, most> moves{};
};

/// The moves of a loader, the last ones of them. One thread writes, any thread reads. Takes no
/// memory later.
class tuning_log {
 public:
  explicit tuning_log(const tuning_setting& now) noexcept {
    kept_.now = now;
    shown_.store(kept_);
  }

  /// The writing thread: a trial has ended, and `now` is kept.
  void add(std::uint64_t batch, const trial_result& said, const tuning_setting& now) noexcept {
    const auto ticks = [](double mean) { return static_cast<std::uint64_t>(std::llround(mean)); };
    kept_.moves[kept_.count % logged_moves::most] = {batch, said, ticks(said.ticks_from),
                                                     ticks(said.ticks_to)};
    ++kept_.count;
    kept_.now = now;
    shown_.store(kept_);
  }

  /// What was written so far, in times. Takes memory.
  [[nodiscard]] tuning_history snapshot(const tick_times& times) const {
    const logged_moves seen = shown_.load();
    tuning_history all{.now = seen.now, .count = seen.count, .moves = {}};
    const std::uint64_t left = (std::min<std::uint64_t>)(seen.count, logged_moves::most);
    all.moves.reserve(left);
    for (std::uint64_t move = seen.count - left; move < seen.count; ++move) {
      const logged_move& one = seen.moves[move % logged_moves::most];
      all.moves.push_back({one.batch, one.said.from, one.said.to, one.said.why,
                           times.of(one.ticks_from), times.of(one.ticks_to)});
    }
    return all;
  }

 private:
  logged_moves kept_;  // of the writing thread
  shared_value<logged_moves> shown_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
