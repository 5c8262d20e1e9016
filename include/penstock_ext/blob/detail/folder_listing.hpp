// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// By what a folder is known again: its inode, and when an entry was last added, removed or
/// renamed.
struct folder_stamp {
  std::uint64_t inode = 0;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  friend bool operator==(const folder_stamp&, const folder_stamp&) = default;
};

/// The stamp of the folder that `status` is of.
[[nodiscard]] inline folder_stamp stamp_of(const struct ::stat& status) noexcept {
  return {status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

/// A folder of a listing: what lies directly in it starts here and ends where the next one's
/// starts.
struct listed_folder {
  std::uint64_t first_file = 0;
  std::uint64_t names_begin = 0;  ///< of its files' names, in the section of names
  std::uint64_t path_begin = 0;   ///< of its path, in the section of paths
  std::uint64_t label = 0;        ///< the class; of the root: `no_label`
  folder_stamp stamp;
};

inline constexpr std::uint64_t no_label = ~std::uint64_t{0};

/// What stands first in a listing's bytes.
struct listing_header {
  char magic[8] = {'p', 's', 'f', 'o', 'l', 'd', 'e', 'r'};
  std::uint32_t version = 2;
  std::uint32_t byte_order = 0x01020304;  ///< as this machine has it
  std::uint64_t total = 0;                ///< bytes of the listing
  std::uint64_t checksum = 0;             ///< of all bytes after this number
  std::uint64_t folders = 0;
  std::uint64_t files = 0;
  std::uint64_t paths = 0;    ///< bytes
  std::uint64_t names = 0;    ///< bytes
  std::uint64_t options = 0;  ///< bytes
};
static_assert(sizeof(listing_header) == 72 && sizeof(listed_folder) == 56 &&
                  alignof(listing_header) == alignof(listed_folder),
              "the layout of an index file, without padding");

/// The files below a folder, by class: one piece of memory, which is an index file's content too.
///
///     header
///     listed_folder[folders + 1]   the root first; the last one says where the others end
///     u32[files]                   where a file's name starts, from its folder's first name on
///     paths                        of the folders, relative to the root, each ended by a NUL
///     names                        of the files, each ended by a NUL
///     options                      what was asked for, as text
///
/// The folders of a class follow its own one, in the order of the bytes of their paths; the files
/// of a folder are in the order of the bytes of their names. Movable; what it returns stays valid.
class folder_listing {
 public:
  folder_listing() = default;
  /// Of bytes that `check_listing` has no complaint about.
  explicit folder_listing(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  /// All of it.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  /// What stands first.
  [[nodiscard]] const listing_header& header() const noexcept {
    static constexpr listing_header nothing{};  // of one that was moved from
    return bytes_.empty() ? nothing : *reinterpret_cast<const listing_header*>(bytes_.data());
  }
  /// The folders, without the last entry.
  [[nodiscard]] std::span<const listed_folder> folders() const noexcept {
    return {reinterpret_cast<const listed_folder*>(bytes_.data() + sizeof(listing_header)),
            static_cast<std::size_t>(header().folders)};
  }
  /// Where the files' names start.
  [[nodiscard]] std::span<const std::uint32_t> name_offsets() const noexcept {
    return {reinterpret_cast<const std::uint32_t*>(folders().data() + folders().size() + 1),
            static_cast<std::size_t>(header().files)};
  }
  /// The section of paths.
  [[nodiscard]] const char* paths() const noexcept {
    return reinterpret_cast<const char*>(name_offsets().data() + name_offsets().size());
  }
  /// The section of names.
  [[nodiscard]] const char* names() const noexcept { return paths() + header().paths; }
  /// What was asked for.
  [[nodiscard]] std::string_view options() const noexcept {
    return {names() + header().names, static_cast<std::size_t>(header().options)};
  }

  /// The path of a folder; "" is the root.
  [[nodiscard]] std::string_view path(const listed_folder& folder) const noexcept {
    const char* begin = paths() + folder.path_begin;
    return {begin, static_cast<std::size_t>((&folder)[1].path_begin - folder.path_begin - 1)};
  }
  /// The name of file `index`, ended by a NUL.
  [[nodiscard]] const char* name(std::uint64_t index) const noexcept {
    return names() + folder_of(index).names_begin + name_offsets()[static_cast<std::size_t>(index)];
  }
  /// The folder in which file `index` lies.
  [[nodiscard]] const listed_folder& folder_of(std::uint64_t index) const noexcept {
    const auto all = folders();
    const auto after = std::upper_bound(
        all.begin(), all.end(), index,
        [](std::uint64_t file, const listed_folder& folder) { return file < folder.first_file; });
    return *(after - 1);
  }
  /// The names of the classes, by label.
  [[nodiscard]] std::vector<std::string> classes() const {
    std::vector<std::string> found;
    for (const listed_folder& folder : folders()) {
      if (folder.label == found.size()) found.emplace_back(path(folder));
    }
    return found;
  }

 private:
  std::vector<std::byte> bytes_;
};

/// The parts of a listing, from which its bytes are made.
struct listing_parts {
  std::vector<listed_folder> folders;  ///< without the last entry
  std::vector<std::uint32_t> name_offsets;
  std::string paths;
  std::string names;
  std::string options;

  /// Adds a folder; its files follow by `add_file`, before the next folder.
  void add_folder(std::string_view path, std::uint64_t label, const folder_stamp& stamp) {
    folders.push_back({name_offsets.size(), names.size(), paths.size(), label, stamp});
    paths.append(path).push_back('\0');
  }
  /// Adds a file to the last folder, whose names take less than 4 GiB.
  void add_file(std::string_view name) {
    name_offsets.push_back(static_cast<std::uint32_t>(names.size() - folders.back().names_begin));
    names.append(name).push_back('\0');
  }

  /// The bytes, but for the checksum.
  [[nodiscard]] std::vector<std::byte> joined() const {
    listing_header header;
    header.folders = folders.size();
    header.files = name_offsets.size();
    header.paths = paths.size();
    header.names = names.size();
    header.options = options.size();
    const listed_folder end{name_offsets.size(), names.size(), paths.size(), no_label, {}};
    header.total = sizeof header + (folders.size() + 1) * sizeof end +
                   name_offsets.size() * sizeof(std::uint32_t) + paths.size() + names.size() +
                   options.size();
    std::vector<std::byte> bytes;
    bytes.reserve(static_cast<std::size_t>(header.total));
    const auto append = [&](const void* from, std::size_t count) {
      const auto* first = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), first, first + count);
    };
    append(&header, sizeof header);
    append(folders.data(), folders.size() * sizeof end);
    append(&end, sizeof end);
    append(name_offsets.data(), name_offsets.size() * sizeof(std::uint32_t));
    append(paths.data(), paths.size());
    append(names.data(), names.size());
    append(options.data(), options.size());
    return bytes;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
