// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/detail/descriptor.hpp>
#include <penstock_ext/blob/detail/folder_index.hpp>
#include <penstock_ext/blob/detail/folder_listing.hpp>
#include <penstock_ext/blob/detail/folder_walk.hpp>
#include <penstock_ext/files/support/whole_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The listing of a folder, from its index file where that fits, else from the folder; then the
/// index file is written anew.
struct kept_listing {
  folder_listing listing;
  bool is_from_index = false;
  std::string problem = {};  ///< why the index was not used or not written

  /// The first folder that is not as the listing has it, in words; "" where all are.
  [[nodiscard]] static std::string changed_folder(int root, const std::string& path,
                                                  const folder_listing& listing) {
    for (const listed_folder& folder : listing.folders()) {
      const std::string_view relative = listing.path(folder);  // a NUL ends it
      struct ::stat status {};
      const char* const name = relative.empty() ? "." : relative.data();
      if (::fstatat(root, name, &status, 0) == 0 && stamp_of(status) == folder.stamp) continue;
      return joined_path(path, relative) + " has changed, or is another folder";
    }
    return {};
  }

  /// Takes the listing of the index file `index`, if it is of the folder `root` as it is now and of
  /// the same options.
  void read(const std::string& index, int root, const std::string& path, std::string_view options) {
    std::string wrong;
    auto found = read_index(index, wrong);
    if (found && found->options() != options) wrong = "it is of other options";
    if (found && wrong.empty()) wrong = changed_folder(root, path, *found);
    if (wrong.empty()) {
      listing = std::move(*found);
      is_from_index = true;
    } else if (::access(index.c_str(), F_OK) == 0) {
      problem = index + ": not used: " + wrong;
    }
  }

  /// Writes the listing's bytes to the file `index`; what went wrong, "" if nothing did. A folder
  /// that was changed at `youngest`, less than two seconds before the listing began at `began`,
  /// may since have changed once more and have the same time.
  [[nodiscard]] static std::string write(const std::string& index, std::span<const std::byte> bytes,
                                         std::int64_t youngest, std::int64_t began) {
    constexpr std::int64_t coarsest = 2;  // the seconds that a file system may count in
    if (youngest > began - coarsest) {
      return "a folder had changed in the last " + std::to_string(coarsest) + " seconds";
    }
    errno = write_whole_file(index, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return errno == 0 ? "" : system_reason();
  }

  /// Lists the folder, and writes the index unless that is "". Throws what `folder_walk` throws,
  /// and `option_error` for an index whose writing would change the time of a folder listed.
  void list(const std::string& index, int root, const std::string& path,
            std::span<const std::string> endings, bool allow_empty, const std::string& options) {
    const auto began = static_cast<std::int64_t>(std::time(nullptr));
    folder_walk walk{root, path, endings, allow_empty};
    listing_parts parts = walk.list();
    parts.options = options;
    std::vector<std::byte> bytes = parts.joined();
    if (!index.empty()) {
      std::error_code none;                                       // a file that is not there yet
      const auto real = std::filesystem::canonical(index, none);  // a link is written through
      const std::string where = none ? index : real.string();
      const std::size_t slash = where.rfind('/');
      const std::string beside = slash == std::string::npos ? "." : where.substr(0, slash + 1);
      struct ::stat status {};
      if (::stat(beside.c_str(), &status) == 0 && walk.has_listed(status)) {
        throw option_error("index", index +
                                        " lies in a folder that is listed, and writing it "
                                        "would change that: put it beside " +
                                        path);
      }
      seal_listing(bytes);
      const std::string wrong = write(index, bytes, walk.youngest(), began);
      if (!wrong.empty()) {
        problem += (problem.empty() ? "" : "; ") + index + ": not written: " + wrong;
      }
    }
    listing = folder_listing{std::move(bytes)};
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
