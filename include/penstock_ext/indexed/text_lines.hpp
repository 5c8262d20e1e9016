// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>
#include <penstock_ext/indexed/sample_index.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A line of a text file, without its end.
using text_line = record<field<"text", std::uint8_t, ragged>>;

namespace detail {

/// Returns `line` without a carriage return at its end.
[[nodiscard]] inline std::string_view without_return(std::string_view line) noexcept {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

/// The lines of a file as samples. The index has the position of every 16th line.
struct line_format {
  static constexpr std::uint64_t step = 16;

  [[nodiscard]] static std::uint64_t number() noexcept { return 1; }

  /// Throws `file_format_error` for a compressed file.
  static void require(const mapped_file& data) {
    if (!foreign_format_of(data.bytes()).is_compressed) return;
    throw file_format_error(data.path(), 0, "lines of text", foreign_text(data.bytes()));
  }

  /// Finds the lines of `data` with `workers` threads, each of which scans `chunk` bytes at a time.
  template <class Report>
  [[nodiscard]] static found_samples scan(const mapped_file& data, std::size_t workers,
                                          const Report& report,
                                          std::size_t chunk = std::size_t{4} << 20) {
    struct piece {
      std::string_view text = {};
      std::uint64_t lines = 0;  // line ends in the piece
      std::uint64_t line = 0;   // number and position of the line that contains its start
      std::size_t begin = 0;
      std::size_t longest = 0;
    };
    const std::string_view all{reinterpret_cast<const char*>(data.bytes().data()),
                               data.bytes().size()};
    found_samples found{.marks = {0}};
    std::size_t begin = 0;  // start of the first line whose end is not found yet
    std::vector<piece> pieces(workers);
    for (std::size_t at = 0; at < all.size();) {
      for (piece& one : pieces) {
        one.text = all.substr(at, chunk);
        at += one.text.size();
      }
      parallel_for(workers, workers, [&](std::size_t i) {
        piece& one = pieces[i];
        one.lines = static_cast<std::uint64_t>(std::count(one.text.begin(), one.text.end(), '\n'));
      });
      for (piece& one : pieces) {
        one.line = found.count;
        one.begin = begin;
        found.count += one.lines;
        if (one.lines == 0) continue;
        begin = static_cast<std::size_t>(one.text.data() - all.data()) + one.text.rfind('\n') + 1;
      }
      found.marks.resize(static_cast<std::size_t>(found.count / step) + 1);
      parallel_for(workers, workers, [&](std::size_t i) {
        piece& one = pieces[i];
        one.longest = 0;
        for (std::uint64_t left = one.lines; left > 0; --left) {
          const std::size_t end = all.find('\n', one.begin);
          const auto line = without_return(all.substr(one.begin, end - one.begin));
          one.longest = (std::max)(one.longest, line.size());
          one.begin = end + 1;
          if (++one.line % step == 0) {
            found.marks[static_cast<std::size_t>(one.line / step)] = one.begin;
          }
        }
      });
      for (const piece& one : pieces) {
        found.longest = std::max<std::uint64_t>(found.longest, one.longest);
      }
      report(at);
    }
    if (begin < all.size()) {  // a last line without an end
      ++found.count;
      found.longest =
          std::max<std::uint64_t>(found.longest, without_return(all.substr(begin)).size());
    }
    found.marks.resize(static_cast<std::size_t>((found.count + step - 1) / step));
    return found;
  }
};

/// The end of the last line that a thread has read. The next line begins there.
struct line_cursor {
  std::uint64_t index = 0;      ///< number of the next line
  const char* begin = nullptr;  ///< start of the next line in a mapped file
};

/// A memory-mapped text file with the index of its lines. Movable. Reading is thread-safe.
class indexed_lines : public indexed_file<line_format> {
 public:
  using indexed_file<line_format>::indexed_file;

 protected:
  /// Returns line `index`, which must be less than size(), and moves `cursor` to the next line. If
  /// `cursor` is at line `index`, does not search for the line. `cursor` may be in another open
  /// file. Throws `file_corrupt` if the index contradicts the file.
  [[nodiscard]] std::string_view line(std::uint64_t index, line_cursor& cursor) const {
    const auto bytes = group(index);
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    const bool is_there = cursor.index == index && !std::less<>{}(cursor.begin, text.data()) &&
                          std::less<>{}(cursor.begin, text.data() + text.size());
    const std::size_t begin = is_there ? static_cast<std::size_t>(cursor.begin - text.data())
                                       : start_of_line(index, text);
    const std::size_t end = (std::min)(text.find('\n', begin), text.size());
    cursor = {index + 1, end < text.size() ? text.data() + end + 1 : nullptr};
    return without_return(text.substr(begin, end - begin));
  }
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index) const {
    line_cursor unused;
    return std::as_bytes(std::span{line(index, unused)});
  }

 private:
  // Returns the position of line `index` in its group. Searches from the closer end of the group.
  [[nodiscard]] std::size_t start_of_line(std::uint64_t index, std::string_view group) const {
    const std::uint64_t before = index % line_format::step;
    const std::uint64_t lines = (std::min)(size() - index + before, line_format::step);
    if (before <= lines / 2) {
      std::size_t begin = 0;
      for (std::uint64_t left = before; left > 0; --left) {
        begin = (std::min)(group.find('\n', begin), group.size() - 1) + 1;
        if (begin == group.size()) fail_to_find(index);
      }
      return begin;
    }
    if (group.ends_with('\n')) group.remove_suffix(1);  // the last line may have no end
    for (std::uint64_t left = lines - before; left > 0; --left) {
      // string_view::rfind takes a byte at a time.
      const void* const end = ::memrchr(group.data(), '\n', group.size());
      if (end == nullptr) fail_to_find(index);
      group = {group.data(), static_cast<const char*>(end)};
    }
    return group.size() + 1;
  }
};

/// A file of `text_lines`.
using lines_file = byte_samples<indexed_lines, text_line>;

}  // namespace detail

/// A dataset of the lines of text files, without their ends ("\n" or "\r\n"). The end of the last
/// line may be missing. An empty line is a sample without bytes.
///
///     const ps::text_lines lines{ps::glob("texts/*.txt")};
///     ps::loader loader{lines, ps::shuffled{.seed = 1}, {.batch_size = 64, .workers = 4}};
///     for (auto& batch : loader.epoch(0)) use(ps::get<"text">(batch));     // ragged bytes
///
/// The first use of a file scans it once with several threads, and keeps an index of 8 bytes for 16
/// lines in a file (see `index_options`). Later uses map the index and compare it with the size,
/// modification time and some bytes of the data file. Several processes may build the same index
/// concurrently.
///
/// Data files are memory-mapped and must not change while they are open. Truncating an open file
/// kills the process. The sample origin (`origin_of`) contains the file and the line, counted from
/// 0. Movable, not copyable. Reading is thread-safe.
class text_lines : public detail::concat_dataset<detail::part_list<detail::lines_file>> {
 public:
  /// Opens the files at `paths`, and builds missing and stale indexes. Throws
  ///
  /// - `file_unreadable`;
  /// - `file_unwritable` if an index cannot be written. If its folder is not writable, throws
  ///   before the scan;
  /// - `file_changed` if a file changes while its index is built;
  /// - `file_format_error` if a file is compressed, or if the file in the place of an index is not
  ///   an index;
  /// - with `stale_index::reject`, `file_format_error` for the index of other data, and
  ///   `file_truncated` or `file_corrupt` for a damaged index;
  /// - `option_error` for an empty list or 0 workers.
  explicit text_lines(const std::vector<std::string>& paths, const index_options& options = {})
      : concat_dataset(
            detail::opened_parts<detail::lines_file>(paths, options, detail::line_format{}),
            "text_lines") {}

  /// Returns line `index` in the mapped file, valid until the dataset is destroyed. Throws
  /// `index_error`, and `file_corrupt` if the file has changed and lacks the line.
  [[nodiscard]] std::string_view line(std::uint64_t index) const {
    const auto text = get<"text">(view(index)).flat();
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
};

static_assert(dataset<text_lines>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
