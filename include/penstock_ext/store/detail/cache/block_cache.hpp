// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cached_store_options.hpp>
#include <penstock_ext/store/detail/cache/block_piece.hpp>
#include <penstock_ext/store/detail/cache/disk/block_disk.hpp>
#include <penstock_ext/store/detail/cache/disk/block_file.hpp>
#include <penstock_ext/store/detail/cache/known_objects.hpp>
#include <penstock_ext/store/detail/cache/memory_tier.hpp>
#include <penstock_ext/store/detail/cache/read_blocks.hpp>
#include <penstock_ext/store/detail/cache/uses/block_numbers.hpp>
#include <penstock_ext/store/detail/cache/uses/known_uses.hpp>
#include <penstock_ext/store/detail/cache/uses/next_uses.hpp>
#include <penstock_ext/store/support/store_ref.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a `cached_store` does. From any thread.
template <byte_store Store>
class block_cache {
 public:
  /// Over `store`. Throws `file_unreadable` for the folder.
  template <class From>
  block_cache(From&& store, const cached_store_options& options)
      : store_(std::forward<From>(store)),
        options_(options),
        disk_(options),
        objects_(options.store_name),
        memory_(options.memory_bytes),
        uses_(memory_, disk_) {}
  block_cache(const block_cache&) = delete;
  block_cache& operator=(const block_cache&) = delete;

  /// The object `name`, whose size and version are asked for once. Throws what the store throws.
  [[nodiscard]] const known_object& object(std::string_view name) {
    return objects_.find(name, [&](std::string_view asked) -> object_state {
      if constexpr (versioned_store<Store>) {
        return store_.state_of(asked);
      } else {
        return {store_.size_of(asked), {}};
      }
    });
  }

  /// As `cached_store::read_many`.
  void read(std::span<const byte_range> ranges) {
    const auto find = [this](std::string_view name) -> decltype(auto) { return object(name); };
    each_group(ranges, options_, find, [this](std::span<block_piece> some) { read_pieces(some); });
  }

  /// As `cached_store::lend`.
  [[nodiscard]] std::optional<lent_bytes> lend(const upcoming_range& range) {
    const auto piece = only_piece(range, objects_, options_);
    const std::lock_guard lock{mutex_};
    if (!piece || !memory_.holds(piece->number, piece->key)) return std::nullopt;
    if (range.length < piece->id.length() / most_lent) return std::nullopt;
    uses_.use(piece->number);
    ++stats_.from_memory;
    const std::uint64_t next_use = uses_.of(piece->number);
    disk_.use(piece->number, piece->id, next_use);
    const shared_block block = memory_.find(piece->number, piece->key, next_use);
    const auto size = static_cast<std::size_t>(range.length);
    return lent_bytes{block->all().subspan(piece->skipped, size), block};
  }
  /// As `cached_store::bring_near`, for a range that lies in one block.
  [[nodiscard]] bool bring_near(const upcoming_range& range) {
    const auto piece = only_piece(range, objects_, options_);
    if (!piece) return false;
    std::unique_lock lock{mutex_};
    const std::uint64_t next_use = uses_.of(piece->number);
    if (memory_.find(piece->number, piece->key, next_use)) return true;
    if (!disk_.use(piece->number, piece->id, next_use)) return false;
    // As the read will ask, after this use.
    const bool is_alone = !memory_.would_keep(piece->id.length(), uses_.after(piece->number));
    lock.unlock();
    return is_alone ? disk_.bring_near(piece->number, piece->id, piece->skipped, range.length)
                    : disk_.bring_near(piece->number, piece->id, 0, piece->id.length());
  }

  /// As `cached_store::will_use`.
  void will_use(std::span<const upcoming_range> ranges) {
    const auto size_of = [&](std::string_view name) { return std::optional{object(name).size}; };
    next_uses uses;
    uses.tell(block_numbers(ranges, options_, objects_, size_of));
    const std::lock_guard lock{mutex_};
    uses_.tell(std::move(uses));
  }
  /// As `cached_store::foresee`.
  void foresee(const void* who, std::span<const upcoming_range> ranges) {
    const auto nobody = [](std::string_view) { return std::nullopt; };
    const auto blocks = block_numbers(ranges, options_, objects_, nobody);
    const std::lock_guard lock{mutex_};
    uses_.append(who, blocks);
  }
  /// As `cached_store::forget`.
  void forget(const void* who) {
    const std::lock_guard lock{mutex_};
    uses_.forget(who);
  }
  [[nodiscard]] const cached_store_options& options() const noexcept { return options_; }
  /// As `cached_store::stats`.
  [[nodiscard]] cached_store_stats stats() {
    const std::lock_guard lock{mutex_};
    cached_store_stats now = stats_;
    now.memory_bytes = memory_.order().bytes();
    now.known_uses = uses_.size();
    disk_.tell(now);
    return now;
  }

 private:
  // A block is kept for a part of it that is no smaller: else a copy costs less than its memory.
  static constexpr std::uint64_t most_lent = 64;

  // All claims are read and published before this thread waits for those of others: so no two
  // threads wait for each other.
  void read_pieces(std::span<block_piece> pieces) {
    std::vector<block_claim> mine;
    mine.reserve(pieces.size());
    while (!claim(pieces, mine)) {
      read_claims(mine);
      mine.clear();
      const std::uint64_t found = read_alone(disk_, pieces);
      std::unique_lock lock{mutex_};
      stats_.from_disk += found;
      for (block_piece& one : pieces) {
        if (one.bytes || is_read_alone(one) || !one.awaited) continue;
        landed_.wait(lock, [&] { return one.awaited->bytes || one.awaited->has_failed; });
        // Where another thread has failed, this one tries itself, and gets the error. It waits for
        // no third one: else the last of many would wait for as many reads that fail.
        one.bytes = one.awaited->bytes;
        one.waits = one.bytes != nullptr;
      }
    }
    copy_out(pieces);
  }

  // Whether the bytes of all pieces are there; else somebody reads them: this thread what is in
  // `mine` then, or another one.
  bool claim(std::span<block_piece> pieces, std::vector<block_claim>& mine) {
    try {
      const std::lock_guard lock{mutex_};
      bool are_there = true;
      for (block_piece& one : pieces) are_there = find(one, mine) && are_there;
      return are_there;
    } catch (...) {
      land(mine);
      throw;
    }
  }

  bool find(block_piece& one, std::vector<block_claim>& mine) {
    if (one.bytes || is_read_alone(one)) return true;
    const bool counts = !std::exchange(one.is_counted, true);
    if (counts) uses_.use(one.number);
    const std::uint64_t next_use = uses_.of(one.number);
    const bool is_on_disk = disk_.use(one.number, one.id, next_use);
    one.bytes = memory_.find(one.number, one.key, next_use);
    if (one.bytes) {
      stats_.from_memory += counts ? 1U : 0U;
      return true;
    }
    auto flying = flights_.find(one.key);
    if (flying != flights_.end() && flying->second->process != ::getpid()) {
      flights_.erase(flying);  // of a thread that this process, made by fork(), does not have
      flying = flights_.end();
    }
    if (flying != flights_.end() && (one.waits || flying->second->bytes)) {
      one.awaited = flying->second;
      one.bytes = one.awaited->bytes;
      stats_.from_others += counts ? 1U : 0U;
      return one.bytes != nullptr;
    }
    if (is_on_disk && !one.tried && !memory_.would_keep(one.id.length(), next_use)) {
      one.is_alone = true;  // the rest of the block is of no use
      return false;
    }
    one.awaited = std::make_shared<block_flight>();
    flights_.emplace(one.key, one.awaited);  // or those of others stays, who may wait for it
    mine.push_back({&one, one.awaited});     // there is room
    return false;
  }

  // Ends the flights of `mine`. Those that wait for what this thread has not read try themselves.
  void land(std::span<const block_claim> mine) noexcept {
    const std::lock_guard lock{mutex_};
    for (const block_claim& one : mine) {
      if (!one.flight->bytes) one.flight->has_failed = true;
      const auto flying = flights_.find(one.of->key);
      if (flying != flights_.end() && flying->second == one.flight) flights_.erase(flying);
    }
    landed_.notify_all();
  }

  void read_claims(std::span<block_claim> mine) {
    try {
      read_blocks(store_, disk_, mine);
      publish(mine);
      write(mine);
    } catch (...) {
      land(mine);
      throw;
    }
    land(mine);
  }

  // Flights go on until the blocks are written: a reader that comes meanwhile gets their bytes, for
  // which there may be no room in memory.
  void publish(std::span<block_claim> mine) {
    const std::lock_guard lock{mutex_};
    for (block_claim& one : mine) {
      const block_piece& of = *one.of;
      one.flight->bytes = one.bytes;
      ++(one.is_from_disk ? stats_.from_disk : stats_.from_store);
      one.next_use = uses_.of(of.number);
      memory_.keep(of.number, of.key, one.bytes, one.next_use);
    }
    landed_.notify_all();
  }

  // After the others have got their bytes: it takes time.
  void write(std::span<const block_claim> mine) {
    if (!write_blocks(disk_, mine)) return;
    auto listed = disk_.list();
    std::unique_lock lock{mutex_};
    const auto gone =
        disk_.look(std::move(listed), [&](std::uint64_t number) { return uses_.of(number); });
    lock.unlock();
    disk_.remove(gone);
  }

  const Store store_;
  const cached_store_options options_;
  block_disk disk_;
  known_objects objects_;
  std::mutex mutex_;  // guards what follows; held while nothing is read or written
  std::condition_variable landed_;
  std::map<block_key, std::shared_ptr<block_flight>> flights_;
  memory_tier memory_;
  known_uses uses_;
  cached_store_stats stats_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
