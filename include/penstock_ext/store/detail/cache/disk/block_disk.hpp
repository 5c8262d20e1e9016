// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock_ext/store/cached_store_options.hpp>
#include <penstock_ext/store/detail/cache/disk/block_file.hpp>
#include <penstock_ext/store/detail/cache/disk/block_folder.hpp>
#include <penstock_ext/store/detail/cache/disk/disk_tier.hpp>
#include <penstock_ext/store/detail/cache/disk/page_cache_guess.hpp>
#include <penstock_ext/store/detail/cache/uses/next_uses.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Blocks on the disk, or none. What goes wrong there is counted, and fails nothing. From any
/// thread; its mutex is held while no file is touched, and may be taken under the cache's.
class block_disk {
 public:
  /// Blocks in the folder of the options. Throws `file_unreadable`.
  explicit block_disk(const cached_store_options& options) : tier_(options.disk_bytes) {
    if (options.folder.empty()) return;
    folder_.emplace(options.folder);
    folder_->remove_left_over();
    remove(look(list(), [](std::uint64_t) { return next_uses::never; }));
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
  [[nodiscard]] bool bring_near(std::uint64_t number, const block_id& id, std::uint64_t from,
                                std::uint64_t bytes) noexcept {
    using nearness = block_folder::nearness;
    if (!folder_) return false;
    if (!guess_.is_due()) return true;
    const nearness seen = folder_->bring_near(number, id, from, bytes);
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
