// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/store/cache/detail/memory_tier.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns a 64-bit checksum (XXH3 with seed 0), which detects corruption, not tampering.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return ::XXH3_64bits(bytes.data(), bytes.size());
}

/// Identifies a block of an object in a store.
struct block_id {
  std::string_view store;  ///< store name, as configured in the cache
  std::string_view object;
  std::uint64_t object_size = 0;
  std::uint64_t block_size = 0;  ///< size of all blocks except the object's last block
  std::uint64_t number = 0;      ///< block index in the object

  /// Returns the length of the block in bytes.
  [[nodiscard]] std::uint64_t length() const noexcept {
    const std::uint64_t begin = number * block_size;
    return (std::min)(block_size, object_size - begin);
  }
};

/// Number of block bytes that share a checksum, so that a part of a block can be read and verified
/// separately.
inline constexpr std::size_t chunk_bytes = std::size_t{16} << 10;

/// Header of a block file. The header is followed by the store name, the object name, the chunk
/// checksums and the block bytes. Integers are in native byte order. On a machine with a different
/// byte order, `magic` does not match.
struct block_header {
  static constexpr std::uint64_t expected_magic = 0x34'4b'4c'42'4b'54'53'50U;  // "PSTKBLK4"

  std::uint64_t magic = expected_magic;
  std::uint64_t header_checksum =
      0;  ///< checksum of the bytes between this member and the block bytes
  std::uint64_t chunk_size = chunk_bytes;
  std::uint64_t object_size = 0;
  std::uint64_t block_size = 0;
  std::uint64_t number = 0;
  std::uint64_t store_length = 0;   ///< length of the store name
  std::uint64_t object_length = 0;  ///< length of the object name
};
static_assert(sizeof(block_header) == 64, "written as it is");
inline constexpr std::size_t header_checksum_begin = offsetof(block_header, chunk_size);

/// Returns the number of chunks in block `id`. The last chunk may be shorter.
[[nodiscard]] inline std::uint64_t chunks_of(const block_id& id) noexcept {
  return (id.length() + chunk_bytes - 1) / chunk_bytes;
}
/// Returns the offset of the block bytes in the file of block `id`.
[[nodiscard]] inline std::size_t start_bytes(const block_id& id) noexcept {
  return sizeof(block_header) + id.store.size() + id.object.size() +
         static_cast<std::size_t>(chunks_of(id) * sizeof(std::uint64_t));
}

/// Returns the file header of block `id` without its checksum.
[[nodiscard]] inline block_header header_of(const block_id& id) noexcept {
  return {.object_size = id.object_size,
          .block_size = id.block_size,
          .number = id.number,
          .store_length = id.store.size(),
          .object_length = id.object.size()};
}

/// Returns the file content of block `id` that precedes the block bytes.
[[nodiscard]] inline std::vector<std::byte> block_start(const block_id& id,
                                                        std::span<const std::byte> bytes) {
  block_header header = header_of(id);
  std::vector<std::byte> start(start_bytes(id));
  std::size_t at = 0;
  const auto append = [&](std::span<const std::byte> more) {
    if (!more.empty()) std::memcpy(start.data() + at, more.data(), more.size());
    at += more.size();
  };
  append(std::as_bytes(std::span{&header, 1}));
  append(std::as_bytes(std::span{id.store}));
  append(std::as_bytes(std::span{id.object}));
  while (!bytes.empty()) {
    const auto chunk = bytes.first((std::min)(bytes.size(), chunk_bytes));
    const std::uint64_t sum = checksum(chunk);
    append(std::as_bytes(std::span{&sum, 1}));
    bytes = bytes.subspan(chunk.size());
  }
  header.header_checksum = checksum(std::span{start}.subspan(header_checksum_begin));
  std::memcpy(start.data(), &header, sizeof header);
  return start;
}

/// Returns true if `start` is the undamaged start of the file of block `id`.
[[nodiscard]] inline bool is_start_of(const block_id& id, std::span<const std::byte> start) {
  if (start.size() != start_bytes(id)) return false;
  block_header header = header_of(id);
  header.header_checksum = checksum(start.subspan(header_checksum_begin));
  const std::string_view names{reinterpret_cast<const char*>(start.data()) + sizeof header,
                               start.size() - sizeof header};
  return std::memcmp(start.data(), &header, sizeof header) == 0 && names.starts_with(id.store) &&
         names.substr(id.store.size()).starts_with(id.object);
}

/// Returns true if `bytes` match their checksums in `start`, the start of the file of block `id`.
/// `bytes` are consecutive chunks, starting at chunk `first`. The last chunk has the same length as
/// in the block.
[[nodiscard]] inline bool are_whole(const block_id& id, std::span<const std::byte> start,
                                    std::uint64_t first, std::span<const std::byte> bytes) {
  const auto sums = start.last(static_cast<std::size_t>(chunks_of(id) * sizeof(std::uint64_t)));
  for (std::uint64_t chunk = first; !bytes.empty(); ++chunk) {
    const std::size_t size = (std::min)(chunk_bytes, bytes.size());
    std::uint64_t sum = 0;
    std::memcpy(&sum, sums.data() + chunk * sizeof sum, sizeof sum);
    if (checksum(bytes.first(size)) != sum) return false;
    bytes = bytes.subspan(size);
  }
  return true;
}

/// Returns the number of block `id`. The file name is this number in hexadecimal. Two blocks may
/// share a number. The names in the file distinguish them.
[[nodiscard]] inline std::uint64_t block_number(const block_id& id) {
  std::array<std::uint64_t, 5> parts{checksum(std::as_bytes(std::span{id.store})),
                                     checksum(std::as_bytes(std::span{id.object})), id.block_size,
                                     id.number, block_header::expected_magic};
  return checksum(std::as_bytes(std::span{parts}));
}

/// Fills all `parts` consecutively from `file`, starting at byte `offset`. Returns false if the
/// file ends too early or cannot be read.
template <std::size_t Count>
[[nodiscard]] bool read_all(int file, std::uint64_t offset,
                            std::array<std::span<std::byte>, Count> parts) noexcept {
  for (;;) {
    std::array<::iovec, Count> left{};
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < Count; ++i) {
      left[i] = {parts[i].data(), parts[i].size()};
      wanted += parts[i].size();
    }
    if (wanted == 0) return true;
    ssize_t count =
        ::preadv(file, left.data(), static_cast<int>(Count), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    offset += static_cast<std::uint64_t>(count);
    for (auto& part : parts) {
      const std::size_t filled = (std::min)(part.size(), static_cast<std::size_t>(count));
      part = part.subspan(filled);
      count -= static_cast<ssize_t>(filled);
    }
  }
}

/// Reads a part of block `id` from its file into `out`, which must not be empty. The part starts at
/// byte `from` of the block. Returns true if the file belongs to the block and the chunks that
/// contain the part are intact. Partially requested chunks are read into temporary memory.
[[nodiscard]] inline bool read_block_part(int file, const block_id& id, std::uint64_t from,
                                          std::span<std::byte> out) {
  const auto begin = static_cast<std::size_t>(from);
  const std::size_t end = begin + out.size();
  const auto chunk_of = [&](std::size_t at) {
    const std::size_t first = at / chunk_bytes * chunk_bytes;
    return std::pair{first, (std::min)(first + chunk_bytes, static_cast<std::size_t>(id.length()))};
  };
  const auto [head_begin, head_end] = chunk_of(begin);
  const auto [tail_begin, tail_end] = chunk_of(end - 1);
  const bool has_head = begin != head_begin;
  const bool has_tail = end != tail_end && !(has_head && head_begin == tail_begin);
  const auto edges = std::make_unique_for_overwrite<std::byte[]>(2 * chunk_bytes);
  const std::span head{edges.get(), has_head ? head_end - head_begin : 0};
  const std::span tail{edges.get() + chunk_bytes, has_tail ? tail_end - tail_begin : 0};
  const std::size_t of_head = has_head ? (std::min)(out.size(), head_end - begin) : 0;
  const std::size_t of_tail = has_tail ? end - tail_begin : 0;
  const auto middle = out.subspan(of_head, out.size() - of_head - of_tail);
  std::vector<std::byte> start(start_bytes(id));
  const bool is_read = head_begin == 0
                           ? read_all<4>(file, 0, {start, head, middle, tail})
                           : read_all<1>(file, 0, {start}) &&
                                 read_all<3>(file, start.size() + head_begin, {head, middle, tail});
  if (!is_read || !is_start_of(id, start) ||
      !are_whole(id, start, head_begin / chunk_bytes, head) ||
      !are_whole(id, start, (begin + of_head) / chunk_bytes, middle) ||
      !are_whole(id, start, tail_begin / chunk_bytes, tail)) {
    return false;
  }
  std::memcpy(out.data(), head.data() + (begin - head_begin), of_head);
  std::memcpy(out.data() + out.size() - of_tail, tail.data(), of_tail);
  return true;
}

/// A block file in a folder listing.
struct listed_block {
  std::uint64_t number;
  std::uint64_t bytes;
  std::int64_t changed;  ///< Modification time in nanoseconds since 1970.
};

/// The block files in a folder that several processes may share. A process writes a file under a
/// temporary name while it holds a lock on the file (flock), and then renames the file. A temporary
/// file without a lock was left by a process that has ended. Thread-safe without a mutex.
class block_folder {
 public:
  /// Read results. `unreadable` means that the block file could not be opened or read.
  enum class found : std::uint8_t { whole, nothing, damaged, unreadable };
  /// Estimated location of data that will be read.
  enum class nearness : std::uint8_t { nothing, in_memory, requested };

  /// Opens the folder `path`, which is created if missing. Throws `file_unreadable` if the folder
  /// cannot be created or opened.
  explicit block_folder(std::string path) : path_(std::move(path)), folder_(-1) {
    std::error_code wrong;
    std::filesystem::create_directories(path_, wrong);
    folder_ = open_at(AT_FDCWD, path_.c_str(), O_DIRECTORY);
    if (folder_.get() < 0) {
      throw file_unreadable(path_, 0, "a folder for blocks that can be made or read",
                            system_reason());
    }
  }

  /// Returns the path passed to the constructor.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Returns the size of a block file in bytes.
  [[nodiscard]] static std::uint64_t file_bytes(const block_id& id) noexcept {
    return start_bytes(id) + id.length();
  }

  /// Reads a part of block `id` from file `number` into `out`, which must not be empty. The part
  /// starts at byte `from` of the block. Removes the file if that part is damaged, or if the file
  /// belongs to another block or to an object of another size. If the file cannot be opened,
  /// `wrong` receives the errno value.
  [[nodiscard]] found read(std::uint64_t number, const block_id& id, std::uint64_t from,
                           std::span<std::byte> out, int& wrong) const {
    const descriptor file = open_at(folder_.get(), name_of(number).data(), O_NOFOLLOW | O_NONBLOCK);
    if (file.get() < 0) wrong = errno;
    if (file.get() < 0) return wrong == ENOENT ? found::nothing : found::unreadable;
    struct ::stat status {};
    const bool is_as_long = ::fstat(file.get(), &status) == 0 &&
                            static_cast<std::uint64_t>(status.st_size) == file_bytes(id);
    if (is_as_long && read_block_part(file.get(), id, from, out)) return found::whole;
    remove(number);
    return found::damaged;
  }

  /// Starts a background read of the data that `read` needs for `bytes` bytes of block `id`,
  /// starting at byte `from`. `bytes` must be at least 1. Does nothing if the last byte is in the
  /// page cache.
  [[nodiscard]] nearness warm(std::uint64_t number, const block_id& id, std::uint64_t from,
                              std::uint64_t bytes) const noexcept {
    const descriptor file = open_at(folder_.get(), name_of(number).data(), O_NOFOLLOW | O_NONBLOCK);
    if (file.get() < 0) return nearness::nothing;
    const std::uint64_t start = start_bytes(id);
    std::byte last{};
    const ::iovec probe{&last, 1};
    const auto place = static_cast<off_t>(start + from + bytes - 1);
    if (::preadv2(file.get(), &probe, 1, place, RWF_NOWAIT) == 1) return nearness::in_memory;
    // Advises in small steps, because the system reads only the beginning of a longer range.
    // Ignores failures.
    constexpr std::uint64_t step = std::uint64_t{128} << 10;
    const auto advise = [&](std::uint64_t begin, std::uint64_t end) {
      for (; begin < end; begin += step) {
        const std::uint64_t count = (std::min)(step, end - begin);
        static_cast<void>(::posix_fadvise(file.get(), static_cast<off_t>(begin),
                                          static_cast<off_t>(count), POSIX_FADV_WILLNEED));
      }
    };
    advise(0, start);
    advise(start + from / chunk_bytes * chunk_bytes,
           start + (from + bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes);
    return nearness::requested;
  }

  /// Writes block `id` as file `number`. Returns 0 or an errno value. After a failure, the previous
  /// file remains.
  [[nodiscard]] int write(std::uint64_t number, const block_id& id,
                          std::span<const std::byte> bytes) const {
    const std::vector<std::byte> start = block_start(id, bytes);
    const std::string name = name_of(number).data();
    // Another process that starts at this moment may mistake the file for a leftover before the
    // file is locked.
    for (int tries = 0;; ++tries) {
      const std::string part = part_name(name);
      const descriptor file =
          open_at(folder_.get(), part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
      // In containers with separate process ids, the name may already be in use.
      if (file.get() < 0 && errno == EEXIST && tries < max_tries) continue;
      if (file.get() < 0) return errno;
      int wrong = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
      if (wrong == 0) wrong = write_all(file.get(), text_of(start));
      if (wrong == 0) wrong = write_all(file.get(), text_of(bytes));
      if (wrong == 0 && ::renameat(folder_.get(), part.c_str(), folder_.get(), name.c_str()) != 0) {
        wrong = errno;
      }
      if (wrong == 0) return 0;
      ::unlinkat(folder_.get(), part.c_str(), 0);
      if ((wrong != EWOULDBLOCK && wrong != ENOENT) || tries == max_tries) return wrong;
    }
  }

  /// Removes file `number` if it exists.
  void remove(std::uint64_t number) const noexcept {
    ::unlinkat(folder_.get(), name_of(number).data(), 0);
  }

  /// Returns all block files in the folder.
  [[nodiscard]] std::vector<listed_block> list() const {
    std::vector<listed_block> all;
    each([&](const char* name, std::uint64_t number, std::string_view ending) {
      struct ::stat status {};
      if (ending != ".block" || ::fstatat(folder_.get(), name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return;
      }
      all.push_back({number, static_cast<std::uint64_t>(status.st_size),
                     status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
    });
    return all;
  }

  /// Removes temporary files left by ended processes.
  void remove_left_over() const {
    each([&](const char* name, std::uint64_t, std::string_view ending) {
      if (!ending.starts_with(".block.part-")) return;
      const descriptor file = open_at(folder_.get(), name, O_NOFOLLOW | O_NONBLOCK);
      if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
        ::unlinkat(folder_.get(), name, 0);
      }
    });
  }

 private:
  static constexpr std::size_t digits = 16;
  static constexpr int max_tries = 3;

  // Calls visit(name, number, ending) for each file whose name begins with a block number.
  template <class Visit>
  void each(const Visit& visit) const {
    descriptor again = open_at(folder_.get(), ".", O_DIRECTORY);
    if (again.get() < 0) return;
    const std::unique_ptr<::DIR, int (*)(::DIR*)> entries{::fdopendir(again.get()), &::closedir};
    if (entries == nullptr) return;
    static_cast<void>(again.release());  // closedir closes it
    while (const ::dirent* const entry = ::readdir(entries.get())) {
      const std::string_view name{entry->d_name};
      if (name.size() < digits) continue;
      std::uint64_t number = 0;
      const auto read_to = std::from_chars(name.data(), name.data() + name.size(), number, 16);
      if (read_to.ec != std::errc{} || read_to.ptr != name.data() + digits) continue;
      visit(entry->d_name, number, name.substr(digits));
    }
  }

  [[nodiscard]] static std::array<char, digits + 7> name_of(std::uint64_t number) noexcept {
    std::array<char, digits + 7> name{"0000000000000000.block"};
    for (std::size_t i = digits; number != 0; number >>= 4U) {
      name[--i] = "0123456789abcdef"[number & 15U];
    }
    return name;
  }
  [[nodiscard]] static std::string_view text_of(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string path_;
  descriptor folder_;
};

/// Predicts if files are in the page cache, to avoid opening each file. If the last 32 probed files
/// were in the cache, only every 16th file is probed. After a wrong prediction, a read waits for
/// the disk, or for the underlying store if the file is gone. Thread-safe.
class page_cache_guess {
 public:
  /// Returns true if the next file should be probed. Otherwise the file is assumed to be in the
  /// page cache.
  [[nodiscard]] bool is_due() noexcept {
    return in_a_row_.load(std::memory_order_relaxed) < enough ||
           turn_.fetch_add(1, std::memory_order_relaxed) % one_of == 0;
  }
  /// Records whether a probed file was in the page cache.
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

  // Number of consecutive hits, capped at `enough`. Concurrent updates may push the number slightly
  // past the cap. Relaxed ordering suffices for this member and for `turn_`, because they affect
  // only the next prediction.
  std::atomic<std::uint32_t> in_a_row_{0};
  std::atomic<std::uint32_t> turn_{0};
};

/// The disk cache. Stores which blocks exist, as far as this process knows, and their eviction
/// order. Failures are counted and do not throw. Thread-safe. The mutex is not held during file
/// operations, and may be locked while the mutex of the cache is held.
class block_disk {
 public:
  /// Caches up to `max` bytes of files in `folder`. "" disables the disk cache. Throws
  /// `file_unreadable` if the folder cannot be used.
  block_disk(const std::string& folder, std::uint64_t max) : max_(max) {
    if (folder.empty()) return;
    folder_.emplace(folder);
    folder_->remove_left_over();
    remove(look(list(), [](std::uint64_t) { return never; }));
  }

  /// Reads a part of block `id`, whose number is `number`, into `out` if the block is on disk. The
  /// part starts at byte `from` of the block.
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
      order_.drop(number);
    } else {
      record_failure(wrong);
    }
    return found;
  }

  /// Starts a background read of the part of block `id` that starts at byte `from`. Returns true if
  /// the block is on disk.
  [[nodiscard]] bool warm(std::uint64_t number, const block_id& id, std::uint64_t from,
                          std::uint64_t bytes) noexcept {
    using nearness = block_folder::nearness;
    if (!folder_) return false;
    if (!guess_.is_due()) return true;
    const nearness where = folder_->warm(number, id, from, bytes);
    guess_.saw(where == nearness::in_memory);
    return where != nearness::nothing;
  }

  /// Sets the next use of block `id` to `next_use` and returns true if the block is known to be on
  /// disk.
  bool use(std::uint64_t number, const block_id& id, std::uint64_t next_use) {
    const std::lock_guard lock{mutex_};
    if (!order_.holds(number)) return false;
    order_.hold(number, block_folder::file_bytes(id), next_use);
    return true;
  }
  /// Records that block `id` was found on disk.
  void is_there(std::uint64_t number, const block_id& id, std::uint64_t next_use) {
    std::unique_lock lock{mutex_};
    order_.hold(number, block_folder::file_bytes(id), next_use);
    const auto gone = evict();
    lock.unlock();
    remove(gone);
  }
  /// Updates the next uses of all blocks.
  template <class NextUse>
  void rearrange(const NextUse& next_use) {
    const std::lock_guard lock{mutex_};
    order_.rearrange(next_use);
  }
  /// Updates the next use of a block, if it is on disk.
  void renew(std::uint64_t number, std::uint64_t next_use) {
    const std::lock_guard lock{mutex_};
    order_.renew(number, next_use);
  }

  /// Writes block `id`, unless it would be evicted before all blocks on disk. Returns true if the
  /// caller should call `look` next.
  [[nodiscard]] bool write(std::uint64_t number, const block_id& id,
                           std::span<const std::byte> bytes, std::uint64_t next_use) {
    const std::uint64_t file_bytes = block_folder::file_bytes(id);
    if (!folder_ || file_bytes > max_) return false;
    std::unique_lock lock{mutex_};
    if (writes_to_skip_ > 0) {
      --writes_to_skip_;
      return false;
    }
    order_.hold(number, file_bytes, next_use);
    const auto gone = evict();
    const bool is_worth_it = order_.holds(number);
    lock.unlock();
    remove(gone);
    if (!is_worth_it) return false;
    const int wrong = folder_->write(number, id, bytes);
    lock.lock();
    if (wrong != 0) {
      record_failure(wrong);
      order_.drop(number);
      // Skips the next writes, and doubles the number of skipped writes after each failure, because
      // a full disk usually stays full for some time.
      writes_to_skip_ = skips_;
      skips_ = std::min<std::uint64_t>(2 * skips_, 1024);
      return false;
    }
    ++written_;
    skips_ = first_skips;  // the disk has recovered
    written_since_look_ += file_bytes;
    if (written_since_look_ <= max_ / 16) return false;
    written_since_look_ = 0;
    return true;
  }

  /// Returns the files in the folder, including those written by other processes.
  [[nodiscard]] std::vector<listed_block> list() const { return folder_->list(); }
  /// Replaces the known blocks with those in `listed`. `next_use(number)` returns the next use of a
  /// block. Returns the numbers of the blocks to remove.
  template <class NextUse>
  [[nodiscard]] std::vector<std::uint64_t> look(std::vector<listed_block> listed,
                                                const NextUse& next_use) {
    std::ranges::sort(listed, {}, &listed_block::number);
    const std::lock_guard lock{mutex_};
    order_.keep_only([&](std::uint64_t number) {
      return std::ranges::binary_search(listed, number, {}, &listed_block::number);
    });
    // Blocks written by other processes count as older than all blocks used by this process. Among
    // them, the most recently written block is the youngest.
    std::ranges::stable_sort(listed, std::greater{}, &listed_block::changed);
    for (const listed_block& one : listed) {
      if (!order_.holds(one.number)) {
        order_.hold_as_oldest(one.number, one.bytes, next_use(one.number));
      }
    }
    return evict();
  }
  /// Removes the files of evicted blocks.
  void remove(const std::vector<std::uint64_t>& gone) const noexcept {
    for (const std::uint64_t number : gone) folder_->remove(number);
  }

  /// Writes the disk statistics to `stats`.
  template <class Stats>
  void tell(Stats& stats) {
    const std::lock_guard lock{mutex_};
    stats.disk_bytes = order_.bytes();
    stats.written = written_;
    stats.damaged = damaged_;
    stats.disk_failures = failures_;
    stats.disk_problem = problem_;
  }

 private:
  static constexpr std::uint64_t first_skips = 8;

  // Removes blocks from the eviction order until the limit is met, and returns their numbers. The
  // caller of this function and of `record_failure` must hold the mutex.
  [[nodiscard]] std::vector<std::uint64_t> evict() {
    std::vector<std::uint64_t> gone;
    while (order_.bytes() > max_) {
      gone.push_back(order_.first_to_go());
      order_.drop(gone.back());
    }
    return gone;
  }
  void record_failure(int wrong) {
    ++failures_;
    problem_ = folder_->path() + ": " + std::system_category().message(wrong);
  }

  const std::uint64_t max_;
  std::optional<block_folder> folder_;
  page_cache_guess guess_;
  std::mutex mutex_;  // guards the members below
  eviction_order order_;
  std::uint64_t written_since_look_ = 0;
  std::uint64_t writes_to_skip_ = 0;
  std::uint64_t skips_ = first_skips;
  std::uint64_t written_ = 0;
  std::uint64_t damaged_ = 0;
  std::uint64_t failures_ = 0;
  std::string problem_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
