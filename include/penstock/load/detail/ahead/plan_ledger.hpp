// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The bytes that a dataset was told of and that are not read yet, batch by batch, within a bound;
/// and the sleep of the thread that tells. Batches have the numbers of the `schedule`. From any
/// thread; no code of the user's runs under its lock.
class plan_ledger {
 public:
  /// At most `most` bytes at a time. Throws std::bad_alloc.
  explicit plan_ledger(std::uint64_t most) : most_(most) {}

  /// The bound.
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }
  /// The bytes that may be told now; none after `end`.
  [[nodiscard]] std::uint64_t room() const {
    const std::lock_guard lock{mutex_};
    return ends_ ? 0 : most_ - bytes_;
  }
  /// The bytes that are not read yet.
  [[nodiscard]] std::uint64_t bytes() const {
    const std::lock_guard lock{mutex_};
    return bytes_;
  }

  /// Teller: `bytes`, for which there is room, are about to be told of batch `number`, the last
  /// one so far or a later one. False, and nothing is noted, once that batch is opened.
  [[nodiscard]] bool note_told(std::uint64_t number, std::uint64_t bytes) {
    const std::lock_guard lock{mutex_};
    if (ends_ || number < opened_) return false;
    if (told_.empty() || told_.back().number != number) told_.push_back({number, 0});
    told_.back().bytes += bytes;
    bytes_ += bytes;
    return true;
  }
  /// Teller: another range begins with batch `number`; what was told of it and of later ones is
  /// void.
  void void_from(std::uint64_t number) {
    const std::lock_guard lock{mutex_};
    while (!told_.empty() && told_.back().number >= number) {
      bytes_ -= told_.back().bytes;
      told_.pop_back();
    }
  }

  /// Opener: batch `number` is opened, from now on it is read.
  void note_opened(std::uint64_t number) noexcept {
    {
      const std::lock_guard lock{mutex_};
      opened_ = number + 1;
      has_moved_ = true;
    }
    changed_.notify_all();
  }
  /// A worker: batch `number` is read.
  void note_read(std::uint64_t number) noexcept {
    {
      const std::lock_guard lock{mutex_};
      const auto found = std::lower_bound(
          told_.begin(), told_.end(), number,
          [](const told& one, std::uint64_t wanted) { return one.number < wanted; });
      if (found == told_.end() || found->number != number) return;
      bytes_ -= found->bytes;
      told_.erase(found);
      has_moved_ = true;
    }
    changed_.notify_all();
  }

  /// Teller: waits until something has moved since the last call; false after `end`. Between two
  /// calls it counts as telling.
  [[nodiscard]] bool wait() {
    std::unique_lock lock{mutex_};
    is_telling_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return ends_ || has_moved_; });
    has_moved_ = false;
    is_telling_ = !ends_;
    return is_telling_;
  }
  /// Nothing is told any more, permanently.
  void end() noexcept {
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    changed_.notify_all();
  }
  /// After `end`: waits for the teller, at most so long; whether it has ended.
  [[nodiscard]] bool wait_until_silent(std::chrono::milliseconds most) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, most, [this] { return !is_telling_; });
  }

 private:
  struct told {
    std::uint64_t number;
    std::uint64_t bytes;
  };

  const std::uint64_t most_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<told> told_;     // by number
  std::uint64_t bytes_ = 0;   // of `told_`, at most `most_`
  std::uint64_t opened_ = 0;  // batches below it are opened
  bool has_moved_ = false;
  bool is_telling_ = false;
  bool ends_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
