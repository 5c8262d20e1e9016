// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/blob/detail/folder_listing.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/checksum.hpp>
#include <penstock_ext/files/support/file_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Sets the checksum of a listing's bytes.
inline void seal_listing(std::span<std::byte> bytes) noexcept {
  constexpr std::size_t end = offsetof(listing_header, checksum) + sizeof(std::uint64_t);
  const std::uint64_t sum = checksum(bytes.subspan(end));
  std::memcpy(bytes.data() + offsetof(listing_header, checksum), &sum, sizeof sum);
}

/// Whether the header says how long the listing is, and is of this version and machine; else what
/// is wrong.
[[nodiscard]] inline std::string_view check_header(const listing_header& header,
                                                   std::uint64_t total) noexcept {
  const listing_header known;
  if (std::memcmp(header.magic, known.magic, sizeof known.magic) != 0) return "it is no index";
  if (header.version != known.version || header.byte_order != known.byte_order) {
    return "it is of another version of penstock, or of another kind of machine";
  }
  std::uint64_t folders = 0;
  std::uint64_t files = 0;
  std::uint64_t sum = sizeof known;
  bool is_wrong = __builtin_mul_overflow(header.folders, sizeof(listed_folder), &folders) ||
                  __builtin_mul_overflow(header.files, sizeof(std::uint32_t), &files);
  for (const std::uint64_t part : {folders, std::uint64_t{sizeof(listed_folder)}, files,
                                   header.paths, header.names, header.options}) {
    is_wrong = __builtin_add_overflow(sum, part, &sum) || is_wrong;
  }
  if (is_wrong || sum != total || header.total != total) return "its length is not what it says";
  constexpr std::uint64_t most = std::uint64_t{1} << 32;  // 1.3 million files take 32 MB
  if (total > most) return "it is larger than 4 GiB";
  return {};
}

/// Whether a relative path stays below where it is looked up: no part of it is empty, "." or "..".
[[nodiscard]] inline bool stays_below(std::string_view path) noexcept {
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

/// Checks what a listing's bytes say, one after the other. Made of bytes whose header is right.
class listing_check {
 public:
  explicit listing_check(const folder_listing& listing) noexcept : listing_(listing) {}

  /// Whether the folders are in order, lie below the root, and share out all files and names.
  [[nodiscard]] bool folders_are_right() const noexcept {
    const auto all = listing_.folders();
    const listing_header& header = listing_.header();
    if (all.empty()) return false;
    const listed_folder& end = all.data()[all.size()];
    if (all[0].names_begin != 0 || all[0].path_begin != 0 || end.first_file != header.files ||
        end.names_begin != header.names || end.path_begin != header.paths) {
      return false;
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const listed_folder& next = all.data()[i + 1];
      // A path has its NUL at least, so that its end can't be before its start below.
      if (next.first_file < all[i].first_file || next.names_begin < all[i].names_begin ||
          next.path_begin <= all[i].path_begin || next.path_begin > header.paths) {
        return false;
      }
      const std::string_view path = listing_.path(all[i]);
      if (path.find('\0') != std::string_view::npos || path.data()[path.size()] != '\0') {
        return false;
      }
    }
    // The root has no label, no path and no files of its own.
    if (all[0].label != no_label || !listing_.path(all[0]).empty() || first_after(0) != 0) {
      return false;
    }
    std::string_view of_class;
    for (std::size_t i = 1; i < all.size(); ++i) {
      const std::string_view path = listing_.path(all[i]);
      const bool is_class = path.find('/') == std::string_view::npos;
      const std::uint64_t label = all[i - 1].label;  // that of the root is one below 0
      if (!stays_below(path)) return false;
      if (is_class ? all[i].label != label + 1 || path <= of_class
                   : all[i].label != label || path <= listing_.path(all[i - 1]) ||
                         path.substr(0, path.find('/')) != of_class) {
        return false;
      }
      if (is_class) of_class = path;
    }
    return true;
  }

  /// Whether each folder's files have names in order, that are names and no paths.
  [[nodiscard]] bool names_are_right() const noexcept {
    const auto offsets = listing_.name_offsets();
    const char* const names = listing_.names();
    const auto bytes = static_cast<std::size_t>(listing_.header().names);
    // As many ends as names, and below an end where each name has to have one: there are no others.
    if (static_cast<std::uint64_t>(std::count(names, names + bytes, '\0')) != offsets.size() ||
        std::find(names, names + bytes, '/') != names + bytes) {
      return false;
    }
    const auto all = listing_.folders();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const listed_folder& next = all.data()[i + 1];
      const std::uint64_t room = next.names_begin - all[i].names_begin;
      if (all[i].first_file == next.first_file && room != 0) return false;
      std::string_view last;
      std::uint64_t begin = 0;
      for (std::uint64_t file = all[i].first_file; file < next.first_file; ++file) {
        const bool is_last = file + 1 == next.first_file;
        const std::uint64_t end = is_last ? room : offsets[static_cast<std::size_t>(file + 1)];
        if (offsets[static_cast<std::size_t>(file)] != begin || end <= begin || end > room) {
          return false;
        }
        const char* const first = names + all[i].names_begin + begin;
        const std::string_view name{first, static_cast<std::size_t>(end - begin - 1)};
        if (first[name.size()] != '\0' || name <= last || name == "." || name == "..") return false;
        last = name;
        begin = end;
      }
    }
    return true;
  }

 private:
  [[nodiscard]] std::uint64_t first_after(std::size_t folder) const noexcept {
    return listing_.folders().data()[folder + 1].first_file;
  }

  const folder_listing& listing_;
};

/// What is wrong with the bytes of an index, "" if nothing is: then they are a listing whose paths
/// all stay below the folder. Any bytes may come.
[[nodiscard]] inline std::string_view check_listing(const folder_listing& listing) noexcept {
  const auto bytes = listing.bytes();
  if (bytes.size() < sizeof(listing_header)) return "it is no index";
  const listing_header& header = listing.header();
  if (const auto problem = check_header(header, bytes.size()); !problem.empty()) return problem;
  constexpr std::size_t end = offsetof(listing_header, checksum) + sizeof header.checksum;
  if (header.checksum != checksum(bytes.subspan(end))) return "it is damaged: its checksum differs";
  const listing_check check{listing};
  if (!check.folders_are_right() || !check.names_are_right()) return "what it says can't be";
  return {};
}

/// The listing in the file `path`; no listing, and what is wrong in `problem`, where there is none
/// that can be used. Reads no further than the header of a file that is not as long as it says.
[[nodiscard]] inline std::optional<folder_listing> read_index(const std::string& path,
                                                              std::string& problem) {
  try {
    file_source file{path};
    const std::uint64_t total = file.available();
    std::vector<std::byte> bytes;
    append_bytes(file, bytes, sizeof(listing_header));
    if (bytes.size() == sizeof(listing_header)) {
      listing_header header;
      std::memcpy(&header, bytes.data(), sizeof header);
      problem = check_header(header, total);
      if (!problem.empty()) return std::nullopt;
      append_bytes(file, bytes, total - sizeof header);
    }
    folder_listing listing{std::move(bytes)};
    problem = check_listing(listing);
    if (problem.empty()) return listing;
  } catch (const file_error& error) {
    problem = "it can't be read: " + error.found();
  } catch (const std::bad_alloc&) {
    problem = "it takes more memory than there is";
  }
  return std::nullopt;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
