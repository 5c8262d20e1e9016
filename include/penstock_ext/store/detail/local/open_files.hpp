// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/store/detail/local/root_folder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A file of a `local_store`, open for reading.
struct open_file_pair {
  descriptor cached;  ///< reads by way of the page cache
  descriptor direct;  ///< reads past it; none (below 0) where that was not asked for or is refused
  file_stamp stamp;   ///< the file as it was when it was first opened

  /// How many bytes it has.
  [[nodiscard]] std::uint64_t size() const noexcept { return stamp.size; }
};

/// The files of a `local_store`, of which so many stay open, those used last. A file is known again
/// when it is opened once more: 150 bytes and the name for each that has ever been. Thread-safe.
class open_files {
 public:
  using file = std::shared_ptr<const open_file_pair>;

  /// Opens files below `root`, and keeps `most` of them open, 1 or more.
  open_files(root_folder root, std::size_t most, bool direct)
      : root_(std::move(root)), most_(most), direct_(direct) {}
  open_files(const open_files&) = delete;
  open_files& operator=(const open_files&) = delete;

  /// The folder.
  [[nodiscard]] const root_folder& root() const noexcept { return root_; }
  /// How often a file was opened.
  [[nodiscard]] std::uint64_t opened() const noexcept {
    return opened_.load(std::memory_order_relaxed);
  }
  /// How often a file was opened that has no direct reads.
  [[nodiscard]] std::uint64_t direct_refused() const noexcept {
    return direct_refused_.load(std::memory_order_relaxed);
  }

  /// The file `name`; it stays open while the result lives. Throws what `root_folder::open` throws,
  /// and `file_changed` where it is not the file that it was.
  [[nodiscard]] file open(std::string_view name) {
    {
      const std::lock_guard lock{mutex_};
      const auto known = entries_.find(name);
      if (known != entries_.end() && known->second.opened) return use(known->second);
    }
    // Not under the lock: a slow file system keeps nobody from the files that are open.
    auto opened = std::make_shared<open_file_pair>(open_pair(name));
    std::list<entry*> place(1);  // allocated where nothing has happened yet
    const std::lock_guard lock{mutex_};
    const auto [known, is_new] = entries_.try_emplace(std::string{name});
    entry& one = known->second;
    if (is_new) one.stamp = opened->stamp;
    if (one.stamp != opened->stamp) {
      refuse(name, one.stamp, opened->stamp);
    }
    if (one.opened) return use(one);  // another thread was faster
    if (last_used_.size() >= most_) {
      last_used_.back()->opened.reset();
      last_used_.pop_back();
    }
    one.opened = std::move(opened);
    place.front() = &one;
    last_used_.splice(last_used_.begin(), place);
    one.place = last_used_.begin();
    return one.opened;
  }

  /// Throws `file_changed` where `one`, the file `name`, is not as it was.
  void require_unchanged(std::string_view name, const open_file_pair& one) const {
    struct ::stat status {};
    if (::fstat(one.cached.get(), &status) != 0) {
      throw file_unreadable(root_.path_of(name), 0, "a readable file", system_reason());
    }
    const file_stamp now = file_stamp_of(status);
    if (now != one.stamp) refuse(name, one.stamp, now);
  }

 private:
  struct entry {
    file_stamp stamp = {};
    file opened = nullptr;                   // null: closed
    std::list<entry*>::iterator place = {};  // in `last_used_`, while it is open
  };
  struct name_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const noexcept {
      return std::hash<std::string_view>{}(name);
    }
  };

  [[noreturn]] void refuse(std::string_view name, const file_stamp& was,
                           const file_stamp& now) const {
    const bool is_same = now.device == was.device && now.inode == was.inode;
    throw file_changed(
        root_.path_of(name), 0, "the file as it was when the store first opened it",
        std::string{is_same ? "one that was written to since" : "another file of this name"} +
            ": make a new store when all files are whole");
  }

  [[nodiscard]] const file& use(entry& one) {
    last_used_.splice(last_used_.begin(), last_used_, one.place);
    return one.opened;
  }

  [[nodiscard]] open_file_pair open_pair(std::string_view name) {
    open_file_pair pair{root_.open(name), descriptor{-1}, {}};
    struct ::stat status {};
    if (::fstat(pair.cached.get(), &status) != 0) {
      throw file_unreadable(root_.path_of(name), 0, "a readable file", system_reason());
    }
    pair.stamp = file_stamp_of(status);
    // Relaxed, here and below: they only count.
    opened_.fetch_add(1, std::memory_order_relaxed);
    if (!direct_) return pair;
    // EINVAL: the file system has no direct reads.
    pair.direct = root_.open(name, O_DIRECT, EINVAL);
    if (pair.direct.get() < 0) {
      direct_refused_.fetch_add(1, std::memory_order_relaxed);
      return pair;
    }
    if (::fstat(pair.direct.get(), &status) != 0 || file_stamp_of(status) != pair.stamp) {
      refuse(name, pair.stamp, file_stamp_of(status));  // replaced between the two
    }
    return pair;
  }

  const root_folder root_;
  const std::size_t most_;
  const bool direct_;
  std::atomic<std::uint64_t> opened_{0};
  std::atomic<std::uint64_t> direct_refused_{0};
  std::mutex mutex_;  // guards what follows; held for no call of the system
  std::unordered_map<std::string, entry, name_hash, std::equal_to<>> entries_;
  std::list<entry*> last_used_;  // those that are open, the one used last in front
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
