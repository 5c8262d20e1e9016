// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/cache/cached_store_options.hpp>
#include <penstock_ext/store/cache/detail/disk/block_file.hpp>
#include <penstock_ext/store/cache/detail/disk/block_folder.hpp>
#include <penstock_ext/store/cache/detail/eviction_order.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Which blocks are on the disk, as far as this process knows, and which of them go when room is
/// needed. It touches no file. One thread at a time.
class disk_tier {
 public:
  /// Keeps up to `most` bytes of files.
  explicit disk_tier(std::uint64_t most) : most_(most) {}

  /// Whether file `number` of so many bytes is to be written; then it counts as being there. What
  /// has to go for it is appended to `gone`.
  [[nodiscard]] bool admit(std::uint64_t number, std::uint64_t bytes, std::uint64_t next_use,
                           std::vector<std::uint64_t>& gone) {
    if (bytes > most_) return false;
    if (writes_to_skip_ > 0) {
      --writes_to_skip_;
      return false;
    }
    is_there(number, bytes, next_use, gone);
    return order_.holds(number);
  }

  /// File `number` was written, or found. What has to go for it is appended to `gone`.
  void is_there(std::uint64_t number, std::uint64_t bytes, std::uint64_t next_use,
                std::vector<std::uint64_t>& gone) {
    order_.hold(number, bytes, next_use);
    evict(gone);
  }
  /// File `number` is used next at `next_use`, if it is there. Whether it is.
  bool use(std::uint64_t number, std::uint64_t bytes, std::uint64_t next_use) {
    if (!order_.holds(number)) return false;
    order_.hold(number, bytes, next_use);
    return true;
  }
  /// A file of so many bytes was written: whether it is time to look what others have.
  [[nodiscard]] bool wrote(std::uint64_t bytes) {
    skips_ = first_skips;  // the disk is well again
    written_since_look_ += bytes;
    if (written_since_look_ <= most_ / 16) return false;
    written_since_look_ = 0;
    return true;
  }
  /// A file could not be written. The next ones are not tried, twice as many each time: a disk that
  /// is full is so for a while.
  void failed(std::uint64_t number) {
    order_.drop(number);
    writes_to_skip_ = skips_;
    skips_ = std::min<std::uint64_t>(2 * skips_, 1024);
  }
  /// What was found in the folder takes the place of what was known; what has to go is appended to
  /// `gone`. `next_use(number)` says when a block is used next.
  template <class NextUse>
  void look(std::vector<listed_block> found, const NextUse& next_use,
            std::vector<std::uint64_t>& gone) {
    std::sort(found.begin(), found.end(),
              [](const listed_block& a, const listed_block& b) { return a.number < b.number; });
    std::vector<std::uint64_t> missing;
    order_.each([&](std::uint64_t number) {
      const auto at = std::lower_bound(
          found.begin(), found.end(), number,
          [](const listed_block& one, std::uint64_t value) { return one.number < value; });
      if (at == found.end() || at->number != number) missing.push_back(number);
    });
    for (const std::uint64_t number : missing) order_.drop(number);
    // What others wrote is older than what was used here, the last written the youngest.
    std::stable_sort(found.begin(), found.end(), [](const listed_block& a, const listed_block& b) {
      return a.changed > b.changed;
    });
    for (const listed_block& one : found) {
      if (!order_.holds(one.number)) {
        order_.hold_as_oldest(one.number, one.bytes, next_use(one.number));
      }
    }
    evict(gone);
  }

  /// What is there, in the order in which it goes.
  [[nodiscard]] eviction_order& order() noexcept { return order_; }

 private:
  static constexpr std::uint64_t first_skips = 8;

  void evict(std::vector<std::uint64_t>& gone) {
    while (order_.bytes() > most_) {
      gone.push_back(order_.first_to_go());
      order_.drop(gone.back());
    }
  }

  std::uint64_t most_;
  eviction_order order_;
  std::uint64_t written_since_look_ = 0;
  std::uint64_t writes_to_skip_ = 0;
  std::uint64_t skips_ = first_skips;
};

/// Guesses whether files lie in the system's memory, so that not each has to be opened for it:
/// where the last 32 that were looked at did, one of 16 is looked at. A wrong guess costs a read
/// that waits: for the disk, or where the file is gone, for the store below. From any thread.
class page_cache_guess {
 public:
  /// Whether the next file is to be looked at; else it is taken to lie there.
  [[nodiscard]] bool is_due() noexcept {
    return in_a_row_.load(std::memory_order_relaxed) < enough ||
           turn_.fetch_add(1, std::memory_order_relaxed) % one_of == 0;
  }
  /// Whether a file that was looked at lay there.
  void saw(bool is_there) noexcept {
    if (!is_there) {
      in_a_row_.store(0, std::memory_order_relaxed);
    } else if (in_a_row_.load(std::memory_order_relaxed) < enough) {
      in_a_row_.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::uint32_t enough = 32;
  static constexpr std::uint32_t one_of = 16;

  // Files that lay there one after the other, `enough` or a few more by threads at once. Relaxed,
  // as `turn_`: nothing but the next guess depends on them.
  std::atomic<std::uint32_t> in_a_row_{0};
  std::atomic<std::uint32_t> turn_{0};
};

/// Blocks on the disk, or none. What goes wrong there is counted, and fails nothing. From any
/// thread; its mutex is held while no file is touched, and may be taken under the cache's.
class block_disk {
 public:
  /// Blocks in the folder of the options. Throws `file_unreadable`.
  explicit block_disk(const cached_store_options& options) : tier_(options.disk_bytes) {
    if (options.folder.empty()) return;
    folder_.emplace(options.folder);
    folder_->remove_left_over();
    remove(look(list(), [](std::uint64_t) { return never; }));
  }

  /// Reads the part of block `id`, whose number is `number`, from byte `from` of it on to `out`, if
  /// it is there.
  [[nodiscard]] block_folder::found read(std::uint64_t number, const block_id& id,
                                         std::uint64_t from, std::span<std::byte> out) {
    using result = block_folder::found;
    if (!folder_) return result::nothing;
    int wrong = 0;
    const result found = folder_->read(number, id, from, out, wrong);
    if (found == result::whole || found == result::nothing) return found;
    const std::lock_guard lock{mutex_};
    if (found == result::damaged) {
      ++damaged_;
      tier_.order().drop(number);
    } else {
      ++failures_;
      problem_ = folder_->path() + ": " + std::system_category().message(wrong);
    }
    return found;
  }

  /// Has the system read that part of block `id`, which is there as far as is known. Whether it is.
  [[nodiscard]] bool warm(std::uint64_t number, const block_id& id, std::uint64_t from,
                          std::uint64_t bytes) noexcept {
    using nearness = block_folder::nearness;
    if (!folder_) return false;
    if (!guess_.is_due()) return true;
    const nearness seen = folder_->warm(number, id, from, bytes);
    guess_.saw(seen == nearness::in_memory);
    return seen != nearness::nothing;
  }

  /// Block `id` is used next at `next_use`, if it is there. Whether it is, as far as is known.
  bool use(std::uint64_t number, const block_id& id, std::uint64_t next_use) {
    const std::lock_guard lock{mutex_};
    return tier_.use(number, block_folder::file_bytes(id), next_use);
  }
  /// Block `id` was found there.
  void is_there(std::uint64_t number, const block_id& id, std::uint64_t next_use) {
    std::vector<std::uint64_t> gone;
    {
      const std::lock_guard lock{mutex_};
      tier_.is_there(number, block_folder::file_bytes(id), next_use, gone);
    }
    remove(gone);
  }
  /// Gives all blocks their next uses anew.
  template <class NextUse>
  void rearrange(const NextUse& next_use) {
    const std::lock_guard lock{mutex_};
    tier_.order().rearrange(next_use);
  }
  /// Gives one block its next use anew, if it is there.
  void renew(std::uint64_t number, std::uint64_t next_use) {
    const std::lock_guard lock{mutex_};
    tier_.order().renew(number, next_use);
  }

  /// Writes block `id`, if it is worth more than what would have to go. Whether it is time to
  /// `look`.
  [[nodiscard]] bool write(std::uint64_t number, const block_id& id,
                           std::span<const std::byte> bytes, std::uint64_t next_use) {
    if (!folder_) return false;
    const std::uint64_t file_bytes = block_folder::file_bytes(id);
    std::vector<std::uint64_t> gone;
    bool is_worth_it = false;
    {
      const std::lock_guard lock{mutex_};
      is_worth_it = tier_.admit(number, file_bytes, next_use, gone);
    }
    remove(gone);
    if (!is_worth_it) return false;
    const int wrong = folder_->write(number, id, bytes);
    const std::lock_guard lock{mutex_};
    if (wrong != 0) {
      ++failures_;
      problem_ = folder_->path() + ": " + std::system_category().message(wrong);
      tier_.failed(number);
      return false;
    }
    ++written_;
    return tier_.wrote(file_bytes);
  }

  /// What is in the folder now: other processes write to it too.
  [[nodiscard]] std::vector<listed_block> list() const { return folder_->list(); }
  /// Takes what was listed for what is there. Returns what has to go.
  template <class NextUse>
  [[nodiscard]] std::vector<std::uint64_t> look(std::vector<listed_block> listed,
                                                const NextUse& next_use) {
    std::vector<std::uint64_t> gone;
    const std::lock_guard lock{mutex_};
    tier_.look(std::move(listed), next_use, gone);
    return gone;
  }
  /// Removes blocks that have to go.
  void remove(const std::vector<std::uint64_t>& gone) const noexcept {
    for (const std::uint64_t number : gone) folder_->remove(number);
  }

  /// Puts what it has done into `stats`.
  void tell(cached_store_stats& stats) {
    const std::lock_guard lock{mutex_};
    stats.disk_bytes = tier_.order().bytes();
    stats.written = written_;
    stats.damaged = damaged_;
    stats.disk_failures = failures_;
    stats.disk_problem = problem_;
  }

 private:
  std::optional<block_folder> folder_;
  page_cache_guess guess_;
  std::mutex mutex_;  // guards what follows
  disk_tier tier_;
  std::uint64_t written_ = 0;
  std::uint64_t damaged_ = 0;
  std::uint64_t failures_ = 0;
  std::string problem_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
