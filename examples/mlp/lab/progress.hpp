// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "train.hpp"

namespace mlp {

/// A bar on standard output, when that is a terminal; nothing otherwise. It is redrawn a hundred
/// times a run at most, so that it costs the loop nothing to speak of.
class progress_bar final : public observer {
 public:
  progress_bar(std::string_view label, std::size_t steps)
      : label_(label), steps_(steps), shown_(::isatty(STDOUT_FILENO) == 1) {}
  ~progress_bar() override {
    if (!shown_) return;
    std::fputs("\r\033[K", stdout);
    std::fflush(stdout);
  }

  /// The first step is about to come.
  void begin() override {
    if (shown_) draw();
  }
  /// One step more is under way.
  void advance() override {
    ++step_;
    if (shown_ && step_ >= next_) draw();
  }
  void limited_by(const std::string& what) override { limit_ = what; }
  /// Records the loop from now on.
  void record_to(penstock::trace_recorder& recorder) noexcept { recorder_ = &recorder; }
  [[nodiscard]] penstock::trace_recorder* trace() override { return recorder_; }
  /// What has limited the loop, if it was told.
  [[nodiscard]] const std::string& limit() const noexcept { return limit_; }

 private:
  void draw() {
    constexpr std::size_t width = 40;
    const std::size_t filled = width * step_ / steps_;
    const std::string bar = std::string(filled, '#') + std::string(width - filled, '.');
    std::printf("\r%-10s [%s] %3zu %%", label_.c_str(), bar.c_str(), 100 * step_ / steps_);
    std::fflush(stdout);
    next_ = step_ + steps_ / 100 + 1;
  }

  std::string label_;
  std::string limit_;
  std::size_t steps_;
  std::size_t step_ = 0;
  std::size_t next_ = 1;
  bool shown_;
  penstock::trace_recorder* recorder_ = nullptr;
};

}  // namespace mlp
