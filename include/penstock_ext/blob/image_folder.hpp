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

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether `name` ends in one of the `endings`, which are in small letters.
[[nodiscard]] inline bool ends_in_one_of(std::string_view name,
                                         std::span<const std::string> endings) noexcept {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) {
    return name.size() >= ending.size() &&
           std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                      [](char wanted, char found) { return lowered(found) == wanted; });
  });
}

/// A folder of a listing: what lies directly in it starts here and ends where the next one's
/// starts.
struct listed_folder {
  std::uint64_t first_file = 0;
  std::uint64_t names_begin = 0;  ///< of its files' names, among all names
  std::uint64_t path_begin = 0;   ///< of its path, among all paths
  std::uint64_t label = 0;        ///< the class; of the root: `no_label`
};

inline constexpr std::uint64_t no_label = ~std::uint64_t{0};

/// The files below a folder, by class: 5 bytes and the name for a file, 33 and the path for a
/// folder. The folders of a class follow its own one, in the order of the bytes of their paths; the
/// files of a folder are in the order of the bytes of their names.
class folder_listing {
 public:
  /// Adds a folder; its files follow by `add_file` and `sort_files`, before the next folder.
  void add_folder(std::string_view path, std::uint64_t label) {
    folders_.push_back({name_offsets_.size(), names_.size(), paths_.size(), label});
    paths_.append(path).push_back('\0');
  }
  /// Adds a file to the last folder; false where its names would take 4 GiB.
  [[nodiscard]] bool add_file(std::string_view name) {
    const std::uint64_t offset = names_.size() - folders_.back().names_begin;
    if (offset > most_characters) return false;
    name_offsets_.push_back(static_cast<std::uint32_t>(offset));
    names_.append(name).push_back('\0');
    return true;
  }
  /// Puts the files of the last folder into their order.
  void sort_files() {
    const char* const names = names_.c_str() + folders_.back().names_begin;
    std::sort(name_offsets_.begin() + static_cast<std::ptrdiff_t>(folders_.back().first_file),
              name_offsets_.end(), [names](std::uint32_t a, std::uint32_t b) {
                return std::strcmp(names + a, names + b) < 0;
              });
  }

  /// How many files there are.
  [[nodiscard]] std::uint64_t files() const noexcept { return name_offsets_.size(); }
  /// The path of a folder, relative to the root and ended by a NUL; "" is the root.
  [[nodiscard]] std::string_view path(const listed_folder& folder) const noexcept {
    return paths_.data() + folder.path_begin;
  }
  /// The name of file `index`, ended by a NUL.
  [[nodiscard]] const char* name(std::uint64_t index) const noexcept {
    return names_.data() + folder_of(index).names_begin +
           name_offsets_[static_cast<std::size_t>(index)];
  }
  /// The folder in which file `index` lies.
  [[nodiscard]] const listed_folder& folder_of(std::uint64_t index) const noexcept {
    const auto after = std::upper_bound(
        folders_.begin(), folders_.end(), index,
        [](std::uint64_t file, const listed_folder& folder) { return file < folder.first_file; });
    return *(after - 1);
  }
  /// The names of the classes, by label.
  [[nodiscard]] std::vector<std::string> classes() const {
    std::vector<std::string> found;
    for (const listed_folder& folder : folders_) {
      if (folder.label == found.size()) found.emplace_back(path(folder));
    }
    return found;
  }

 private:
  static constexpr std::uint64_t most_characters = 0xffff'0000U;  // a name has 255 at most

  std::vector<listed_folder> folders_;       // the root first
  std::vector<std::uint32_t> name_offsets_;  // from the folder's first name on
  std::string paths_;
  std::string names_;
};

/// Lists the files below a folder by class, in the order of `image_folder`. Single-use.
class folder_walk {
 public:
  /// Of the open folder `root`, whose path is `path`. `endings` are in small letters.
  folder_walk(int root, const std::string& path, std::span<const std::string> endings,
              bool allow_empty)
      : root_(root), root_path_(path), endings_(endings), allow_empty_(allow_empty) {}

  /// The listing. Throws `folder_unreadable`, `empty_folder`, `folder_cycle`.
  [[nodiscard]] folder_listing list() {
    std::vector<std::string> classes;
    listing_.add_folder("", no_label);
    read_folder("", 0, [&](std::string_view name, bool is_folder) {
      if (is_folder) classes.emplace_back(name);
    });
    if (classes.empty()) {
      throw empty_folder(root_path_, "a sub-directory for each class", "none",
                         "one class is a sub-directory too");
    }
    std::sort(classes.begin(), classes.end());
    for (std::size_t label = 0; label < classes.size(); ++label) list_class(classes[label], label);
    return std::move(listing_);
  }

 private:
  /// A folder that has been opened.
  struct opened_folder {
    std::string path;    // relative to the root
    std::size_t parent;  // in `opened_`; of the root: itself
    ::dev_t device;
    ::ino_t inode;
  };

  [[nodiscard]] std::string full(std::string_view folder) const {
    return joined_path(root_path_, folder);
  }

  // Calls use(name, is_folder) for each entry of the folder, which is the last one opened then.
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
      use(found, is_folder(::dirfd(entries.get()), *entry));
    }
  }

  [[nodiscard]] static bool is_folder(int base, const ::dirent& entry) noexcept {
    if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
    struct ::stat status {};
    // A link to nothing counts as a file; reading it throws the reason.
    return ::fstatat(base, entry.d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
  }

  void require_no_cycle(const std::string& folder, std::size_t parent,
                        const struct ::stat& status) const {
    for (std::size_t above = parent; !opened_.empty(); above = opened_[above].parent) {
      const opened_folder& one = opened_[above];
      if (one.device == status.st_dev && one.inode == status.st_ino) {
        throw folder_cycle(full(folder), "a folder below the ones that it lies in",
                           "a link to " + full(one.path), "remove the link");
      }
      if (above == 0) break;
    }
  }

  void list_class(const std::string& name, std::uint64_t label) {
    // The class's folders by their whole paths, as Python sorts what os.walk gives: '-' is before
    // '/', so a/b-c comes before a/b/d. What is below a folder comes after it, so the first that is
    // known is the next. With each, its parent in `opened_`.
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
          "add one, remove the folder, or say allow_empty");
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
  std::vector<opened_folder> opened_;  // the root, and folders of the class that is listed
};

}  // namespace detail

/// What an `image_folder` lists, and how.
struct image_folder_options {
  /// What a file's name ends in, in letters of any case; others are not listed. At least one.
  std::vector<std::string> extensions = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                         ".pgm", ".tif",  ".tiff", ".webp"};
  /// Whether a class may have no file. If not, `empty_folder` names the first such.
  bool allow_empty = false;
  /// The largest file that is read, in bytes: `bytes` throws `file_format_error` for a larger one,
  /// before it takes memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
};

/// The files below a folder, labelled by the sub-directory that they lie in, as torchvision's
/// `ImageFolder` has them: a `blob_source`.
///
///     image_folder photos{"imagenet/train"};             // imagenet/train/<class>/.../<file>
///
/// The classes are the sub-directories in the order of the bytes of their names: that of code
/// points, as Python sorts, where names are UTF-8. A class's files are those at any depth below it:
/// folders in the order of the bytes of their paths, in each the files by name. Links are followed;
/// one that leads back to a folder above it is a `folder_cycle`. A link to nothing, and what is no
/// regular file, is listed by its name, and throws when it is read.
///
/// Takes 5 bytes and the name for a file, 33 and the path for a folder, and one file descriptor for
/// the folder. Movable, not copyable. Reading is thread-safe.
class image_folder {
 public:
  /// Lists `folder`. Throws `folder_unreadable`, `empty_folder`, `folder_cycle`, and `option_error`
  /// for options that mean nothing.
  explicit image_folder(std::string folder, image_folder_options options = {})
      : path_(std::move(folder)),
        max_bytes_(options.max_bytes),
        root_(detail::open_folder(AT_FDCWD, path_.c_str(), path_)) {
    lower(options.extensions);
    listing_ =
        detail::folder_walk{root_.get(), path_, options.extensions, options.allow_empty}.list();
    classes_ = listing_.classes();
  }

  /// How many files there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return listing_.files(); }

  /// The content of file `index`, read into `buffer`. Throws `index_error`, `file_unreadable`,
  /// `file_format_error` above `max_bytes`, and `file_changed` where it was written to meanwhile.
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

  /// The class of file `index`: its place in `classes()`. Throws `index_error`.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    require(index);
    return static_cast<std::int64_t>(listing_.folder_of(index).label);
  }

  /// The path of file `index`, relative to the folder. Throws `index_error`.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    require(index);
    return detail::joined_path(listing_.path(listing_.folder_of(index)), listing_.name(index));
  }

  /// Has the system read the file ahead, by posix_fadvise: several reads are under way then where
  /// the files are on a disk, for one more open and close where they are in memory already. Does
  /// nothing for an index out of range, and for what can't be opened.
  void prefetch(std::uint64_t index) const noexcept {
    file_path name;
    if (index < size() && name.set(listing_, index)) {
      detail::prefetch_blob({root_.get(), name.characters, path_});
    }
  }

  /// The names of the classes, by label.
  [[nodiscard]] const std::vector<std::string>& classes() const noexcept { return classes_; }

 private:
  // A path relative to the root, ended by a NUL.
  struct file_path {
    char characters[PATH_MAX];  // what is longer the system does not take

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

  // Makes the extensions those to compare with.
  static void lower(std::vector<std::string>& endings) {
    if (endings.empty()) throw option_error("extensions", "must not be empty");
    for (std::string& ending : endings) {
      if (ending.find_first_of(std::string_view{"/\0", 2}) != std::string::npos) {
        throw option_error("extensions", "'" + ending + "' is no end of a file's name");
      }
      std::transform(ending.begin(), ending.end(), ending.begin(), detail::lowered);
    }
  }

  std::string path_;
  std::uint64_t max_bytes_;
  detail::descriptor root_;
  detail::folder_listing listing_;
  std::vector<std::string> classes_;
};

static_assert(blob_source<image_folder>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
