// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the CRC-32C of `bytes`.
[[nodiscard]] inline std::uint32_t crc32c_of(std::span<const std::byte> bytes) noexcept {
  crc32c_checksum checksum;
  checksum.add(bytes);
  return checksum.value();
}

/// Formats a CRC-32C as 8 hexadecimal digits, as in a checksum list.
[[nodiscard]] inline std::string checksum_digits(std::uint32_t checksum) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(checksum));
  return digits;
}

/// Parses a checksum list, the content of the file `path`. Returns the keys and their checksums,
/// sorted by key. The keys reference `text`. Throws `file_format_error` for an invalid line, and
/// for a key with two different checksums.
[[nodiscard]] inline std::vector<std::pair<std::string_view, std::uint32_t>> listed_checksums(
    std::string_view text, const std::string& path) {
  constexpr std::size_t digits = 8;
  std::vector<std::pair<std::string_view, std::uint32_t>> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    std::uint32_t checksum = 0;
    const char* const end = line.data() + (std::min)(digits, line.size());
    const auto [stop, problem] = std::from_chars(line.data(), end, checksum, 16);
    if (line.size() < digits + 3 || line.substr(digits, 2) != "  " || problem != std::errc{} ||
        stop != end) {
      throw file_format_error(
          path, at, "a line with a CRC-32C in 8 digits, two spaces and a key",
          '\'' + std::string{line.substr(0, 40)} + "': write the list with write_checksums");
    }
    all.emplace_back(line.substr(digits + 2), checksum);
    at += line.size() + 1;
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].first != all[i - 1].first || all[i].second == all[i - 1].second) continue;
    throw file_format_error(
        path, static_cast<std::uint64_t>(all[i].first.data() - text.data()),
        "one checksum of '" + std::string{all[i].first} + '\'',
        checksum_digits(all[i - 1].second) + " and " + checksum_digits(all[i].second));
  }
  return all;
}

}  // namespace detail

/// Reads each blob of `source` once and writes its CRC-32C to the file `path`. Each line consists
/// of the checksum as eight hexadecimal digits, two blanks, and the key of the blob. Call this
/// while the data is known to be intact. `verified_blobs` compares later reads with the list.
/// Propagates errors from the source. Throws `option_error` if a key is empty or contains a line
/// break, and `file_unwritable` if the file cannot be written. If the function throws, an existing
/// file is unchanged.
template <blob_source Source>
void write_checksums(const Source& source, const std::string& path) {
  std::string text;
  blob_buffer buffer;
  for (std::uint64_t i = 0; i < source.size(); ++i) {
    const std::string key = source.key(i);
    if (key.empty() || key.find('\n') != key.npos) {
      throw option_error(
          "source",
          "the key of blob " + std::to_string(i) +
              " is empty or contains a newline, so a list of checksums cannot contain it");
    }
    text += detail::checksum_digits(detail::crc32c_of(source.bytes(i, buffer))) + "  " + key + '\n';
  }
  errno = detail::write_whole_file(path, text);
  if (errno == 0) return;
  throw file_unwritable(path, 0, "a file that can be written", detail::system_reason());
}

/// A `blob_source` that verifies the CRC-32C of each blob of another source when the blob is read.
/// Use it for formats without a checksum, such as JPEG, in which a flipped bit silently changes
/// pixels.
///
///     write_checksums(photos, "photos.sums");           // once
///     verified_blobs checked{photos, "photos.sums"};    // for each later run
///
/// An lvalue source is referenced and must outlive this object; an rvalue is moved in. Occupies 4
/// bytes for each blob. Hints, plans and warnings are forwarded to the source. Labels are not
/// verified. Reading is thread-safe if reading from the source is.
template <blob_source Source>
class verified_blobs {
 public:
  /// Reads the checksum list `checksums`, which `write_checksums` wrote, and matches it with the
  /// keys of `source`. Throws `file_unreadable`, and `file_format_error` if the list is invalid or
  /// lacks a key of the source.
  template <class From>
    requires std::is_constructible_v<Source, From>
  verified_blobs(From&& source, std::string checksums)
      : source_(std::forward<From>(source)), path_(std::move(checksums)) {
    const std::vector<std::byte> bytes = detail::read_file(path_);
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    const auto listed = detail::listed_checksums(text, path_);
    checksums_.reserve(static_cast<std::size_t>(size()));
    for (std::uint64_t i = 0; i < size(); ++i) {
      const std::string name = key(i);
      const auto found =
          std::lower_bound(listed.begin(), listed.end(), std::pair{std::string_view{name}, 0U});
      if (found == listed.end() || found->first != name) {
        throw file_format_error(path_, text.size(),
                                "a checksum of each blob, including '" + name + '\'',
                                "none: call write_checksums again when the data is complete");
      }
      checksums_.push_back(found->second);
    }
  }

  /// Returns the number of blobs.
  [[nodiscard]] std::uint64_t size() const { return source_.size(); }

  /// Returns blob `index` as returned by the source. Throws `file_corrupt` with both checksums if
  /// the bytes do not match the list, and errors from the source.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const std::span<const std::byte> found = source_.bytes(index, buffer);
    const std::uint32_t expected = checksums_.at(static_cast<std::size_t>(index));
    const std::uint32_t checksum = detail::crc32c_of(found);
    if (checksum == expected) return found;
    throw file_corrupt(
        key(index), 0, "CRC-32C " + detail::checksum_digits(expected) + ", as in " + path_,
        detail::checksum_digits(checksum) + " of " + std::to_string(found.size()) +
            " bytes: restore it, or call write_checksums if it was changed intentionally");
  }

  /// Returns the label of blob `index`.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const { return source_.label(index); }
  /// Returns the key of blob `index`.
  [[nodiscard]] std::string key(std::uint64_t index) const { return source_.key(index); }

  /// Forwards the hint for one blob.
  void prefetch(std::uint64_t index) const noexcept
    requires detail::prefetches<Source>
  {
    source_.prefetch(index);
  }
  /// Forwards the hint for several blobs.
  void prefetch(std::span<const std::uint64_t> indices) const noexcept
    requires requires(const Source& from) { from.prefetch(indices); }
  {
    source_.prefetch(indices);
  }
  /// Returns the source's `storage_size` for the blob, or 0 if the source has no such member.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    return storage_size_of(source_, index);
  }
  /// Returns the source's `prefetch_capacity`.
  [[nodiscard]] std::uint64_t prefetch_capacity() const
    requires detail::has_prefetch_capacity<Source>
  {
    return source_.prefetch_capacity();
  }
  /// Calls `f` with the source. The library forwards plans and warnings through this function.
  template <class F>
  void each_base(std::span<const std::uint64_t> indices, const F& f) const {
    f(source_, indices);
  }

 private:
  Source source_;
  std::string path_;
  std::vector<std::uint32_t> checksums_;
};

/// Deduces a reference for an lvalue source and a value for an rvalue source.
template <class Source>
verified_blobs(Source&&, std::string) -> verified_blobs<detail::store_member<Source>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
