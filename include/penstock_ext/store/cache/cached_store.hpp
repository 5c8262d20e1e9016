// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cache/detail/block_disk.hpp>
#include <penstock_ext/store/cache/detail/memory_tier.hpp>
#include <penstock_ext/store/cache/detail/planned_uses.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How much a `cached_store` keeps, and where.
struct cached_store_options {
  /// What is read, kept and evicted as a whole: the bytes of an object from a multiple of this on.
  /// From 1 to 2^30. A read of less has the store below read all of its block.
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  /// How many bytes of blocks are kept in memory; 0: none. Each call that is under way holds up to
  /// 16 MiB besides, or a block if that is more, and each blob that is lent its block.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  /// The folder for blocks on the disk, which is made if it is not there; "": none. Processes of
  /// one host may share it, and it is of use to the next run.
  std::string folder = {};
  /// How many bytes the files in `folder` may have. Each process looks how many there are after it
  /// has written a sixteenth of this: with n of them there may be n sixteenths more for a while.
  std::uint64_t disk_bytes = std::uint64_t{16} << 30;
  /// Which store is below: blocks of other names in `folder` are others' blocks. "": what the
  /// store's `root()` says, a folder as it was given or a URL; a store without one is not told from
  /// others. Another name where objects of a store that is no `versioned_store` have changed and
  /// kept their sizes.
  std::string store_name = {};
};

/// What a `cached_store` has done so far, and holds now. A block counts each time that a range
/// needs it.
struct cached_store_stats {
  std::uint64_t from_memory = 0;   ///< blocks that were in memory
  std::uint64_t from_others = 0;   ///< blocks that another range or thread was reading
  std::uint64_t from_disk = 0;     ///< blocks that were on the disk
  std::uint64_t from_store = 0;    ///< blocks that the store below had to read
  std::uint64_t memory_bytes = 0;  ///< of blocks in memory, now
  std::uint64_t disk_bytes = 0;    ///< of files on the disk, now, as far as is known
  std::uint64_t planned_uses = 0;  ///< blocks' uses to come, told or foreseen, now
  std::uint64_t written = 0;       ///< blocks written to the disk
  std::uint64_t damaged = 0;       ///< files on the disk that were removed: damaged, or out of date
  std::uint64_t disk_failures = 0;  ///< blocks that could not be written or read
  std::string disk_problem = {};    ///< the reason of the last of those, in the system's words
};

namespace detail {

/// A block that a thread reads, for itself and for all that wait for it. Under the cache's mutex.
struct block_flight {
  shared_block bytes = nullptr;
  bool has_failed = false;
  const ::pid_t process = ::getpid();  ///< that of the thread
};

/// The part of a range that lies in one block.
struct block_piece {
  block_id id;
  block_key key;
  std::uint64_t number;      ///< of the block, as `block_number` has it
  std::size_t skipped;       ///< bytes of the block before the part
  std::span<std::byte> out;  ///< where the part goes
  bool is_counted = false;   ///< as a use of the block
  bool is_alone = false;     ///< its block is on the disk, and of no use in memory
  bool waits = true;         ///< for another thread that reads the block, unless one has failed
  /// What came of reading it from the disk by itself.
  std::optional<block_folder::found> tried = std::nullopt;
  shared_block bytes = nullptr;
  std::shared_ptr<block_flight> awaited = nullptr;
};

/// Whether the piece is where it goes, without its block.
[[nodiscard]] inline bool is_read_alone(const block_piece& one) noexcept {
  return one.tried == block_folder::found::whole;
}

/// Copies what `pieces` need of their blocks, which are there.
inline void copy_out(std::span<const block_piece> pieces) {
  for (const block_piece& one : pieces) {
    if (is_read_alone(one)) continue;
    std::memcpy(one.out.data(), one.bytes->all().data() + one.skipped, one.out.size());
  }
}

/// A block that this thread reads.
struct block_claim {
  const block_piece* of;
  std::shared_ptr<block_flight> flight;
  std::shared_ptr<block_bytes> bytes = nullptr;
  bool is_from_disk = false;
  bool may_be_written = true;  ///< to the disk: false where it may lie there already
  std::uint64_t next_use = 0;  ///< as known when it was published
};

/// An object of the store below a cache.
struct known_object {
  std::string name;
  std::uint64_t number;  ///< from 0, in the order in which they were asked for
  std::uint64_t size;    ///< in bytes
  std::string version;   ///< as its store has it; "" where that has none
  std::string store;     ///< the store's name and the version, of which its blocks are
};

/// The objects that were asked for so far, which stay where they are. From any thread.
class known_objects {
 public:
  /// Of the store that the cache was told to be `store_name`.
  explicit known_objects(std::string store_name) : store_name_(std::move(store_name)) {}

  /// The object `name`; it is as `state_of(name)` says, asked when it is new, under no lock.
  template <class StateOf>
  [[nodiscard]] const known_object& find(std::string_view name, const StateOf& state_of) {
    if (const known_object* const known = find_known(name)) return *known;
    object_state state = state_of(name);
    std::string store = store_name_;
    if (!state.version.empty()) store.append(1, '\0').append(state.version);
    const std::lock_guard lock{mutex_};
    // Where another thread was faster, its answer stays.
    known_object made{std::string{name}, objects_.size(), state.size, std::move(state.version),
                      std::move(store)};
    return objects_.try_emplace(std::string{name}, std::move(made)).first->second;
  }

  /// The object `name` if it was asked for, or null.
  [[nodiscard]] const known_object* find_known(std::string_view name) {
    const std::lock_guard lock{mutex_};
    const auto found = objects_.find(name);
    return found == objects_.end() ? nullptr : &found->second;
  }

 private:
  const std::string store_name_;
  std::mutex mutex_;
  std::unordered_map<std::string, known_object, name_hash, std::equal_to<>> objects_;
};

/// `options` for a cache over `store`, with a name for it where it has one.
template <class Store>
[[nodiscard]] cached_store_options with_name(cached_store_options options, const Store& store) {
  if constexpr (requires { options.store_name = store.root(); }) {
    if (options.store_name.empty()) options.store_name = store.root();
  }
  return options;
}

/// The part of `from` that begins at byte `at` of it, and goes nowhere yet.
/// All versions of an object share its blocks' numbers: a newer block takes an older one's place,
/// and what will be used is known by its number before the version is.
[[nodiscard]] inline block_piece piece_at(const known_object& from, std::uint64_t at,
                                          const cached_store_options& options) {
  const std::uint64_t block = at / options.block_bytes;
  const block_id id{from.store, from.name, from.size, options.block_bytes, block};
  return {.id = id,
          .key = {from.number, block},
          .number = block_number({options.store_name, id.object, 0, id.block_size, block}),
          .skipped = static_cast<std::size_t>(at % options.block_bytes),
          .out = {}};
}

/// Calls `read(pieces)` for the parts of all `ranges` that lie in one block each, so many at a time
/// that their blocks take 16 MiB, or are one. `object(name)` is a `known_object`. Throws
/// `file_truncated` for a range that reaches beyond the end of one.
template <class Object, class Read>
void each_group(std::span<const byte_range> ranges, const cached_store_options& options,
                const Object& object, const Read& read) {
  constexpr std::uint64_t most = std::uint64_t{16} << 20;
  std::vector<block_piece> pieces;
  std::uint64_t bytes = 0;
  for (const byte_range& range : ranges) {
    const known_object& from = object(range.object);
    require_inside(range, from.size, [&] { return from.name; });
    std::uint64_t at = range.offset;
    for (std::span<std::byte> left = range.out; !left.empty();) {
      block_piece one = piece_at(from, at, options);
      one.out = left.first(static_cast<std::size_t>(
          (std::min)(std::uint64_t{left.size()}, options.block_bytes - one.skipped)));
      left = left.subspan(one.out.size());
      at += one.out.size();
      const bool is_next = pieces.empty() || pieces.back().key != one.key;
      if (is_next && bytes > 0 && bytes + one.id.length() > most) {
        read(std::span{pieces});
        pieces.clear();
        bytes = 0;
      }
      pieces.push_back(one);
      bytes += is_next ? one.id.length() : 0;
    }
  }
  read(std::span{pieces});
}

/// `range` as a part of one block of an object that was asked for; nothing where it is more than
/// that, empty, or reaches beyond the end.
[[nodiscard]] inline std::optional<block_piece> only_piece(const upcoming_range& range,
                                                           known_objects& objects,
                                                           const cached_store_options& options) {
  const known_object* const from = objects.find_known(range.object);
  if (from == nullptr || range.length == 0 || range.offset >= from->size) return std::nullopt;
  const block_piece one = piece_at(*from, range.offset, options);
  if (range.length > one.id.length() - one.skipped) return std::nullopt;
  return one;
}

/// Reads the parts that are wanted by themselves from `disk`. How many were there. Two threads may
/// read one: that is no more than a copy of what the system has in memory.
inline std::uint64_t read_alone(block_disk& disk, std::span<block_piece> pieces) {
  std::uint64_t found = 0;
  for (block_piece& one : pieces) {
    if (!one.is_alone || one.tried) continue;
    one.tried = disk.read(one.number, one.id, one.skipped, one.out);
    found += is_read_alone(one) ? 1U : 0U;
  }
  return found;
}

/// Reads the blocks of `claims`: from `disk` those that are whole there, and from `store` the rest
/// at once. Throws what the store throws.
template <byte_store Store>
void read_blocks(const Store& store, block_disk& disk, std::span<block_claim> claims) {
  std::vector<byte_range> ranges;
  for (block_claim& one : claims) {
    const block_id& id = one.of->id;
    one.bytes = std::make_shared<block_bytes>(static_cast<std::size_t>(id.length()));
    const auto found =
        one.of->tried ? *one.of->tried : disk.read(one.of->number, id, 0, one.bytes->all());
    one.is_from_disk = found == block_folder::found::whole;
    one.may_be_written = found != block_folder::found::unreadable;
    if (one.is_from_disk) continue;
    ranges.push_back({id.object, id.number * id.block_size, one.bytes->all()});
  }
  if (!ranges.empty()) read_ranges(store, std::span<const byte_range>{ranges});
}

/// Writes what `claims` have read to `disk`, which some of it came from. Whether it is time to look
/// what lies there.
[[nodiscard]] inline bool write_blocks(block_disk& disk, std::span<const block_claim> claims) {
  bool looks = false;
  for (const block_claim& one : claims) {
    const block_piece& of = *one.of;
    if (one.is_from_disk) {
      disk.is_there(of.number, of.id, one.next_use);
    } else if (one.may_be_written) {
      looks = disk.write(of.number, of.id, one.bytes->all(), one.next_use) || looks;
    }
  }
  return looks;
}

/// The blocks that `ranges` need, in order, by their numbers; none lies beyond the end of an object
/// whose size is known, and there are `most` at most: the first ones. `ask(object)` is the size of
/// one that is not known, asked where the list would be long without it; where that is
/// `std::nullopt`, a range that long counts as its first block.
template <class Ask>
[[nodiscard]] std::vector<std::uint64_t> block_numbers(std::span<const upcoming_range> ranges,
                                                       const cached_store_options& options,
                                                       known_objects& objects, std::size_t most,
                                                       const Ask& ask) {
  constexpr std::uint64_t most_unasked = 4096;  // blocks
  const std::uint64_t block_size = options.block_bytes;
  const auto size_of = [&](const upcoming_range& range) {
    if (const known_object* const known = objects.find_known(range.object)) return known->size;
    if ((range.length - 1) / block_size < most_unasked) return std::uint64_t{0} - 1;
    const std::optional<std::uint64_t> size = ask(range.object);
    return size ? *size : range.offset + 1;
  };
  std::vector<std::uint64_t> numbers;
  for (const upcoming_range& range : ranges) {
    if (range.length == 0) continue;
    const std::uint64_t size = size_of(range);
    if (range.offset >= size) continue;
    const std::uint64_t count = (std::min)(range.length, size - range.offset);  // > 0
    const std::uint64_t last = (range.offset + (count - 1)) / block_size;
    for (std::uint64_t block = range.offset / block_size; block <= last; ++block) {
      if (numbers.size() == most) return numbers;
      numbers.push_back(block_number({options.store_name, range.object, 0, block_size, block}));
    }
  }
  return numbers;
}

/// What a `cached_store` does. From any thread.
template <byte_store Store>
class block_cache {
 public:
  /// Over `store`. Throws `file_unreadable` for the folder.
  template <class From>
  block_cache(From&& store, const cached_store_options& options)
      : store_(std::forward<From>(store)),
        options_(with_name(options, store_)),
        disk_(options.folder, options.disk_bytes),
        objects_(options_.store_name),
        memory_(options.memory_bytes),
        uses_(memory_, disk_) {}
  block_cache(block_cache&&) = delete;

  /// Whether this is a child made by fork(): threads that waited for a block are not here, and its
  /// condition variable would wait for them where it ends.
  [[nodiscard]] bool is_in_child() const noexcept { return process_.is_in_child(); }

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

  /// As `cached_store::try_borrow`.
  [[nodiscard]] std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) {
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
    return borrowed_bytes{block->all().subspan(piece->skipped, size), block};
  }
  /// As `cached_store::warm`, for a range that lies in one block.
  [[nodiscard]] bool warm(const upcoming_range& range) {
    const auto piece = only_piece(range, objects_, options_);
    if (!piece) return false;
    std::unique_lock lock{mutex_};
    const std::uint64_t next_use = uses_.of(piece->number);
    if (memory_.find(piece->number, piece->key, next_use)) return true;
    if (!disk_.use(piece->number, piece->id, next_use)) return false;
    // As the read will ask, after this use.
    const bool is_alone = !memory_.would_keep(piece->id.length(), uses_.after(piece->number));
    lock.unlock();
    return is_alone ? disk_.warm(piece->number, piece->id, piece->skipped, range.length)
                    : disk_.warm(piece->number, piece->id, 0, piece->id.length());
  }

  /// As `cached_store::will_use`.
  void will_use(std::span<const upcoming_range> ranges) {
    const auto size_of = [&](std::string_view name) { return std::optional{object(name).size}; };
    announced_uses uses{most_named};
    uses.append(this, block_numbers(ranges, options_, objects_, most_named, size_of));
    const std::lock_guard lock{mutex_};
    uses_.tell(std::move(uses));
  }
  /// As `cached_store::announce_reads`.
  void announce_reads(const void* who, std::span<const upcoming_range> ranges) {
    const auto nobody = [](std::string_view) { return std::nullopt; };
    const auto blocks = block_numbers(ranges, options_, objects_, most_announced, nobody);
    const std::lock_guard lock{mutex_};
    uses_.append(who, blocks);
  }
  /// As `cached_store::retract`.
  void retract(const void* who) {
    const std::lock_guard lock{mutex_};
    uses_.retract(who);
  }
  [[nodiscard]] const cached_store_options& options() const noexcept { return options_; }
  /// As `cached_store::stats`.
  [[nodiscard]] cached_store_stats stats() {
    const std::lock_guard lock{mutex_};
    cached_store_stats now = stats_;
    now.memory_bytes = memory_.order().bytes();
    now.planned_uses = uses_.size();
    disk_.tell(now);
    return now;
  }

 private:
  // A block is kept for a part of it that is no smaller: else a copy costs less than its memory.
  static constexpr std::uint64_t most_lent = 64;

  // All claims are read and published before this thread waits for those of others: so no two
  // threads wait for each other.
  void read_pieces(std::span<block_piece> pieces) {
    while (!claim_and_read(pieces)) {
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

  // Whether the bytes of all pieces are there; else somebody reads them: this thread has read what
  // no other one does. Flights go on until the blocks are written: a reader that comes meanwhile
  // gets their bytes, for which there may be no room in memory.
  bool claim_and_read(std::span<block_piece> pieces) {
    std::vector<block_claim> mine;
    mine.reserve(pieces.size());
    const struct landing {
      block_cache& of;
      const std::vector<block_claim>& claims;
      ~landing() { of.land(claims); }
    } at_end{*this, mine};
    {
      const std::lock_guard lock{mutex_};
      bool are_there = true;
      for (block_piece& one : pieces) are_there = find(one, mine) && are_there;
      if (are_there) return true;
    }
    read_blocks(store_, disk_, mine);
    publish(mine);
    write(mine);
    return false;
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
    if (mine.empty()) return;
    const std::lock_guard lock{mutex_};
    for (const block_claim& one : mine) {
      if (!one.flight->bytes) one.flight->has_failed = true;
      const auto flying = flights_.find(one.of->key);
      if (flying != flights_.end() && flying->second == one.flight) flights_.erase(flying);
    }
    landed_.notify_all();
  }

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

  static constexpr std::size_t most_named = std::size_t{1} << 24;      // blocks
  static constexpr std::size_t most_announced = std::size_t{1} << 20;  // likewise

  const fork_guard process_{true};
  const Store store_;
  const cached_store_options options_;
  block_disk disk_;
  known_objects objects_;
  std::mutex mutex_;  // guards what follows; held while nothing is read or written
  std::condition_variable landed_;
  std::map<block_key, std::shared_ptr<block_flight>> flights_;
  memory_tier memory_;
  planned_uses uses_;
  cached_store_stats stats_;
};

}  // namespace detail

/// A `batching_store` over any store, which keeps blocks of objects in memory and on a local disk,
/// bounded in bytes:
///
///     cached_store near_by{bucket, {.folder = "/nvme/cache", .disk_bytes = 1 << 40}};
///
/// A loader with `ahead.bytes` tells it what comes, see `announce_reads`; else `will_use` may.
///
/// An lvalue store is referred to and must outlive it, an rvalue is moved in. A block is looked for
/// in memory, on the disk, and read from the store below; several threads that need one read it
/// once, and blocks that one call needs are read together, 16 MiB at a time. What goes when room is
/// needed is what is used last of all, or never again as far as that is known (Belady 1966), and of
/// that what was used longest ago.
///
/// Of a block on the disk that memory has no place for, only the part that is wanted is read. Files
/// there carry their block's name, length and sums, and one that is damaged is removed and read
/// anew. A disk that is full, or goes away, makes it slower and no read fail: `stats()` says why.
/// Movable, not copyable. Reading is thread-safe; no lock is held while anything is read or
/// written. A child made by fork() while no other thread waits in it or holds its lock reads anew
/// what others were reading then.
template <byte_store Store>
class cached_store {
 public:
  /// Over `store`. Throws `option_error` for options that mean nothing, and `file_unreadable` for a
  /// folder that can be neither made nor read.
  template <class From>
    requires(!std::same_as<std::remove_cvref_t<From>, cached_store> &&
             std::is_constructible_v<Store, From>)
  explicit cached_store(From&& store,  // NOLINT: hides no copy, see the condition
                        const cached_store_options& options = {})
      : cache_(new detail::block_cache<Store>(std::forward<From>(store), checked(options))) {}

  /// How many bytes `object` has: asked of the store below once, and kept. Throws what that throws.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return cache_->object(object).size;
  }

  /// That and the version, where the store below has versions: see `versioned_store`.
  [[nodiscard]] object_state state_of(std::string_view object) const
    requires versioned_store<Store>
  {
    const detail::known_object& known = cache_->object(object);
    return {known.size, known.version};
  }

  /// Reads a range. Throws as `read_many`.
  void read(const byte_range& range) const { cache_->read({&range, 1}); }

  /// Reads all of `ranges`. Throws what the store below throws, and `file_truncated` for a range
  /// that reaches beyond the end of its object.
  void read_many(std::span<const byte_range> ranges) const { cache_->read(ranges); }

  /// Lends a range that lies in one block, where that is in memory, and is at least a 64th of it:
  /// see `borrowable_store`. The block stays until the last copy of the owner is gone, beside what
  /// `memory_bytes` allows.
  [[nodiscard]] std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) const {
    return cache_->try_borrow(range);
  }
  /// Whether `range`, which lies in one block of an object that was asked for, is in memory or on
  /// the disk as far as is known: see `warmable_store`. Of a block on the disk the system is asked
  /// to read what a read of the range needs, if it seems not to have that in memory.
  [[nodiscard]] bool warm(const upcoming_range& range) const { return cache_->warm(range); }

  /// Says which ranges are read from now on, in which order, in place of what was said before: an
  /// order is known before it is used. What is not named goes first, and what comes after 2^24
  /// blocks counts as not named. A wrong order costs hits and nothing else. A range that reaches
  /// beyond the end of its object ends there. Takes 80 bytes for a block of a range. While such
  /// ranges are to come, they go before what was foreseen; an empty order takes all back, and so do
  /// 2^17 uses of other blocks, one after the other. For a range of more than 4096 blocks the
  /// object's size is asked for, and it throws what the store below throws. From any thread, at
  /// best between two epochs.
  void will_use(std::span<const upcoming_range> ranges) const { cache_->will_use(ranges); }

  /// As `will_use`, for those that read through it and tell on what they will read: a loader with
  /// `ahead.bytes` does, over `stored_blobs`. See `planned_store`. Not noted while ranges are to
  /// come that `will_use` has named, nor beyond 2^20 uses of blocks, of 80 bytes each. A use that
  /// 2^17 later ones have overtaken counts as not coming. Where the size of an object is not known
  /// yet, a range of more than 4096 blocks counts as its first one: nothing is asked for.
  void announce_reads(const void* who, std::span<const upcoming_range> ranges) const {
    cache_->announce_reads(who, ranges);
  }
  /// Takes back what `who` foresaw.
  void retract(const void* who) const { cache_->retract(who); }
  /// How many bytes it is of use to announce: 2^19 blocks.
  [[nodiscard]] std::uint64_t plan_capacity() const noexcept {
    return cache_->options().block_bytes << 19U;
  }

  /// What was done so far, and what is held now. From any thread.
  [[nodiscard]] cached_store_stats stats() const { return cache_->stats(); }

 private:
  static const cached_store_options& checked(const cached_store_options& options) {
    constexpr std::uint64_t most = std::uint64_t{1} << 30;
    if (options.block_bytes < 1 || options.block_bytes > most) {
      detail::refuse_option("block_bytes", {options.block_bytes, " is not from 1 to ", most});
    }
    return options;
  }

  std::unique_ptr<detail::block_cache<Store>, detail::delete_unless_forked> cache_;
};

/// Over a store that is referred to where it is an lvalue, and else moved in.
template <class Store>
cached_store(Store&&, const cached_store_options& = {}) -> cached_store<detail::kept_store<Store>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
