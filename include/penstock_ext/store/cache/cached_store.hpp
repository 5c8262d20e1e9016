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
#include <penstock/threads/support/exit_handler.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cache/detail/block_disk.hpp>
#include <penstock_ext/store/cache/detail/memory_tier.hpp>
#include <penstock_ext/store/cache/detail/planned_uses.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of a `cached_store`.
struct cached_store_options {
  /// Block size in bytes, from 1 to 2^30. Blocks start at multiples of this size in an object, and
  /// are fetched, cached and evicted as a whole. A read of a shorter range also fetches the whole
  /// block.
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  /// Maximum total size in bytes of blocks in memory. 0 disables the memory cache. In addition,
  /// each call in flight holds up to 16 MiB or one larger block, and each lent range holds its
  /// block.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  /// Folder for blocks on disk, created if missing. "" disables the disk cache. Several processes
  /// on a host may share the folder, and later runs reuse its blocks.
  std::string folder = {};
  /// Maximum total size in bytes of the files in `folder`. A process checks the total whenever it
  /// has written a sixteenth of this size. With n processes, the total may temporarily exceed the
  /// maximum by n sixteenths.
  std::uint64_t disk_bytes = std::uint64_t{16} << 30;
  /// Name of the underlying store. Blocks in `folder` with a different store name are ignored. If
  /// empty, the cache uses the store's `root()`, such as a folder path or a URL. Stores without
  /// `root()` cannot be distinguished from each other. If the store is not a `versioned_store` and
  /// objects have changed without changing size, choose a new name.
  std::string store_name = {};
};

/// Statistics of a `cached_store`. A block is counted each time a range needs it.
struct cached_store_stats {
  std::uint64_t from_memory = 0;  ///< Number of blocks found in memory.
  /// Number of blocks that were being read for another range or thread.
  std::uint64_t from_others = 0;
  std::uint64_t from_disk = 0;      ///< Number of blocks found on disk.
  std::uint64_t from_store = 0;     ///< Number of blocks read from the underlying store.
  std::uint64_t memory_bytes = 0;   ///< Current size of the blocks in memory in bytes.
  std::uint64_t disk_bytes = 0;     ///< Current known size of the files on disk in bytes.
  std::uint64_t planned_uses = 0;   ///< Current number of planned or announced block uses.
  std::uint64_t written = 0;        ///< Number of blocks written to disk.
  std::uint64_t damaged = 0;        ///< Number of files removed from disk because they were damaged
                                    ///< or outdated.
  std::uint64_t disk_failures = 0;  ///< Number of failed disk writes and reads of blocks.
  std::string disk_problem = {};    ///< System error message of the last disk failure.
};

namespace detail {

/// A block read in progress on one thread. Other threads may wait for the result. Guarded by the
/// cache mutex.
struct block_flight {
  shared_block bytes = nullptr;
  bool has_failed = false;
  const ::pid_t process = ::getpid();  ///< process of the reading thread
};

/// The part of a range that lies in a single block.
struct block_piece {
  block_id id;
  block_key key;
  std::uint64_t number;      ///< block number, computed by `block_number`
  std::size_t skipped;       ///< offset of the part in the block
  std::span<std::byte> out;  ///< destination of the part
  bool is_counted = false;   ///< true if counted as a use of the block
  bool is_alone = false;     ///< true if the block is on disk and not worth caching in memory
  bool waits = true;         ///< true if the piece may wait for another thread
  /// Result of an attempt to read only this part from disk.
  std::optional<block_folder::found> tried = std::nullopt;
  shared_block bytes = nullptr;
  std::shared_ptr<block_flight> awaited = nullptr;
};

/// Returns true if the part was read directly to its destination without reading the whole block.
[[nodiscard]] inline bool is_read_alone(const block_piece& one) noexcept {
  return one.tried == block_folder::found::whole;
}

/// Copies `pieces` from their blocks in memory to their destinations.
inline void copy_out(std::span<const block_piece> pieces) {
  for (const block_piece& one : pieces) {
    if (is_read_alone(one)) continue;
    std::memcpy(one.out.data(), one.bytes->all().data() + one.skipped, one.out.size());
  }
}

/// A block that the current thread reads.
struct block_claim {
  const block_piece* of;
  std::shared_ptr<block_flight> flight;
  std::shared_ptr<block_bytes> bytes = nullptr;
  bool is_from_disk = false;
  /// True if the block may be written to disk; false if its file may exist.
  bool may_be_written = true;
  std::uint64_t next_use = 0;  ///< next use, as known when the block was published
};

/// An object in the underlying store.
struct known_object {
  std::string name;
  std::uint64_t number;  ///< index in the order of first requests
  std::uint64_t size;
  std::string version;  ///< version reported by the store, or "" if unknown
  std::string store;    ///< store name and version, which identify the owner of the blocks
};

/// The objects requested so far, at stable addresses. Thread-safe.
class known_objects {
 public:
  /// Creates an empty table for the store named `store_name`.
  explicit known_objects(std::string store_name) : store_name_(std::move(store_name)) {}

  /// Returns the object `name`. For a new object, calls `state_of(name)` without holding a lock to
  /// obtain the size and version.
  template <class StateOf>
  [[nodiscard]] const known_object& find(std::string_view name, const StateOf& state_of) {
    if (const known_object* const known = find_known(name)) return *known;
    object_state state = state_of(name);
    std::string store = store_name_;
    if (!state.version.empty()) store.append(1, '\0').append(state.version);
    const std::lock_guard lock{mutex_};
    // If another thread inserted the object first, its entry is used.
    known_object made{std::string{name}, objects_.size(), state.size, std::move(state.version),
                      std::move(store)};
    return objects_.try_emplace(std::string{name}, std::move(made)).first->second;
  }

  /// Returns the object `name`, or null if it was never requested.
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

/// Returns `options` for a cache of `store`. Sets an empty `store_name` to the store's `root()`.
template <class Store>
[[nodiscard]] cached_store_options with_name(cached_store_options options, const Store& store) {
  if constexpr (requires { options.store_name = store.root(); }) {
    if (options.store_name.empty()) options.store_name = store.root();
  }
  return options;
}

/// Returns the part of `from` that begins at byte `at`, without a destination.
///
/// The block number does not depend on the object version. Therefore a newer block replaces an
/// older block, and uses can be planned before the version is known.
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

/// Splits `ranges` at block boundaries and calls `read(pieces)` for groups of pieces. The blocks of
/// a group have up to 16 MiB in total, and a larger block forms a group of its own. `object(name)`
/// returns a `known_object`. Throws `file_truncated` if a range extends beyond the end of its
/// object.
template <class Object, class Read>
void each_group(std::span<const byte_range> ranges, const cached_store_options& options,
                const Object& object, const Read& read) {
  constexpr std::uint64_t max = std::uint64_t{16} << 20;
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
      if (is_next && bytes > 0 && bytes + one.id.length() > max) {
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

/// Returns `range` as a piece of a single block. Returns nothing if the range spans several blocks,
/// is empty, extends beyond the end of its object, or if the object was never requested.
[[nodiscard]] inline std::optional<block_piece> only_piece(const upcoming_range& range,
                                                           known_objects& objects,
                                                           const cached_store_options& options) {
  const known_object* const from = objects.find_known(range.object);
  if (from == nullptr || range.length == 0 || range.offset >= from->size) return std::nullopt;
  const block_piece one = piece_at(*from, range.offset, options);
  if (range.length > one.id.length() - one.skipped) return std::nullopt;
  return one;
}

/// Reads the pieces that do not need their whole block from `disk`, and returns the number of
/// pieces found. Two threads may read the same piece, which only copies from the page cache twice.
inline std::uint64_t read_alone(block_disk& disk, std::span<block_piece> pieces) {
  std::uint64_t found = 0;
  for (block_piece& one : pieces) {
    if (!one.is_alone || one.tried) continue;
    one.tried = disk.read(one.number, one.id, one.skipped, one.out);
    found += is_read_alone(one) ? 1U : 0U;
  }
  return found;
}

/// Reads the blocks of `claims`: intact blocks from `disk`, and all others from `store` in one
/// call. Propagates errors from the store.
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

/// Writes the blocks of `claims` to `disk`, except blocks that were read from disk. Returns true if
/// the caller should list the folder next.
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

/// Returns the numbers of the first `max` blocks that `ranges` need, in order. Omits blocks beyond
/// the end of an object with known size. For a range of more than 4096 blocks in an object of
/// unknown size, calls `ask(object)` to obtain the size. If `ask` returns `std::nullopt`, only the
/// first block of such a range counts.
template <class Ask>
[[nodiscard]] std::vector<std::uint64_t> block_numbers(std::span<const upcoming_range> ranges,
                                                       const cached_store_options& options,
                                                       known_objects& objects, std::size_t max,
                                                       const Ask& ask) {
  constexpr std::uint64_t max_unsized = 4096;  // number of blocks
  const std::uint64_t block_size = options.block_bytes;
  const auto size_of = [&](const upcoming_range& range) {
    if (const known_object* const known = objects.find_known(range.object)) return known->size;
    if ((range.length - 1) / block_size < max_unsized) return std::uint64_t{0} - 1;
    const std::optional<std::uint64_t> size = ask(range.object);
    return size ? *size : range.offset + 1;
  };
  std::vector<std::uint64_t> numbers;
  for (const upcoming_range& range : ranges) {
    if (range.length == 0) continue;
    const std::uint64_t size = size_of(range);
    if (range.offset >= size) continue;
    const std::uint64_t count = (std::min)(range.length, size - range.offset);  // at least 1
    const std::uint64_t last = (range.offset + (count - 1)) / block_size;
    for (std::uint64_t block = range.offset / block_size; block <= last; ++block) {
      if (numbers.size() == max) return numbers;
      numbers.push_back(block_number({options.store_name, range.object, 0, block_size, block}));
    }
  }
  return numbers;
}

/// The implementation of a `cached_store`. Thread-safe.
template <byte_store Store>
class block_cache {
 public:
  /// Creates a cache of `store`. Throws `file_unreadable` if the folder cannot be used.
  template <class From>
  block_cache(From&& store, const cached_store_options& options)
      : store_(std::forward<From>(store)),
        options_(with_name(options, store_)),
        disk_(options.folder, options.disk_bytes),
        objects_(options_.store_name),
        memory_(options.memory_bytes),
        uses_(memory_, disk_) {}
  block_cache(block_cache&&) = delete;

  /// Returns true in a child created by fork(). The child has no threads that wait for a block, so
  /// the destructor of the condition variable would wait forever.
  [[nodiscard]] bool is_in_child() const noexcept { return process_.is_in_child(); }

  /// Returns the object `name`. Queries the underlying store for its size and version only once.
  /// Propagates errors from the store.
  [[nodiscard]] const known_object& object(std::string_view name) {
    return objects_.find(name, [&](std::string_view object) -> object_state {
      if constexpr (versioned_store<Store>) {
        return store_.state_of(object);
      } else {
        return {store_.size_of(object), {}};
      }
    });
  }

  /// Implements `cached_store::read_many`.
  void read(std::span<const byte_range> ranges) {
    const auto find = [this](std::string_view name) -> decltype(auto) { return object(name); };
    each_group(ranges, options_, find, [this](std::span<block_piece> some) { read_pieces(some); });
  }

  /// Implements `cached_store::try_borrow`.
  [[nodiscard]] std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) {
    const auto piece = only_piece(range, objects_, options_);
    const std::lock_guard lock{mutex_};
    if (!piece || !memory_.holds(piece->number, piece->key)) return std::nullopt;
    if (range.length < piece->id.length() / max_lent) return std::nullopt;
    uses_.use(piece->number);
    ++stats_.from_memory;
    const std::uint64_t next_use = uses_.of(piece->number);
    disk_.use(piece->number, piece->id, next_use);
    const shared_block block = memory_.find(piece->number, piece->key, next_use);
    const auto size = static_cast<std::size_t>(range.length);
    return borrowed_bytes{block->all().subspan(piece->skipped, size), block};
  }
  /// Implements `cached_store::warm`, for a range that lies in a single block.
  [[nodiscard]] bool warm(const upcoming_range& range) {
    const auto piece = only_piece(range, objects_, options_);
    if (!piece) return false;
    std::unique_lock lock{mutex_};
    const std::uint64_t next_use = uses_.of(piece->number);
    if (memory_.find(piece->number, piece->key, next_use)) return true;
    if (!disk_.use(piece->number, piece->id, next_use)) return false;
    // Computes the next use like the later read, for which the current use is already over.
    const bool is_alone = !memory_.would_keep(piece->id.length(), uses_.after(piece->number));
    lock.unlock();
    return is_alone ? disk_.warm(piece->number, piece->id, piece->skipped, range.length)
                    : disk_.warm(piece->number, piece->id, 0, piece->id.length());
  }

  /// Implements `cached_store::will_use`.
  void will_use(std::span<const upcoming_range> ranges) {
    const auto size_of = [&](std::string_view name) { return std::optional{object(name).size}; };
    announced_uses uses{max_named};
    uses.append(this, block_numbers(ranges, options_, objects_, max_named, size_of));
    const std::lock_guard lock{mutex_};
    uses_.tell(std::move(uses));
  }
  /// Implements `cached_store::announce_reads`.
  void announce_reads(const void* who, std::span<const upcoming_range> ranges) {
    const auto nobody = [](std::string_view) { return std::nullopt; };
    const auto blocks = block_numbers(ranges, options_, objects_, max_announced, nobody);
    const std::lock_guard lock{mutex_};
    uses_.append(who, blocks);
  }
  /// Implements `cached_store::retract`.
  void retract(const void* who) {
    const std::lock_guard lock{mutex_};
    uses_.retract(who);
  }
  [[nodiscard]] const cached_store_options& options() const noexcept { return options_; }
  /// Implements `cached_store::stats`.
  [[nodiscard]] cached_store_stats stats() {
    const std::lock_guard lock{mutex_};
    cached_store_stats now = stats_;
    now.memory_bytes = memory_.order().bytes();
    now.planned_uses = uses_.size();
    disk_.tell(now);
    return now;
  }

 private:
  // A range is lent only if it has at least 1 / max_lent of the block's bytes. For a smaller range,
  // a copy costs less than keeping the block in memory.
  static constexpr std::uint64_t max_lent = 64;

  // Each thread reads and publishes all its claimed blocks before it waits for other threads.
  // Therefore two threads never wait for each other.
  void read_pieces(std::span<block_piece> pieces) {
    while (!claim_and_read(pieces)) {
      const std::uint64_t found = read_alone(disk_, pieces);
      std::unique_lock lock{mutex_};
      stats_.from_disk += found;
      for (block_piece& one : pieces) {
        if (one.bytes || is_read_alone(one) || !one.awaited) continue;
        landed_.wait(lock, [&] { return one.awaited->bytes || one.awaited->has_failed; });
        // If the other thread failed, this thread reads the block itself and receives the error.
        // Waiting for a third thread is not allowed, because the last of many threads would then
        // wait for as many failing reads.
        one.bytes = one.awaited->bytes;
        one.waits = one.bytes != nullptr;
      }
    }
    copy_out(pieces);
  }

  // Reads the blocks that no other thread reads. Returns true if the bytes of all pieces are
  // available, and false if other threads are still reading some of them. A flight lasts until its
  // blocks have been written to disk, so that later readers find the bytes even if the memory has
  // no room.
  bool claim_and_read(std::span<block_piece> pieces) {
    std::vector<block_claim> mine;
    mine.reserve(pieces.size());
    const struct landing {
      block_cache& of;
      const std::vector<block_claim>& claims;
      ~landing() { of.land(claims); }
    } at_end{*this, mine};
    const exit_handler handler{[&] { land(mine); }};
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
      flights_.erase(flying);  // in a child, the reading thread exists only in the parent of fork()
      flying = flights_.end();
    }
    if (flying != flights_.end() && (one.waits || flying->second->bytes)) {
      one.awaited = flying->second;
      one.bytes = one.awaited->bytes;
      stats_.from_others += counts ? 1U : 0U;
      return one.bytes != nullptr;
    }
    if (is_on_disk && !one.tried && !memory_.would_keep(one.id.length(), next_use)) {
      one.is_alone = true;  // the remainder of the block is not needed
      return false;
    }
    one.awaited = std::make_shared<block_flight>();
    flights_.emplace(one.key, one.awaited);  // does not replace an existing flight
    mine.push_back({&one, one.awaited});     // cannot throw, because capacity was reserved
    return false;
  }

  // Marks the in-flight reads of the blocks in `mine` as finished. If a block was not read, the
  // threads that wait for it try to read it themselves.
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

  // Writes to disk after waiting threads have received their bytes, because writing takes time.
  void write(std::span<const block_claim> mine) {
    if (!write_blocks(disk_, mine)) return;
    auto listed = disk_.list();
    std::unique_lock lock{mutex_};
    const auto gone =
        disk_.look(std::move(listed), [&](std::uint64_t number) { return uses_.of(number); });
    lock.unlock();
    disk_.remove(gone);
  }

  // Maximum number of planned blocks.
  static constexpr std::size_t max_named = std::size_t{1} << 24;
  // Maximum number of announced blocks.
  static constexpr std::size_t max_announced = std::size_t{1} << 20;

  const fork_guard process_{true};
  const Store store_;
  const cached_store_options options_;
  block_disk disk_;
  known_objects objects_;
  std::mutex mutex_;  // guards the members below; not held during reads and writes
  std::condition_variable landed_;
  std::map<block_key, std::shared_ptr<block_flight>> flights_;
  memory_tier memory_;
  planned_uses uses_;
  cached_store_stats stats_;
};

}  // namespace detail

/// A `batching_store` that caches blocks of any store in memory and on a local disk, both limited
/// in size:
///
///     cached_store near_by{bucket, {.folder = "/nvme/cache", .disk_bytes = 1 << 40}};
///
/// A loader with `lookahead_bytes` announces upcoming reads to the cache (see `announce_reads`).
/// Other programs can call `will_use`.
///
/// An lvalue store is referenced and must outlive the cache; an rvalue is moved in. The cache
/// searches for a block first in memory and then on disk, and otherwise reads it from the
/// underlying store. A block that several threads need is read once. The missing blocks of a call
/// are read together, 16 MiB at a time. To make room, the cache evicts the block whose next use is
/// farthest in the future or unknown (Belady 1966). Ties are broken by least recent use.
///
/// If a block is on disk and does not fit into memory, only the required part is read. Files on
/// disk contain the block name, length and checksums. Damaged files are removed, and their blocks
/// are read from the underlying store. A full or missing disk makes the cache slower, but reads do
/// not fail. `stats()` reports the reason.
///
/// Movable, not copyable. Reading is thread-safe. No lock is held during reads and writes. A child
/// created by fork() reads again the blocks that other threads were reading. When fork() is called,
/// no other thread may be waiting in the cache or holding its lock.
template <byte_store Store>
class cached_store {
 public:
  /// Creates a cache of `store`. Throws `option_error` if an option is out of range, and
  /// `file_unreadable` if the folder cannot be created or read.
  template <class From>
    requires(!std::same_as<std::remove_cvref_t<From>, cached_store> &&
             std::is_constructible_v<Store, From>)
  explicit cached_store(From&& store,  // NOLINT: hides no copy, see the condition
                        const cached_store_options& options = {})
      : cache_(new detail::block_cache<Store>(std::forward<From>(store), checked(options))) {}

  /// Returns the size of `object` in bytes. Queries the underlying store once and caches the
  /// result. Propagates errors from the underlying store.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return cache_->object(object).size;
  }

  /// Returns the size of `object`, and its version if the underlying store is a `versioned_store`.
  /// Propagates errors from the underlying store.
  [[nodiscard]] object_state state_of(std::string_view object) const
    requires versioned_store<Store>
  {
    const detail::known_object& known = cache_->object(object);
    return {known.size, known.version};
  }

  /// Reads one range. Throws the same errors as `read_many`.
  void read(const byte_range& range) const { cache_->read({&range, 1}); }

  /// Reads all `ranges`. Propagates errors from the underlying store. Throws `file_truncated` if a
  /// range extends beyond the end of its object.
  void read_many(std::span<const byte_range> ranges) const { cache_->read(ranges); }

  /// Lends a range that lies in a single block in memory and covers at least 1/64 of the block (see
  /// `borrowable_store`). The block stays in memory until the last copy of the owner is destroyed.
  /// A lent block that was evicted does not count towards `memory_bytes`.
  [[nodiscard]] std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) const {
    return cache_->try_borrow(range);
  }
  /// Returns true if `range` is in memory or known to be on disk (see `warmable_store`). Returns
  /// false unless the range lies in a single block of an object that was requested before. For a
  /// block on disk, also starts a background read of the required bytes, unless they seem to be in
  /// the page cache.
  [[nodiscard]] bool warm(const upcoming_range& range) const { return cache_->warm(range); }

  /// Sets the plan of all future reads, in order, and replaces the previous plan. Blocks outside
  /// the plan and blocks after the first 2^24 are evicted first. A wrong order affects only the hit
  /// rate. Ranges are truncated at the end of their object. Each block of a range occupies 80
  /// bytes.
  ///
  /// Planned uses have priority over announced reads. An empty `ranges` clears the plan. The cache
  /// drops the plan after 2^17 consecutive uses of unplanned blocks.
  ///
  /// For a range of more than 4096 blocks, queries the underlying store for the object size and
  /// throws its errors. Any thread may call this, preferably between epochs.
  void will_use(std::span<const upcoming_range> ranges) const { cache_->will_use(ranges); }

  /// Appends reads that the caller `who` expects (see `planned_store`). A loader with
  /// `lookahead_bytes` over `stored_blobs` calls this. Announcements are ignored while uses planned
  /// by `will_use` remain, and beyond 2^20 block uses. Each use occupies 80 bytes. A use is dropped
  /// if 2^17 later uses happen first. In an object of unknown size, only the first block of a range
  /// of more than 4096 blocks counts. Does not query the underlying store.
  void announce_reads(const void* who, std::span<const upcoming_range> ranges) const {
    cache_->announce_reads(who, ranges);
  }
  /// Withdraws the announcements of `who`.
  void retract(const void* who) const { cache_->retract(who); }
  /// Returns the maximum total size in bytes of useful announcements: 2^19 blocks.
  [[nodiscard]] std::uint64_t plan_capacity() const noexcept {
    return cache_->options().block_bytes << 19U;
  }

  /// Returns the current statistics. Any thread may call this.
  [[nodiscard]] cached_store_stats stats() const { return cache_->stats(); }

 private:
  static const cached_store_options& checked(const cached_store_options& options) {
    constexpr std::uint64_t max = std::uint64_t{1} << 30;
    if (options.block_bytes < 1 || options.block_bytes > max) {
      detail::throw_option_error("block_bytes", {options.block_bytes, " is not in 1..", max});
    }
    return options;
  }

  std::unique_ptr<detail::block_cache<Store>, detail::delete_unless_forked> cache_;
};

/// Deduces a reference for an lvalue store and a value for an rvalue store.
template <class Store>
cached_store(Store&&,
             const cached_store_options& = {}) -> cached_store<detail::store_member<Store>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
