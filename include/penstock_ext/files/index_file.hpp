// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Reaction to an index file that is damaged or was built from other data.
enum class stale_index {
  rebuild,  ///< builds the index again
  reject,   ///< throws an error with the expected and the found value
};

namespace detail {

/// Returns a checksum of 16 evenly distributed pieces of `data`, including its start and end.
[[nodiscard]] inline std::uint64_t sampled_checksum(std::span<const std::byte> data) noexcept {
  constexpr std::size_t gaps = 15;
  const std::size_t piece = (std::min)(data.size(), std::size_t{256});
  const std::size_t last = data.size() - piece;
  crc64nvme_checksum checksum;
  for (std::size_t i = 0; i <= gaps; ++i) {
    checksum.add(data.subspan(last / gaps * i + last % gaps * i / gaps, piece));
  }
  return checksum.value();
}

/// Returns a name for a file that is derived from the file `path`. The name is that of the file
/// without `suffix`, at most 200 bytes of it, followed by a checksum of the absolute path and of
/// `version`.
[[nodiscard]] inline std::string derived_name(const std::string& path, std::string_view suffix = {},
                                              std::string_view version = {}) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  crc64nvme_checksum checksum;
  checksum.add(std::as_bytes(std::span{whole.native()}));
  if (!version.empty()) {
    checksum.add(std::as_bytes(std::span{"", 1}));  // the end of the path
    checksum.add(std::as_bytes(std::span{version}));
  }
  std::string name = whole.filename().string();
  if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  name.resize((std::min)(name.size(), std::size_t{200}));
  return name + '-' + hex_digits(checksum.bytes());
}

/// Returns the checksum of an index file. An index file is computed from other data, and starts
/// with a magic number of 8 bytes and the checksum of all bytes after the first 16.
[[nodiscard]] inline std::uint64_t checksum_of_index(std::span<const std::byte> file) noexcept {
  crc64nvme_checksum checksum;
  checksum.add(file.subspan(2 * sizeof(std::uint64_t)));
  return checksum.value();
}

/// Returns true if `file` starts with the magic number of `Header`.
template <class Header>
[[nodiscard]] bool has_magic_of(std::span<const std::byte> file) noexcept {
  const Header head;
  return file.size() >= sizeof head.magic &&
         std::memcmp(file.data(), head.magic, sizeof head.magic) == 0;
}

/// Throws `file_corrupt` if `checksum` is not the checksum of `file`. `what` names the content.
inline void require_checksum(std::span<const std::byte> file, std::uint64_t checksum,
                             const std::string& path, const std::string& what) {
  if (checksum_of_index(file) == checksum) return;
  throw file_corrupt(path, sizeof(std::uint64_t), "the checksum of " + what,
                     "a different checksum: the file is damaged: remove it");
}

/// An index file that is about to be built.
class new_index {
 public:
  /// Throws `file_unwritable` if the folder of `path` is not writable, so that the error is
  /// reported before the data is read. `what` and `remedy` are parts of the message.
  new_index(std::string path, std::string what, std::string remedy = {})
      : path_(std::move(path)), what_(std::move(what)), remedy_(std::move(remedy)) {
    if (::access(path_.c_str(), F_OK) != 0 && errno != ENOENT) fail(errno);
    const std::string folder = path_.substr(0, path_.rfind('/') + 1);
    const char* const name = folder.empty() ? "." : folder.c_str();
    if (::access(name, W_OK | X_OK) != 0) fail(errno);
  }

  /// Writes the file under another name, and then renames it. `bytes` starts with room for the
  /// header. Sets the checksum. Throws `file_unwritable`.
  template <class Header>
  void write(Header head, std::string& bytes) const {
    std::memcpy(bytes.data(), &head, sizeof head);
    head.checksum = checksum_of_index(std::as_bytes(std::span{bytes}));
    std::memcpy(bytes.data(), &head, sizeof head);
    if (const int wrong = write_whole_file(path_, bytes)) fail(wrong);
  }

 private:
  [[noreturn]] void fail(int wrong) const {
    throw file_unwritable(path_, 0, what_ + " that can be written",
                          std::system_category().message(wrong) + remedy_);
  }

  std::string path_;
  std::string what_;
  std::string remedy_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
