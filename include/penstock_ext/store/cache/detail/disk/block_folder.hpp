// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/store/cache/detail/disk/block_file.hpp>
#include <penstock_ext/store/detail/local/file_read.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Fills all of `parts`, one after the other, from byte `offset` of `file` on. False where it ends
/// before, or can't be read.
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

/// Reads the part of block `id` that begins at byte `from` of it out of its file, to `out`, which
/// is not empty. Whether the file is the block's, and the chunks in which the part lies are whole.
/// Chunks of which only a part is wanted go through memory of their own.
[[nodiscard]] inline bool read_block_part(int file, const block_id& id, std::uint64_t from,
                                          std::span<std::byte> out) {
  std::vector<std::byte> start(start_bytes(id));
  const std::uint64_t end = from + out.size();
  const std::uint64_t first = from / chunk_bytes;
  const std::uint64_t last_begin = (end - 1) / chunk_bytes * chunk_bytes;
  const std::uint64_t last_end = (std::min)(last_begin + chunk_bytes, id.length());
  // Chunks that are wanted as a whole lie from `whole` on, up to `whole_end`.
  const std::uint64_t whole = (from + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
  const std::uint64_t whole_end = end == last_end ? end : last_begin;
  const bool begins_inside = whole != from;
  const bool is_one = begins_inside && first * chunk_bytes == last_begin;
  const bool ends_inside = whole_end != end && !is_one;
  if (!begins_inside && !ends_inside && from == 0) {
    return read_all<2>(file, 0, {start, out}) && is_start_of(id, start) &&
           are_whole(id, start, first, out);
  }
  const auto edges = std::make_unique_for_overwrite<std::byte[]>(2 * chunk_bytes);
  const auto edge = [&](bool is_there, std::uint64_t begin, std::uint64_t until) {
    return std::span{edges.get() + (begin == first * chunk_bytes ? 0 : chunk_bytes),
                     is_there ? static_cast<std::size_t>(until - begin) : 0};
  };
  const auto head =
      edge(begins_inside, first * chunk_bytes, (std::min)((first + 1) * chunk_bytes, id.length()));
  const auto tail = edge(ends_inside, last_begin, last_end);
  const auto middle = whole < whole_end ? out.subspan(static_cast<std::size_t>(whole - from),
                                                      static_cast<std::size_t>(whole_end - whole))
                                        : std::span<std::byte>{};
  if (!read_all<1>(file, 0, {start}) || !is_start_of(id, start) ||
      !read_all<3>(file, start.size() + first * chunk_bytes, {head, middle, tail}) ||
      !are_whole(id, start, first, head) || !are_whole(id, start, whole / chunk_bytes, middle) ||
      !are_whole(id, start, last_begin / chunk_bytes, tail)) {
    return false;
  }
  if (!head.empty()) {
    const auto skipped = static_cast<std::size_t>(from % chunk_bytes);
    std::memcpy(out.data(), head.data() + skipped, (std::min)(out.size(), head.size() - skipped));
  }
  if (!tail.empty()) {
    const auto count = static_cast<std::size_t>(end - last_begin);
    std::memcpy(out.data() + out.size() - count, tail.data(), count);
  }
  return true;
}

/// A block's file as it lies in the folder.
struct listed_block {
  std::uint64_t number;
  std::uint64_t bytes;
  std::int64_t changed;  ///< in nanoseconds since 1970
};

/// The files of blocks in a folder, which several processes may use at once. A file is written
/// under another name, on which its process holds a lock (flock), and then renamed: one whose lock
/// is free was left by a process that is gone. Thread-safe; holds no lock of its own.
class block_folder {
 public:
  /// How reading went; `unreadable` where it can't be told what is there now.
  enum class found : std::uint8_t { whole, nothing, damaged, unreadable };
  /// Where what will be read is, as far as one can tell.
  enum class nearness : std::uint8_t { nothing, in_memory, asked_for };

  /// Opens the folder `path`, and makes it where there is none. Throws `file_unreadable`.
  explicit block_folder(std::string path) : path_(std::move(path)), folder_(-1) {
    std::error_code wrong;
    std::filesystem::create_directories(path_, wrong);
    folder_ = open_at(AT_FDCWD, path_.c_str(), O_DIRECTORY);
    if (folder_.get() < 0) {
      throw file_unreadable(path_, 0, "a folder for blocks that can be made or read",
                            system_reason());
    }
  }

  /// The path as it was given.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// How many bytes the file of a block has.
  [[nodiscard]] static std::uint64_t file_bytes(const block_id& id) noexcept {
    return start_bytes(id) + id.length();
  }

  /// Reads the part of block `id`, whose file is `number`, that begins at byte `from` of the block,
  /// to `out`, which is not empty. A file that is damaged there, of another block or of an object
  /// of another size is removed. `wrong` becomes the system's number of why it can't be opened.
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

  /// Has the system read, meanwhile, what `read` needs for so many bytes, at least one, of block
  /// `id` from byte `from` on, unless the last of them is in its memory.
  [[nodiscard]] nearness warm(std::uint64_t number, const block_id& id, std::uint64_t from,
                              std::uint64_t bytes) const noexcept {
    const descriptor file = open_at(folder_.get(), name_of(number).data(), O_NOFOLLOW | O_NONBLOCK);
    if (file.get() < 0) return nearness::nothing;
    const std::uint64_t start = start_bytes(id);
    std::byte last{};
    file_read probe{file.get(), start + from + bytes - 1, &last, 1, 1};
    read_cached(probe);
    if (probe.is_whole()) return nearness::in_memory;
    // In steps that any device takes: of more the system reads the beginning. In vain if it can't.
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
    return nearness::asked_for;
  }

  /// Writes block `id` as file `number`, or leaves what was there; the system's number of what went
  /// wrong, or 0.
  [[nodiscard]] int write(std::uint64_t number, const block_id& id,
                          std::span<const std::byte> bytes) const {
    const std::vector<std::byte> start = block_start(id, bytes);
    const std::string name = name_of(number).data();
    // Another process that starts just then may take the file for left over before it has its lock.
    for (int tries = 0;; ++tries) {
      const std::string part = part_name(name);
      const descriptor file =
          open_at(folder_.get(), part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
      // Where processes have numbers of their own (containers), a name may be another's.
      if (file.get() < 0 && errno == EEXIST && tries < most_tries) continue;
      if (file.get() < 0) return errno;
      int wrong = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
      if (wrong == 0) wrong = write_all(file.get(), text_of(start));
      if (wrong == 0) wrong = write_all(file.get(), text_of(bytes));
      if (wrong == 0 && ::renameat(folder_.get(), part.c_str(), folder_.get(), name.c_str()) != 0) {
        wrong = errno;
      }
      if (wrong == 0) return 0;
      ::unlinkat(folder_.get(), part.c_str(), 0);
      if ((wrong != EWOULDBLOCK && wrong != ENOENT) || tries == most_tries) return wrong;
    }
  }

  /// Removes file `number`, if it is there.
  void remove(std::uint64_t number) const noexcept {
    ::unlinkat(folder_.get(), name_of(number).data(), 0);
  }

  /// All blocks that lie there now.
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

  /// Removes what processes have left that are gone.
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
  static constexpr int most_tries = 3;

  // Calls visit(name, number, ending) for each file whose name begins with a number.
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

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
