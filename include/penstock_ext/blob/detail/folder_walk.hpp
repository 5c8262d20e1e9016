// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/blob/blob_error.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/detail/descriptor.hpp>
#include <penstock_ext/blob/detail/folder_listing.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A letter of ASCII as a small one; other bytes as they are.
[[nodiscard]] constexpr char lowered(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

/// Whether `name` ends in one of the `endings`, which are in small letters.
[[nodiscard]] inline bool ends_in_one_of(std::string_view name,
                                         std::span<const std::string> endings) noexcept {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) {
    return name.size() >= ending.size() &&
           std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                      [](char wanted, char found) { return lowered(found) == wanted; });
  });
}

/// Lists the files below a folder by class, as `image_folder` says. Single-use.
class folder_walk {
 public:
  /// Of the open folder `root`, whose path is `path`. `endings` are in small letters.
  folder_walk(int root, const std::string& path, std::span<const std::string> endings,
              bool allow_empty)
      : root_(root), root_path_(path), endings_(endings), allow_empty_(allow_empty) {}

  /// The parts of the listing, without its options. Throws `folder_unreadable`, `empty_folder`,
  /// `folder_cycle`.
  [[nodiscard]] listing_parts list() {
    pending root{"", 0, {}};
    std::vector<std::string> classes;
    read_folder(root, [&](std::string_view name, bool is_folder) {
      if (is_folder) classes.emplace_back(name);
    });
    if (classes.empty()) {
      throw empty_folder(root_path_, "a sub-directory for each class", "none",
                         "one class is a sub-directory too");
    }
    std::sort(classes.begin(), classes.end());
    parts_.add_folder("", no_label, root.stamp);
    all_.push_back(std::move(root));
    for (std::size_t label = 0; label < classes.size(); ++label) list_class(classes[label], label);
    return std::move(parts_);
  }

  /// The seconds since 1970 at which the youngest of all folders was last changed.
  [[nodiscard]] std::int64_t youngest() const noexcept { return youngest_; }
  /// Whether the directory that `status` is of was listed.
  [[nodiscard]] bool has_listed(const struct ::stat& status) const noexcept {
    const auto is_it = [&](const identity& one) { return one == identity_of(status); };
    return std::any_of(identities_.begin(), identities_.end(), is_it) ||
           std::any_of(listed_.begin(), listed_.end(), is_it);
  }

 private:
  struct identity {
    ::dev_t device;
    ::ino_t inode;
    friend bool operator==(const identity&, const identity&) = default;
  };
  [[nodiscard]] static identity identity_of(const struct ::stat& status) noexcept {
    return {status.st_dev, status.st_ino};
  }
  /// A folder that is listed, or will be.
  struct pending {
    std::string path;  // relative to the root
    std::size_t parent;
    folder_stamp stamp;
    std::vector<std::uint32_t> names = {};  // where they start in `characters`, in order
    std::string characters = {};            // the names, each ended by a NUL
  };

  [[nodiscard]] std::string full(const pending& folder) const {
    return joined_path(root_path_, folder.path);
  }

  // Calls use(name, is_folder) for each entry, and notes when the folder was changed before the
  // first one is read: what changes later makes another stamp.
  template <class Use>
  void read_folder(pending& folder, const Use& use) {
    const char* const name = folder.path.empty() ? "." : folder.path.c_str();
    descriptor opened = open_folder(root_, name, full(folder));
    struct ::stat status {};
    if (::fstat(opened.get(), &status) != 0) fail(folder);
    folder.stamp = stamp_of(status);
    youngest_ = (std::max)(youngest_, folder.stamp.seconds);
    require_no_cycle(folder, status);
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
    // A link to nothing is a file, whose reading says what is wrong with it.
    return ::fstatat(base, entry.d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
  }

  void require_no_cycle(const pending& folder, const struct ::stat& status) {
    const bool is_root = all_.empty();
    for (std::size_t above = folder.parent; !is_root; above = all_[above].parent) {
      if (identities_[above] == identity_of(status)) {
        throw folder_cycle(full(folder), "a folder below the ones that it lies in",
                           "a link to " + full(all_[above]), "remove the link");
      }
      if (above == 0) break;
    }
    identities_.push_back(identity_of(status));
  }

  void list_class(const std::string& name, std::uint64_t label) {
    const std::size_t begin = all_.size();
    all_.push_back({name, 0, {}});
    std::size_t files = 0;
    std::size_t entries = 0;
    for (std::size_t at = begin; at < all_.size(); ++at) {
      pending folder = std::move(all_[at]);  // `all_` grows meanwhile
      std::vector<std::string> below;
      std::vector<std::uint32_t> names;
      std::string characters;
      read_folder(folder, [&](std::string_view entry, bool is_folder) {
        if (is_folder) {
          below.emplace_back(joined_path(folder.path, entry));
          return;
        }
        ++entries;
        if (!ends_in_one_of(entry, endings_)) return;
        if (characters.size() > most_characters) {
          throw folder_error(full(folder), "file names of less than 4 GiB in one folder", "more",
                             "spread its files over several folders");
        }
        names.push_back(static_cast<std::uint32_t>(characters.size()));
        characters.append(entry).push_back('\0');
      });
      std::sort(names.begin(), names.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::strcmp(characters.c_str() + a, characters.c_str() + b) < 0;
      });
      files += names.size();
      folder.names = std::move(names);
      folder.characters = std::move(characters);
      all_[at] = std::move(folder);
      for (std::string& path : below) all_.push_back({std::move(path), at, {}});
    }
    if (files == 0 && !allow_empty_) {
      std::string wanted;
      for (const std::string& ending : endings_) wanted += (wanted.empty() ? "" : ", ") + ending;
      throw empty_folder(
          joined_path(root_path_, name), "a file that ends in one of " + wanted,
          entries == 0 ? "no file"
                       : std::to_string(entries) + (entries == 1 ? " other file" : " other files"),
          "add one, remove the folder, or say allow_empty");
    }
    // The class's folders by their whole paths, as Python sorts what os.walk gives: '-' is before
    // '/', so a/b-c comes before a/b/d.
    std::vector<const pending*> order;
    for (std::size_t at = begin; at < all_.size(); ++at) order.push_back(&all_[at]);
    std::sort(order.begin(), order.end(),
              [](const pending* a, const pending* b) { return a->path < b->path; });
    for (const pending* const folder : order) {
      parts_.add_folder(folder->path, label, folder->stamp);
      for (const std::uint32_t at : folder->names) parts_.add_file(folder->characters.c_str() + at);
    }
    all_.erase(all_.begin() + 1, all_.end());
    listed_.insert(listed_.end(), identities_.begin() + 1, identities_.end());
    identities_.erase(identities_.begin() + 1, identities_.end());
  }

  [[noreturn]] void fail(const pending& folder) const {
    throw folder_unreadable(full(folder), "a readable folder", system_reason());
  }

  static constexpr std::size_t most_characters = 0xffff'0000U;  // a name has 255 at most

  int root_;
  std::string root_path_;
  std::span<const std::string> endings_;
  bool allow_empty_;
  listing_parts parts_;
  std::vector<pending> all_;          // the root, and the folders of the class that is listed
  std::vector<identity> identities_;  // of those of `all_` that have been opened
  std::vector<identity> listed_;      // of the folders of earlier classes
  std::int64_t youngest_ = (std::numeric_limits<std::int64_t>::min)();
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
