// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/blob/blob_error.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/detail/folder_walk.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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

  /// The folder, as it was given.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The names of the classes, by label.
  [[nodiscard]] const std::vector<std::string>& classes() const noexcept { return classes_; }
  /// The label of the class called `name`; none where there is no such class.
  [[nodiscard]] std::optional<std::int64_t> class_of(std::string_view name) const noexcept {
    const auto found = std::lower_bound(classes_.begin(), classes_.end(), name);
    if (found == classes_.end() || *found != name) return std::nullopt;
    return found - classes_.begin();
  }

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
