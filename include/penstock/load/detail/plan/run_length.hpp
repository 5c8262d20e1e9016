// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <penstock/load/detail/plan/run_share.hpp>
#include <penstock/load/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How many samples a worker claims at a time, batch by batch. As few as share a batch evenly among
/// the workers, where reading a sample takes long; more, where a claim and waking another worker
/// would cost more than reading does. The bytes of a sample say little about that: a label from a
/// database takes longer than an image that lies in memory. So the opener's run of every eighth
/// batch is timed, and runs are short until the first one has been.
///
/// No batch depends on it: only which worker reads what.
class run_length {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  /// For samples of so many bytes.
  run_length(const loader_options& options, std::size_t sample_bytes) noexcept
      : batch_size_(options.batch_size),
        least_(least_run_size(options, sample_bytes)),
        most_(run_size(options, sample_bytes)) {}

  /// The fewest samples of a run.
  [[nodiscard]] std::size_t least() const noexcept { return least_; }
  /// The most.
  [[nodiscard]] std::size_t most() const noexcept { return most_; }

  /// The most runs that a batch is cut into.
  [[nodiscard]] std::uint32_t runs() const noexcept { return runs_of(least_); }
  /// The number of the first run of a batch that is cut into runs of `samples` samples. The last
  /// run of every batch has the number `runs() - 1`.
  [[nodiscard]] std::uint32_t first_run(std::size_t samples) const noexcept {
    return runs() - runs_of(samples);
  }

  /// How many samples a run of the batch has that is opened now.
  [[nodiscard]] std::size_t samples() const noexcept {
    const std::uint64_t each = sample_time_.load(std::memory_order_relaxed);
    if (each == unknown) return least_;
    return std::clamp(static_cast<std::size_t>(worth_a_claim / each), least_, most_);
  }

  /// Whether the opener's run of the batch with this number is to be timed: a look at the clock for
  /// each batch would cost a hundredth of the smallest ones.
  [[nodiscard]] bool is_timed(std::uint64_t batch) const noexcept {
    constexpr std::uint64_t every = 8;
    return least_ != most_ &&
           (batch % every == 0 || sample_time_.load(std::memory_order_relaxed) == unknown);
  }

  /// So many samples were read in that time. From any thread.
  void note(std::size_t samples, nanoseconds time) noexcept {
    // A reader that lost its core for a while is no slow read: the time grows step by step.
    constexpr std::uint64_t most_growth = 16;
    const auto each = static_cast<std::uint64_t>(std::max<std::int64_t>(1, time.count())) /
                      std::max<std::uint64_t>(1, samples);
    const std::uint64_t before = sample_time_.load(std::memory_order_relaxed);
    const std::uint64_t limit = before == unknown ? each : before * most_growth;
    sample_time_.store(std::clamp<std::uint64_t>(each, 1, std::max<std::uint64_t>(1, limit)),
                       std::memory_order_relaxed);
  }

 private:
  // What waking a worker costs, measured on a virtual machine.
  static constexpr std::uint64_t worth_a_claim = 10'000;
  static constexpr std::uint64_t unknown = 0;

  [[nodiscard]] std::uint32_t runs_of(std::size_t run) const noexcept {
    return static_cast<std::uint32_t>((batch_size_ + run - 1) / run);
  }

  std::size_t batch_size_;
  std::size_t least_;
  std::size_t most_;
  // Nanoseconds; 0 until a run has been timed. Relaxed: it says nothing about other memory, and
  // where two readers write at once either value will do.
  std::atomic<std::uint64_t> sample_time_{unknown};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
