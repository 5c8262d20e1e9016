// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <penstock/observe/transfer_stats.hpp>

namespace mlp {

/// A loop that runs, and what it did in the moment that has just passed.
struct live_moment {
  std::string label{};
  std::size_t step = 0;         ///< steps that are under way or done
  std::size_t steps = 0;        ///< of the whole loop
  std::size_t steps_since = 0;  ///< of the moment
  double seconds = 0;           ///< that the moment has lasted
  double floor = 0;             ///< seconds of a batch that no feed can beat; 0: not known
  std::size_t slots = 0;        ///< host slots that batches are read into
  /// Of the moment, where workers and copies feed the loop.
  std::optional<penstock::transfer_stats> fed{};
};

/// A bar `width` wide of which a share is filled: "[##..]".
[[nodiscard]] inline std::string bar_of(double share, std::size_t width) {
  const double whole = std::clamp(share, 0.0, 1.0) * static_cast<double>(width);
  const auto filled = static_cast<std::size_t>(whole + 0.5);
  return '[' + std::string(filled, '#') + std::string(width - filled, '.') + ']';
}

/// Who waits for whom: the loop if it waits for more than a twentieth of the time, else the
/// workers.
[[nodiscard]] inline std::string who_waits(const penstock::transfer_stats& fed) {
  struct wait {
    std::chrono::nanoseconds time;
    std::string_view what;
  };
  const auto longest = [](auto waits) {
    return *std::max_element(waits.begin(), waits.end(),
                             [](const wait& a, const wait& b) { return a.time < b.time; });
  };
  const auto told = [](std::string_view who, const wait& most, double seconds) -> std::string {
    constexpr double least = 0.05;
    const double share = seconds <= 0 ? 0 : static_cast<double>(most.time.count()) / 1e9 / seconds;
    if (share < least) return {};
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "%.*s %.0f %%: %.*s", static_cast<int>(who.size()),
                  who.data(), 100 * std::min(share, 1.0), static_cast<int>(most.what.size()),
                  most.what.data());
    return text.data();
  };
  const double seconds = static_cast<double>(fed.age.count()) / 1e9;
  const bool reads_itself = fed.loader && fed.loader->workers == 0;
  const std::string loop = told(
      "loop waits",
      longest(std::array<wait, 3>{{{fed.wait_for_batch.time, reads_itself ? "reading" : "batches"},
                                   {fed.wait_for_copy.time, "copies"},
                                   {fed.wait_for_slot.time, "leases"}}}),
      seconds);
  if (!loop.empty() || !fed.loader) return loop;
  const std::string workers =
      told("workers wait",
           longest(std::array<wait, 3>{{{fed.loader->wait_for_slot.time, "slots"},
                                        {fed.loader->wait_for_copy.time, "copies"},
                                        {fed.loader->wait_for_demand.time, "loop"}}}),
           seconds * static_cast<double>(fed.loader->workers));
  return workers.empty() ? "nobody waits" : workers;
}

/// The line that shows it, at most `width` characters of ASCII, without a line's end: how far the
/// loop is, its rate, the time of a batch over the floor's, how many of the host slots hold
/// complete batches, who waits. Mostly it fits a terminal of 80.
[[nodiscard]] inline std::string live_text(const live_moment& now, std::size_t width) {
  const double share =
      now.steps == 0 ? 0.0 : static_cast<double>(now.step) / static_cast<double>(now.steps);
  const bool has_rate = now.seconds > 0 && now.steps_since > 0;
  const double rate = has_rate ? static_cast<double>(now.steps_since) / now.seconds : 0.0;
  std::array<char, 128> cells{};
  std::snprintf(cells.data(), cells.size(), "%-10s %3.0f %%", now.label.c_str(), 100 * share);
  std::string text = cells.data();
  if (has_rate) {
    std::snprintf(cells.data(), cells.size(), " %5.0f batches/s", rate);
    text += cells.data();
  }
  if (has_rate && now.floor > 0) {
    std::snprintf(cells.data(), cells.size(), ", %.2fx floor", 1 / (rate * now.floor));
    text += cells.data();
  }
  if (now.fed) {
    constexpr std::size_t widest = 5;
    if (now.fed->loader && now.fed->loader->ready.looks != 0 && now.slots > 1) {
      const double ready = now.fed->loader->ready.mean() / static_cast<double>(now.slots - 1);
      text += ' ' + bar_of(ready, std::min(widest, now.slots - 1));
    }
    const std::string waits = who_waits(*now.fed);
    if (!waits.empty()) text += ' ' + waits;
  } else {
    constexpr std::size_t bar = 20;
    text += ' ' + bar_of(share, bar);
  }
  return text.substr(0, width);
}

}  // namespace mlp
