// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/index_file.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Progress of building the index of a file.
struct index_progress {
  std::string_view path;          ///< data file
  std::uint64_t done_bytes = 0;   ///< bytes scanned so far
  std::uint64_t total_bytes = 0;  ///< size of the data file
};

/// Options of datasets that keep an index of each data file.
struct index_options {
  /// Folder of the index files. If it is empty, each index is next to its data file, with the
  /// suffix ".index". Set it if the folder of the data is read-only.
  std::string folder = {};
  /// Number of threads that build indexes, including the calling thread. At least 1.
  std::size_t workers = 8;
  /// Reaction to an index that is damaged, or whose data file has another size, modification time
  /// or content.
  stale_index on_stale = stale_index::rebuild;
  /// Called while an index is built, by one thread at a time. An exception ends the construction.
  std::function<void(const index_progress&)> progress = {};
};

namespace detail {

/// Header of an index file, followed by the 8-byte positions of some samples in the data file, in
/// native byte order. A machine with a different byte order finds a wrong checksum.
struct index_header {
  char magic[8] = {'p', 's', 'I', 'N', 'D', 'E', 'X', '1'};
  std::uint64_t checksum = 0;       ///< checksum of all following bytes
  std::uint64_t format = 0;         ///< identifies the format and its description
  std::uint64_t data_bytes = 0;     ///< size of the data file
  std::int64_t modified = 0;        ///< modification time of the data file in nanoseconds
  std::uint64_t data_checksum = 0;  ///< checksum of some bytes of the data file
  std::uint64_t count = 0;          ///< number of samples
  std::uint64_t longest = 0;        ///< size of the longest sample in bytes
};
static_assert(sizeof(index_header) == 64);

/// Samples that a format has found in a data file.
struct found_samples {
  std::uint64_t count = 0;                ///< number of samples
  std::uint64_t longest = 0;              ///< size of the longest sample in bytes
  std::vector<std::uint64_t> marks = {};  ///< positions of samples 0, step, 2 * step, ...
};

/// Finds the records of `data`, one after the other, starting at byte `begin`. `next(at)` moves
/// `at` from the start of a record to its end, and returns the size of its data. Calls
/// `report(at)` every 64 MiB. Throws `file_truncated` if the file ends before `begin`, and the
/// errors of `next`. If the file has a known other format, throws `file_format_error` instead,
/// whose message contains `expected`.
template <class Next, class Report>
[[nodiscard]] found_samples scan_records(const mapped_file& data, const char* expected,
                                         std::uint64_t begin, const Next& next,
                                         const Report& report) {
  const std::uint64_t size = data.bytes().size();
  // Checks the format only after an error, because valid records may start like another format.
  const auto reject_foreign = [&] {
    throw_foreign_format(data.bytes(), data.path(), expected, begin, "");
  };
  if (begin > size) {
    reject_foreign();
    throw file_truncated(data.path(), size, "a header of " + std::to_string(begin) + " bytes",
                         "the end of the file");
  }
  found_samples found;
  std::uint64_t reported = 0;
  for (std::uint64_t at = begin; at < size;) {
    found.marks.push_back(at);
    try {
      found.longest = std::max<std::uint64_t>(found.longest, next(at));
    } catch (const file_error&) {
      reject_foreign();
      throw;
    }
    if (at - reported >= std::uint64_t{64} << 20 || at == size) {
      reported = at;
      report(at);
    }
  }
  found.count = found.marks.size();
  return found;
}

/// The positions of samples in a data file, in a memory-mapped index file. Movable. Reading is
/// thread-safe.
class sample_index {
 public:
  /// Opens an index with the position of every `step`-th sample. Throws `file_format_error` if the
  /// file is not an index, or if the format or the data file differs from `expected`. Throws
  /// `file_truncated`, and `file_corrupt` if the checksum differs.
  sample_index(mapped_file file, std::uint64_t step, const index_header& expected)
      : file_(std::move(file)), step_(step) {
    require_magic(file_);
    const auto bytes = file_.bytes();
    std::memcpy(&head_, bytes.data(), (std::min)(bytes.size(), sizeof head_));
    if (bytes.size() < sizeof head_ ||
        (bytes.size() - sizeof head_) / sizeof(std::uint64_t) < positions()) {
      throw file_truncated(
          file_.path(), bytes.size(),
          "a header of 64 bytes and the positions of " + std::to_string(head_.count) + " samples",
          "the end of the file: remove it");
    }
    require_checksum(bytes, head_.checksum, file_.path(), "the index");
    require<&index_header::format>("format", expected);
    require<&index_header::data_bytes>("size of the data", expected);
    require<&index_header::modified>("modification time of the data in nanoseconds", expected);
    require<&index_header::data_checksum>("checksum of some bytes of the data", expected);
  }

  /// Throws `file_format_error` if the file is not an index.
  static void require_magic(const mapped_file& file) {
    if (has_magic_of<index_header>(file.bytes())) return;
    throw file_format_error(file.path(), 0, "an index, which starts with psINDEX1",
                            "other bytes: set .folder to another folder for index files");
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return head_.count; }
  [[nodiscard]] std::uint64_t longest() const noexcept { return head_.longest; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  /// Returns position `number`, or `end` if `number` is the number of positions.
  [[nodiscard]] std::uint64_t mark(std::uint64_t number, std::uint64_t end) const noexcept {
    if (number >= positions()) return end;
    std::uint64_t at = 0;
    std::memcpy(&at, file_.bytes().data() + sizeof head_ + number * sizeof at, sizeof at);
    return at;
  }

 private:
  [[nodiscard]] std::uint64_t positions() const noexcept {
    return head_.count / step_ + (head_.count % step_ == 0 ? 0 : 1);
  }
  template <auto Member>
  void require(const char* what, const index_header& expected) const {
    if (head_.*Member == expected.*Member) return;
    const auto offset =
        reinterpret_cast<const char*>(&(head_.*Member)) - reinterpret_cast<const char*>(&head_);
    throw file_format_error(
        file_.path(), static_cast<std::uint64_t>(offset),
        str_cat({expected.*Member, " as the ", what}),
        str_cat({head_.*Member, ": remove the index, or set .on_stale = rebuild"}));
  }

  mapped_file file_;
  std::uint64_t step_;
  index_header head_ = {};
};

/// Opens the index of `data`, or builds it with `format.scan(data, workers, report)`, which returns
/// `found_samples` and calls `report(done_bytes)`. Throws the same errors as `text_lines`.
template <class Format, class Report>
[[nodiscard]] sample_index opened_index(const mapped_file& data, const Format& format,
                                        const index_options& options, std::size_t workers,
                                        const Report& report) {
  // In a folder for all index files, the name contains a checksum of the whole path.
  const std::string& folder = options.folder;
  const std::string path =
      (folder.empty() ? data.path() : folder + '/' + derived_name(data.path())) + ".index";
  const file_stamp stamp = stamp_of_file(data.path());
  index_header head{.format = format.number(),
                    .data_bytes = data.bytes().size(),
                    .modified = stamp.seconds * 1'000'000'000 + stamp.nanoseconds,
                    .data_checksum = sampled_checksum(data.bytes())};
  if (::access(path.c_str(), F_OK) == 0) {
    mapped_file file{path};
    sample_index::require_magic(file);
    try {
      return {std::move(file), Format::step, head};
    } catch (const file_error&) {
      if (options.on_stale == stale_index::reject) throw;
    }
  }
  const new_index file{path, "an index file", ": set .folder to a folder for index files"};
  const found_samples found = format.scan(data, workers, report);
  if (const file_stamp now = stamp_of_file(data.path()); now != stamp) {
    throw file_changed(data.path(), 0, "the same file until its index is built",
                       "another size or modification time");
  }
  head.count = found.count;
  head.longest = found.longest;
  std::string bytes(sizeof head, '\0');
  bytes.append(reinterpret_cast<const char*>(found.marks.data()),
               found.marks.size() * sizeof(std::uint64_t));
  file.write(head, bytes);
  return {mapped_file{path}, Format::step, head};
}

/// A memory-mapped data file with its index. A base class of the parts of datasets. Movable.
/// Reading is thread-safe.
template <class Format>
class indexed_file {
 public:
  static constexpr bool looks_ahead = true;

  indexed_file(mapped_file data, sample_index index)
      : data_(std::move(data)), index_(std::move(index)) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return index_.size(); }
  /// Starts background reads of samples that are not in memory.
  void prefetch_hint(std::span<const std::uint64_t> indices) const {
    read_soon pages;
    for (const std::uint64_t index : indices) {
      if (index >= size()) continue;
      const auto bytes = group(index);
      pages.add(bytes.data(), bytes.size());
    }
  }
  /// Starts loading the samples around `index` into the CPU cache.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size()) return;
    const auto bytes = find_group(index);
    prefetch_row(bytes.data(), bytes.size());
  }
  /// Returns the mean size of the samples around `index` in the file, in bytes.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    return index < size() ? group(index).size() / Format::step + 1 : 0;
  }

 protected:
  [[nodiscard]] const mapped_file& data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t longest() const noexcept { return index_.longest(); }

  /// Returns the bytes of the `step` samples around `index`, which must be less than size(). Throws
  /// `file_corrupt` if the index contradicts the file.
  [[nodiscard]] std::span<const std::byte> group(std::uint64_t index) const {
    const auto found = find_group(index);
    if (found.empty()) fail_to_find(index);  // no sample has 0 bytes
    return found;
  }
  [[noreturn]] void fail_to_find(std::uint64_t index) const {
    throw file_corrupt(data_.path(), data_.bytes().size(), "sample " + std::to_string(index),
                       "no such sample: the file was written to, or its index is damaged: remove " +
                           index_.path());
  }

 private:
  // Returns the bytes of the samples around `index`, or an empty span if the index contradicts the
  // file.
  [[nodiscard]] std::span<const std::byte> find_group(std::uint64_t index) const noexcept {
    const auto all = data_.bytes();
    const std::uint64_t number = index / Format::step;
    const std::uint64_t begin = index_.mark(number, all.size());
    const std::uint64_t end = index_.mark(number + 1, all.size());
    if (begin >= end || end > all.size()) return {};
    return all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  mapped_file data_;
  sample_index index_;
};

/// The records of a file as samples of bytes, the only field of `Record`. `File` is an
/// `indexed_file` with a function `bytes(index)`. Reading is thread-safe.
template <class File, record_type Record>
class byte_samples : public File {
 public:
  using record_type = Record;
  using File::File;

  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return extents_; }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const {
    return this->bytes(index).size();
  }
  void read(std::uint64_t index, sample<Record> out) const {
    const std::span<const std::byte> from = this->bytes(index);
    const auto to = std::as_writable_bytes(out.template at<0>().flat());
    if (from.size() != to.size()) this->fail_to_find(index);
    std::ranges::copy(from, to.begin());
  }
  [[nodiscard]] const_sample<Record> view(std::uint64_t index) const {
    const std::span<const std::byte> from = this->bytes(index);
    return {{from.data()}, extents_, {from.size()}};
  }

 private:
  record_extents<Record> extents_{
      {.longest = static_cast<std::size_t>(std::max<std::uint64_t>(this->longest(), 1))}};
};

/// Opens the files at `paths` and their indexes in parallel. Returns a list of `Part{data, index,
/// args...}`. Throws the same errors as `text_lines`, and those of `format.require(data)`, if the
/// format has this function.
template <class Part, class Format, class... Args>
[[nodiscard]] part_list<Part> opened_parts(const std::vector<std::string>& paths,
                                           const index_options& options, const Format& format,
                                           const Args&... args) {
  if (paths.empty()) throw_option_error("paths", {"expected at least one file, found none"});
  if (options.workers == 0) throw_option_error("workers", {"must be at least 1, but is 0"});
  const std::size_t workers = (std::max)(options.workers / paths.size(), std::size_t{1});
  std::mutex guard;  // held while the progress function is called
  return part_list<Part>{open_in_parallel(paths.size(), options.workers, [&](std::size_t i) {
    mapped_file data{paths[i]};
    if constexpr (requires { format.require(data); }) format.require(data);
    const auto report = [&](std::uint64_t done) {
      if (!options.progress) return;
      const std::lock_guard lock{guard};
      options.progress({data.path(), done, data.bytes().size()});
    };
    sample_index index = opened_index(data, format, options, workers, report);
    return Part{std::move(data), std::move(index), args...};
  })};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
