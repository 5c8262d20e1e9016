// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/index_file.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Header of a length file, followed by `count` 4-byte lengths in native byte order. On a machine
/// with a different byte order, the count appears too large and the file is rejected.
struct lengths_header {
  char magic[8] = {'p', 's', 'L', 'E', 'N', 'G', 'T', '1'};
  std::uint64_t checksum = 0;     ///< checksum of all following bytes
  std::uint64_t count = 0;        ///< number of samples
  std::uint64_t fingerprint = 0;  ///< dataset fingerprint
};
static_assert(sizeof(lengths_header) == 32);

/// Parses the header of a length file. `path` is used in messages. Throws `file_truncated`,
/// `file_format_error` and `file_corrupt`.
[[nodiscard]] inline lengths_header lengths_header_of(std::span<const std::byte> bytes,
                                                      const std::string& path) {
  lengths_header head;
  const std::size_t known = (std::min)(bytes.size(), sizeof head);
  std::ranges::copy(bytes.first(known), std::as_writable_bytes(std::span{&head, 1}).begin());
  if (!std::ranges::equal(head.magic, lengths_header{}.magic)) {
    throw file_format_error(path, 0, "a length cache, which starts with psLENGT1", "other bytes");
  }
  if (known < sizeof head || head.count > (bytes.size() - known) / sizeof(std::uint32_t)) {
    throw file_truncated(
        path, bytes.size(),
        "a header of 32 bytes and " + std::to_string(head.count) + " lengths of 4 bytes",
        "the end of the file");
  }
  require_checksum(bytes, head.checksum, path, "the file's lengths");
  return head;
}

}  // namespace detail

/// The sample lengths of a dataset, in a file created by `keep_lengths`. Use it if finding a length
/// requires reading the sample. The orders `by_tokens` and `bucketed` and a dataset's `length` then
/// only read memory. The file occupies 32 bytes plus 4 bytes for each sample.
///
///     const ps::length_cache lengths = ps::keep_lengths(
///         "texts.lengths", texts.size(),
///         [&](std::uint64_t i) { return tokenize(texts.text(i)).size(); },
///         {.fingerprint = version_of_texts, .workers = 8});
///     ps::by_tokens order{lengths, {.seed = 1, .max_tokens = 16'384}};
///
/// The file is memory-mapped, so all processes on a machine share its memory. The file must not
/// change while it is open. Truncating an open file kills the process. Movable, not copyable.
/// Reading is thread-safe.
class length_cache {
 public:
  /// Opens a length file and verifies its checksum. Throws `file_unreadable`, `file_truncated`,
  /// `file_format_error`, and `file_corrupt` if the checksum differs.
  explicit length_cache(std::string path)
      : file_(std::move(path)), head_(detail::lengths_header_of(file_.bytes(), file_.path())) {}

  /// Opens a length file that must contain `count` samples and the given dataset fingerprint.
  /// Throws the same errors as the other constructor, `length_mismatch`, and `file_format_error` if
  /// the fingerprint differs.
  length_cache(std::string path, std::uint64_t count, std::uint64_t fingerprint)
      : length_cache(std::move(path)) {
    if (count != size()) {
      throw length_mismatch(file_.path(), offsetof(detail::lengths_header, count),
                            "the lengths of " + std::to_string(count) + " samples",
                            std::to_string(size()) + ": remove the file, so that it is made again");
    }
    if (fingerprint != this->fingerprint()) {
      throw file_format_error(file_.path(), offsetof(detail::lengths_header, fingerprint),
                              "the lengths of dataset " + std::to_string(fingerprint),
                              "those of " + std::to_string(this->fingerprint()) +
                                  ": remove the file, so that it is made again");
    }
  }

  length_cache(length_cache&&) = default;
  length_cache& operator=(length_cache&&) = delete;

  /// Returns the number of samples.
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(head_.count); }
  /// Returns a pointer to the lengths, indexed by sample. The pointer remains valid after this
  /// object is moved, until the destination is destroyed.
  [[nodiscard]] const std::uint32_t* begin() const noexcept {
    return reinterpret_cast<const std::uint32_t*>(file_.bytes().data() + sizeof head_);
  }
  /// Returns a pointer past the last length.
  [[nodiscard]] const std::uint32_t* end() const noexcept { return begin() + size(); }
  /// Returns the length of sample `index`, which must be less than size().
  [[nodiscard]] std::uint32_t operator[](std::uint64_t index) const noexcept {
    return begin()[index];
  }
  /// Returns the dataset fingerprint.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return head_.fingerprint; }

 private:
  mapped_file file_;
  detail::lengths_header head_;
};

/// Options of `keep_lengths`.
struct keep_lengths_options {
  /// A value that changes with the dataset, such as a hash of its file names, sizes and
  /// modification times.
  std::uint64_t fingerprint = 0;
  /// Number of threads that compute lengths, including the calling thread. At least 1.
  std::size_t workers = 1;
};

/// Opens the length file `path`. If the file does not exist, creates it by calling `length(index)`
/// for all `count` samples. Uses `workers` threads, or fewer if the system cannot create them.
/// Writes a temporary file and renames it, so that the file is complete even if the process is
/// killed. After a power failure the file may be damaged, which the checksum detects. Several
/// processes may create the file concurrently, because they write the same content.
///
/// Allocates 4 bytes for each sample during construction. Throws the same errors as the
/// `length_cache` constructor, for example if the file belongs to another dataset, and the first
/// exception of `length`. Throws `option_error` for 0 workers, more than 2^60 samples, or a length
/// above 2^32 -
/// 1. Throws `file_unwritable` if the file cannot be written. If the folder is not writable, throws
/// before the first call of `length`.
template <class Length>
  requires std::convertible_to<std::invoke_result_t<const Length&, std::uint64_t>, std::uint64_t>
[[nodiscard]] length_cache keep_lengths(const std::string& path, std::uint64_t count,
                                        const Length& length,
                                        const keep_lengths_options& options = {}) {
  if (options.workers == 0) detail::throw_option_error("workers", {"must be at least 1, but is 0"});
  constexpr std::uint64_t max = std::uint64_t{1} << 60;
  if (count > max) detail::throw_option_error("count", {"expected at most 2^60, found ", count});
  if (::access(path.c_str(), F_OK) == 0) return {path, count, options.fingerprint};
  const detail::new_index file{path, "a file"};
  const detail::lengths_header head{.count = count, .fingerprint = options.fingerprint};
  std::string bytes(sizeof head + static_cast<std::size_t>(count) * sizeof(std::uint32_t), '\0');
  constexpr std::uint64_t some = 64;
  const std::uint64_t parts = count / some + (count % some == 0 ? 0 : 1);
  const auto work = [&](std::size_t part) {
    for (std::uint64_t i = part * some; i < (std::min)((part + 1) * some, count); ++i) {
      const auto found = static_cast<std::uint64_t>(length(i));
      const auto kept = static_cast<std::uint32_t>(found);
      if (kept != found) {
        detail::throw_option_error("length",
                                   {"expected at most 2^32 - 1, found ", found, " of sample ", i});
      }
      std::memcpy(&bytes[sizeof head + i * sizeof kept], &kept, sizeof kept);
    }
  };
  detail::parallel_for(static_cast<std::size_t>(parts), options.workers, work);
  file.write(head, bytes);
  return {path, count, options.fingerprint};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
