// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/hidden_path.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns true if `name` ends in one of `endings`, ignoring case. `endings` must be in lower case.
[[nodiscard]] inline bool ends_in_one_of(std::string_view name,
                                         std::span<const std::string> endings) noexcept {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) {
    return name.size() >= ending.size() &&
           std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                      [](char wanted, char found) { return lowered(found) == wanted; });
  });
}

/// A folder in a listing. The files of a folder precede the files of the next folder.
struct listed_folder {
  std::uint64_t first_file = 0;
  std::uint64_t names_begin = 0;  ///< Start of its file names in the buffer of names.
  std::uint64_t path_begin = 0;   ///< Start of its path in the buffer of paths.
  std::uint64_t label = 0;        ///< Class index, or `no_label` for the root.
};

inline constexpr std::uint64_t no_label = ~std::uint64_t{0};

/// The files below a folder, grouped by class. Occupies 5 bytes plus the name for each file, and 33
/// bytes plus the path for each folder. The subfolders of a class follow its folder, sorted
/// bytewise by path. The files in a folder are sorted bytewise by name.
class folder_listing {
 public:
  /// Appends a folder. All files of the previous folder must have been added and sorted.
  void add_folder(std::string_view path, std::uint64_t label) {
    folders_.push_back({name_offsets_.size(), names_.size(), paths_.size(), label});
    paths_.append(path).push_back('\0');
  }
  /// Adds a file to the last folder. Returns false if the folder's names would exceed 4 GiB.
  [[nodiscard]] bool add_file(std::string_view name) {
    const std::uint64_t offset = names_.size() - folders_.back().names_begin;
    if (offset > max_characters) return false;
    name_offsets_.push_back(static_cast<std::uint32_t>(offset));
    names_.append(name).push_back('\0');
    return true;
  }
  /// Sorts the files of the last folder by name.
  void sort_files() {
    const char* const names = names_.c_str() + folders_.back().names_begin;
    std::sort(name_offsets_.begin() + static_cast<std::ptrdiff_t>(folders_.back().first_file),
              name_offsets_.end(), [names](std::uint32_t a, std::uint32_t b) {
                return std::strcmp(names + a, names + b) < 0;
              });
  }

  /// Returns the number of files.
  [[nodiscard]] std::uint64_t files() const noexcept { return name_offsets_.size(); }
  /// Returns a folder's path relative to the root, followed by a NUL. The root is "".
  [[nodiscard]] std::string_view path(const listed_folder& folder) const noexcept {
    return paths_.data() + folder.path_begin;
  }
  /// Returns the name of file `index`, followed by a NUL.
  [[nodiscard]] const char* name(std::uint64_t index) const noexcept {
    return names_.data() + folder_of(index).names_begin +
           name_offsets_[static_cast<std::size_t>(index)];
  }
  /// Returns the folder that contains file `index`.
  [[nodiscard]] const listed_folder& folder_of(std::uint64_t index) const noexcept {
    const auto after = std::upper_bound(
        folders_.begin(), folders_.end(), index,
        [](std::uint64_t file, const listed_folder& folder) { return file < folder.first_file; });
    return *(after - 1);
  }
  /// Returns the class names, indexed by label.
  [[nodiscard]] std::vector<std::string> classes() const {
    std::vector<std::string> found;
    for (const listed_folder& folder : folders_) {
      if (folder.label == found.size()) found.emplace_back(path(folder));
    }
    return found;
  }

 private:
  static constexpr std::uint64_t max_characters = 0xffff'0000U;  // a file name has at most 255

  std::vector<listed_folder> folders_;       // the root first
  std::vector<std::uint32_t> name_offsets_;  // relative to the folder's first name
  std::string paths_;
  std::string names_;
};

/// Lists the files below a folder by class, in the order that `image_folder` documents. Single-use.
class folder_walk {
 public:
  /// Prepares a walk of the open directory `root` with the path `path`. `endings` must be in lower
  /// case.
  folder_walk(int root, const std::string& path, std::span<const std::string> endings,
              bool allow_empty)
      : root_(root), root_path_(path), endings_(endings), allow_empty_(allow_empty) {}

  /// Lists the files. Throws `folder_unreadable`, `empty_folder` and `folder_cycle`.
  [[nodiscard]] folder_listing list() {
    std::vector<std::string> classes;
    listing_.add_folder("", no_label);
    read_folder("", 0, [&](std::string_view name, bool is_folder) {
      if (is_folder) classes.emplace_back(name);
    });
    if (classes.empty()) {
      throw empty_folder(
          root_path_, "a sub-directory for each class",
          hidden_.count == 0 ? "none" : "only hidden entries, such as " + hidden_.example,
          "also use a sub-directory for a single class");
    }
    std::sort(classes.begin(), classes.end());
    for (std::size_t label = 0; label < classes.size(); ++label) list_class(classes[label], label);
    return std::move(listing_);
  }

  /// Returns the hidden entries that `list` skipped.
  [[nodiscard]] hidden_entries& hidden() noexcept { return hidden_; }

 private:
  struct opened_folder {
    std::string path;    // relative to the root
    std::size_t parent;  // index in `opened_`; the root is its own parent
    ::dev_t device;
    ::ino_t inode;
  };

  [[nodiscard]] std::string full(std::string_view folder) const {
    return joined_path(root_path_, folder);
  }

  // Calls use(name, is_folder) for each entry of the folder. During the calls, the folder is the
  // last element of `opened_`.
  template <class Use>
  void read_folder(const std::string& folder, std::size_t parent, const Use& use) {
    descriptor opened = open_folder(root_, folder.empty() ? "." : folder.c_str(), full(folder));
    struct ::stat status {};
    if (::fstat(opened.get(), &status) != 0) fail(folder);
    require_no_cycle(folder, parent, status);
    opened_.push_back({folder, parent, status.st_dev, status.st_ino});
    const std::unique_ptr<::DIR, int (*)(::DIR*)> entries{::fdopendir(opened.get()), &::closedir};
    if (entries == nullptr) fail(folder);
    static_cast<void>(opened.release());  // closedir closes it
    while (true) {
      errno = 0;
      const ::dirent* const entry = ::readdir(entries.get());
      if (entry == nullptr) {
        if (errno != 0) fail(folder);
        break;
      }
      const std::string_view found{entry->d_name};
      if (found == "." || found == "..") continue;
      if (is_hidden_path(found)) {
        hidden_.add(joined_path(folder, found));
        continue;
      }
      use(found, is_folder(::dirfd(entries.get()), *entry));
    }
  }

  [[nodiscard]] static bool is_folder(int base, const ::dirent& entry) noexcept {
    if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
    struct ::stat status {};
    // A dangling link counts as a file. Reading it reports the error.
    return ::fstatat(base, entry.d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
  }

  void require_no_cycle(const std::string& folder, std::size_t parent,
                        const struct ::stat& status) const {
    for (std::size_t above = parent; !opened_.empty(); above = opened_[above].parent) {
      const opened_folder& one = opened_[above];
      if (one.device == status.st_dev && one.inode == status.st_ino) {
        throw folder_cycle(full(folder), "a folder that does not contain itself",
                           "a link to " + full(one.path), "remove the link");
      }
      if (above == 0) break;
    }
  }

  void list_class(const std::string& name, std::uint64_t label) {
    // The pending folders of the class, sorted by full path like Python's sorted os.walk results:
    // '-' sorts before '/', so a/b-c precedes a/b/d. A folder precedes its content, so the first
    // pending folder is always visited next. The value is the parent's index in `opened_`.
    std::map<std::string, std::size_t> pending{{name, 0}};
    const std::uint64_t files_before = listing_.files();
    std::size_t entries = 0;
    while (!pending.empty()) {
      const auto folder = pending.extract(pending.begin());
      const std::string& path = folder.key();
      const std::size_t number = opened_.size();
      listing_.add_folder(path, label);
      read_folder(path, folder.mapped(), [&](std::string_view entry, bool is_folder) {
        if (is_folder) {
          pending.emplace(joined_path(path, entry), number);
          return;
        }
        ++entries;
        if (ends_in_one_of(entry, endings_) && !listing_.add_file(entry)) {
          throw folder_error(full(path), "file names of less than 4 GiB in one folder", "more",
                             "spread its files over several folders");
        }
      });
      listing_.sort_files();
    }
    if (listing_.files() == files_before && !allow_empty_) {
      std::string wanted;
      for (const std::string& ending : endings_) wanted += (wanted.empty() ? "" : ", ") + ending;
      throw empty_folder(
          full(name), "a file that ends in one of " + wanted,
          entries == 0 ? "no file"
                       : std::to_string(entries) + (entries == 1 ? " other file" : " other files"),
          "add one, remove the folder, or set allow_empty");
    }
    opened_.erase(opened_.begin() + 1, opened_.end());
  }

  [[noreturn]] void fail(const std::string& folder) const {
    throw folder_unreadable(full(folder), "a readable folder", system_reason());
  }

  int root_;
  std::string root_path_;
  std::span<const std::string> endings_;
  bool allow_empty_;
  folder_listing listing_;
  hidden_entries hidden_;
  std::vector<opened_folder> opened_;  // the root and the current class's folders
};

}  // namespace detail

/// Options of an `image_folder`.
struct image_folder_options {
  /// File name extensions to list, ignoring case. Other files are skipped. At least one is
  /// required.
  std::vector<std::string> extensions = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                         ".pgm", ".tif",  ".tiff", ".webp"};
  /// Allows classes without files. If false, the first empty class causes `empty_folder`.
  bool allow_empty = false;
  /// Maximum file size in bytes. For a larger file, `bytes` throws `file_format_error` before it
  /// allocates memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
};

/// A `blob_source` of the files below a folder, labeled by subdirectory like torchvision's
/// `ImageFolder`. Unlike torchvision, it ignores hidden files and folders (`is_hidden_path`), so
/// that `.ipynb_checkpoints` does not become a class. `warnings()` reports them.
///
///     image_folder photos{"imagenet/train"};             // imagenet/train/<class>/.../<file>
///
/// The classes are the subdirectories, sorted bytewise by name. For UTF-8 names this is code point
/// order, as in Python. A class contains the files at any depth below its directory. Folders are
/// sorted bytewise by path, and the files in a folder by name. Links are followed, and a link to a
/// parent folder causes `folder_cycle`. Dangling links and special files are listed, and reading
/// them throws.
///
/// The source occupies 5 bytes plus the name for each file, 33 bytes plus the path for each folder,
/// and one file descriptor. Movable, not copyable. Reading is thread-safe.
class image_folder {
 public:
  /// Lists `folder`. Throws `folder_unreadable`, `empty_folder`, `folder_cycle`, and `option_error`
  /// if an option is invalid.
  explicit image_folder(std::string folder, image_folder_options options = {})
      : path_(std::move(folder)),
        max_bytes_(options.max_bytes),
        root_(detail::open_folder(AT_FDCWD, path_.c_str(), path_)) {
    lower(options.extensions);
    detail::folder_walk walk{root_.get(), path_, options.extensions, options.allow_empty};
    listing_ = walk.list();
    hidden_ = std::move(walk.hidden());
    classes_ = listing_.classes();
  }

  /// Returns the number of files.
  [[nodiscard]] std::uint64_t size() const noexcept { return listing_.files(); }

  /// Returns the content of file `index`, read into `buffer`. Throws `index_error`,
  /// `file_unreadable`, `file_format_error` if the file exceeds `max_bytes`, and `file_changed` if
  /// the file was modified during the read.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    require(index);
    file_path name;
    if (!name.set(listing_, index)) {
      errno = ENAMETOOLONG;
      throw file_unreadable(detail::joined_path(path_, key(index)), 0, "a readable file",
                            detail::system_reason());
    }
    return detail::read_blob({root_.get(), name.characters, path_}, max_bytes_, buffer);
  }

  /// Returns the class index of file `index`. The index refers to `classes()`. Throws `index_error`
  /// if `index` is out of range.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    require(index);
    return static_cast<std::int64_t>(listing_.folder_of(index).label);
  }

  /// Returns the path of file `index` relative to the folder. Throws `index_error` if `index` is
  /// out of range.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    require(index);
    return detail::joined_path(listing_.path(listing_.folder_of(index)), listing_.name(index));
  }

  /// Starts a background read of the file with posix_fadvise, so that the disk can serve several
  /// reads concurrently. If the page cache holds the file, the call costs only an open and a close.
  /// Does nothing if the index is out of range or the file cannot be opened.
  void prefetch(std::uint64_t index) const noexcept {
    file_path name;
    if (index < size() && name.set(listing_, index)) {
      detail::prefetch_blob({root_.get(), name.characters, path_});
    }
  }

  /// Returns the class names, indexed by label.
  [[nodiscard]] const std::vector<std::string>& classes() const noexcept { return classes_; }
  /// Returns the number of skipped hidden files and folders. A hidden folder counts as 1.
  [[nodiscard]] std::uint64_t hidden() const noexcept { return hidden_.count; }
  /// Returns a warning if hidden entries were skipped. `loader::footprint` repeats it.
  [[nodiscard]] std::vector<std::string> warnings() const {
    return hidden_.warnings(path_, "hidden files and folders");
  }

 private:
  // A NUL-terminated path relative to the root.
  struct file_path {
    char characters[PATH_MAX];  // longer paths are rejected by the system

    [[nodiscard]] bool set(const detail::folder_listing& listing, std::uint64_t index) noexcept {
      const std::string_view folder = listing.path(listing.folder_of(index));
      const std::string_view name = listing.name(index);
      if (folder.size() + name.size() + 2 > sizeof characters) return false;
      std::memcpy(characters, folder.data(), folder.size());
      characters[folder.size()] = '/';
      std::memcpy(characters + folder.size() + 1, name.data(), name.size() + 1);
      return true;
    }
  };

  void require(std::uint64_t index) const {
    if (index >= size()) throw index_error("image_folder " + path_, index, size());
  }

  // Converts the extensions to lower case.
  static void lower(std::vector<std::string>& endings) {
    if (endings.empty()) throw option_error("extensions", "must not be empty");
    for (std::string& ending : endings) {
      if (ending.find_first_of(std::string_view{"/\0", 2}) != std::string::npos) {
        throw option_error("extensions", "'" + ending + "' is not a file name extension");
      }
      std::transform(ending.begin(), ending.end(), ending.begin(), detail::lowered);
    }
  }

  std::string path_;
  std::uint64_t max_bytes_;
  detail::descriptor root_;
  detail::folder_listing listing_;
  detail::hidden_entries hidden_;
  std::vector<std::string> classes_;
};

static_assert(blob_source<image_folder>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
