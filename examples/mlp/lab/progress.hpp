// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <penstock/observe/diagnose.hpp>
#include <penstock/penstock.hpp>

#include "live.hpp"
#include "train.hpp"

namespace mlp {

/// Whether people look at standard output, and no log.
[[nodiscard]] inline bool is_watched() {
  const char* const terminal = std::getenv("TERM");
  const bool is_dumb = terminal != nullptr && std::string_view{terminal} == "dumb";
  return ::isatty(STDOUT_FILENO) == 1 && std::getenv("CI") == nullptr && !is_dumb;
}

/// What a progress line may show besides.
struct progress_options {
  bool shown = true;  ///< if standard output is watched
  double floor = 0;   ///< seconds of a batch that no feed can beat; 0: not known
};

/// A line on standard output while a loop runs, where people look; gone at the end. It is drawn ten
/// times a second at most; between two a step costs a look at the clock. Keeps what has limited the
/// loop.
class progress_bar final : public observer {
 public:
  progress_bar(std::string_view label, std::size_t steps, const progress_options& how = {})
      : shown_(how.shown && is_watched()) {
    now_.label = label;
    now_.steps = steps;
    now_.floor = how.floor;
  }
  ~progress_bar() override {
    if (!shown_) return;
    std::fputs("\r\033[K", stdout);
    std::fflush(stdout);
  }

  void fed_by(const std::function<penstock::transfer_stats()>& stats, std::size_t slots) override {
    stats_ = stats;
    now_.slots = slots;
  }
  /// The first step is about to come.
  void begin() override {
    if (!shown_) return;
    if (stats_) {
      fed_before_ = stats_();
      const penstock::replay_stats& alone = fed_before_->replay;
      if (alone.batches != 0) {
        now_.floor =
            std::chrono::duration<double>(alone.time).count() / static_cast<double>(alone.batches);
      }
    }
    last_ = clock::now();
    draw();
  }
  /// One step more is under way.
  void advance() override {
    ++now_.step;
    if (!shown_) return;
    const auto time = clock::now();
    if (time - last_ < apart) return;
    now_.seconds = std::chrono::duration<double>(time - last_).count();
    now_.steps_since = now_.step - drawn_;
    if (stats_) {
      const auto fed = stats_();
      auto since = fed - *fed_before_;
      // The queue is looked at now and then: without a look it is as it was last.
      if (now_.fed && now_.fed->loader && since.loader && since.loader->ready.looks == 0)
        since.loader->ready = now_.fed->loader->ready;
      now_.fed = since;
      fed_before_ = fed;
    }
    draw();
    drawn_ = now_.step;
    last_ = time;
  }
  void has_run(const penstock::transfer_stats& before,
               const penstock::transfer_stats& after) override {
    stats_ = nullptr;  // what it asks may go
    said_ = penstock::diagnose(before, after);
    during_ = after - before;
  }
  /// Records the loop from now on.
  void record_to(penstock::trace_recorder& recorder) noexcept { recorder_ = &recorder; }
  [[nodiscard]] penstock::trace_recorder* trace() override { return recorder_; }
  /// What has limited the loop, if it was told.
  [[nodiscard]] const std::optional<penstock::verdict>& said() const noexcept { return said_; }
  /// Its statistics, if they were told.
  [[nodiscard]] const std::optional<penstock::transfer_stats>& during() const noexcept {
    return during_;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds apart{100};

  void draw() const {
    constexpr std::size_t usual = 80;
    struct ::winsize window {};
    const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
    const std::string text = live_text(now_, is_known ? window.ws_col - 1U : usual - 1);
    std::printf("\r%s\033[K", text.c_str());
    std::fflush(stdout);
  }

  live_moment now_;
  std::function<penstock::transfer_stats()> stats_;
  std::optional<penstock::transfer_stats> fed_before_;
  std::optional<penstock::verdict> said_;
  std::optional<penstock::transfer_stats> during_;
  clock::time_point last_{};
  std::size_t drawn_ = 0;  // the step at the last drawing
  bool shown_;
  penstock::trace_recorder* recorder_ = nullptr;
};

}  // namespace mlp
