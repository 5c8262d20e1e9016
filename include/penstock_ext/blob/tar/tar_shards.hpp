// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/detail/open_side_by_side.hpp>
#include <penstock_ext/blob/tar/detail/open_shard.hpp>
#include <penstock_ext/blob/tar/detail/shard_index.hpp>
#include <penstock_ext/blob/tar/detail/shard_listing.hpp>
#include <penstock_ext/blob/tar/detail/tar_header.hpp>
#include <penstock_ext/blob/tar/shard_paths.hpp>
#include <penstock_ext/blob/tar/tar_shards_options.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The samples of tar archives as WebDataset has them: a `blob_source` with random access.
///
///     tar_shards photos{"imagenet-train-{000000..000146}.tar"};
///     tar_shards texts{{"a.tar", "b.tar"}, {.blob = {"txt"}, .label = ""}};
///
/// Files that follow each other in an archive and have one path up to the first dot of their names
/// are a sample; hidden files, and files without a dot, belong to none. Samples are numbered
/// through all shards in their order, so any sampler shuffles over all of them.
///
/// An archive is listed by its headers, or by an index file, which is used if it is not older than
/// the archive, if what it says can be, and if the headers at its start, at its end and at some
/// sixty places between say the same; else all headers are read. Each read looks at its file's own
/// header once more: a wrong index gives an error, and no bytes of another size or path. Paths that
/// are not ASCII, or have more than 100 characters, need not stand in that header and count as
/// right.
///
/// A shard is as it was when it was opened: its descriptor stays open, so a file that replaces it
/// is not seen, and one that is written to gives `file_changed`, as does a replaced one beyond
/// `most_open`. Takes 24 bytes and the key for a sample. Movable, not copyable. Reading is
/// thread-safe. Names in an archive are keys and nothing else: nothing is ever written by them.
class tar_shards {
 public:
  /// Opens and lists the shards that `pattern` stands for, see `shard_paths`. Throws as the
  /// constructor below, and `option_error` for a pattern that makes none.
  template <std::convertible_to<std::string> Pattern>
  explicit tar_shards(const Pattern& pattern, const tar_shards_options& options = {})
      : tar_shards(shard_paths(std::string(pattern)), options) {}

  /// Opens and lists the shards `paths`. Throws, for each in turn, `file_unreadable`,
  /// `file_truncated`, `file_corrupt` for a damaged header, `file_format_error` for what is no tar
  /// archive, a compressed one, or one with sparse files; `missing_component`,
  /// `duplicate_component`; `file_changed` where it is written to meanwhile; and `option_error` for
  /// options that mean nothing. An index that can't be used or written is no error:
  /// `index_problems()`.
  explicit tar_shards(const std::vector<std::string>& paths, const tar_shards_options& options = {})
      : max_bytes_(options.max_bytes), wishes_(detail::wishes_of(options)) {
    if (paths.empty()) throw option_error("shards", "must not be empty");
    const auto open = [&](std::size_t number) {
      const bool has_index = options.index != shard_index::ignore;
      auto shard = detail::open_shard::list(
          paths[number], wishes_,
          has_index ? detail::shard_index_path(paths[number], options.index_folder) : std::string{},
          options.index == shard_index::keep);
      if (number >= options.most_open) shard.file.close();
      return shard;
    };
    shards_ = detail::open_side_by_side(paths.size(), options.threads, open);
    ends_.reserve(shards_.size());
    for (const auto& shard : shards_) ends_.push_back(size() + shard.samples.size());
  }

  /// How many samples there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  /// The blob of sample `index`, read into `buffer`. Throws `index_error`, `file_unreadable`,
  /// `file_changed`, and `file_format_error` above `max_bytes` and where the header before the
  /// bytes is another one than the index said.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const place at = find(index);
    const std::uint64_t size = at.sample->blob_size;
    const std::uint64_t begin = std::uint64_t{at.sample->blob_block} * detail::tar_block;
    if (size > max_bytes_) {
      throw file_format_error(at.shard->file.path(), begin,
                              "at most " + std::to_string(max_bytes_) + " bytes (max_bytes)",
                              std::to_string(size));
    }
    const auto room = buffer.room_for(detail::tar_block + static_cast<std::size_t>(size));
    read(at, begin, wishes_.blob[at.sample->extension], size, room);
    return room.subspan(detail::tar_block);
  }

  /// The label of sample `index`: the number in its label's file, with blanks around it. Throws
  /// `index_error`, `file_unreadable`, `file_changed`, and `file_format_error` for what is no
  /// number of 64 bits.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    const place at = find(index);
    if (at.sample->label_block == detail::shard_sample::no_label) return 0;
    const std::uint64_t begin = std::uint64_t{at.sample->label_block} * detail::tar_block;
    constexpr std::size_t longest = 64;
    const std::size_t size = at.sample->label_size;
    if (size > longest) refuse_label(at, begin, std::to_string(size) + " bytes or more");
    std::array<std::byte, detail::tar_block + longest> memory;
    const auto room = std::span{memory}.first(detail::tar_block + size);
    read(at, begin, wishes_.label, size, room);
    return number(at, begin,
                  {reinterpret_cast<const char*>(room.data()) + detail::tar_block, size});
  }

  /// The path of the shard, and in it that of the sample's blob: "train-000.tar/n01440764/10.jpg".
  /// Throws `index_error`.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const place at = find(index);
    return at.shard->file.path() + '/' + name(at, wishes_.blob[at.sample->extension]);
  }

  /// Has the system read the blob ahead, and a label beside it, by posix_fadvise; does nothing for
  /// an index out of range, and in shards beyond `most_open`.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size()) return;
    const place at = place_of(index);
    const detail::shard_sample& one = *at.sample;
    std::uint64_t begin = one.blob_block - std::uint64_t{1};
    std::uint64_t end = one.blob_block + one.blob_size / detail::tar_block + 1;
    // The label lies beside it, as a rule; if not, it is no more than a block or two.
    constexpr std::uint64_t near_by = 128;
    if (one.label_block != detail::shard_sample::no_label && one.label_block + near_by > begin &&
        one.label_block < end + near_by) {
      begin = std::min<std::uint64_t>(begin, one.label_block - std::uint64_t{1});
      end = std::max<std::uint64_t>(end, one.label_block + std::uint64_t{1});
    }
    at.shard->file.prefetch(begin * detail::tar_block, (end - begin) * detail::tar_block);
  }

  /// The bytes of the blob of sample `index`; 0 for one out of range.
  [[nodiscard]] std::uint64_t stored_bytes(std::uint64_t index) const noexcept {
    return index < size() ? std::uint64_t{place_of(index).sample->blob_size} : 0;
  }

  /// How many shards there are.
  [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }
  /// How many of them were listed by their index.
  [[nodiscard]] std::size_t listed_from_index() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(shards_.begin(), shards_.end(),
                      [](const detail::open_shard& shard) { return shard.is_from_index; }));
  }
  /// Why an index was not used, and why it was not written, for a log: a line for each shard where
  /// that is so. Not an error: what is listed is right.
  [[nodiscard]] std::vector<std::string> index_problems() const {
    std::vector<std::string> all;
    for (const auto& shard : shards_) {
      if (!shard.problem.empty()) all.push_back(shard.problem);
    }
    return all;
  }
  /// How many samples were left out by `skip_incomplete`.
  [[nodiscard]] std::uint64_t left_out() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& shard : shards_) sum += shard.left_out;
    return sum;
  }

 private:
  struct place {
    const detail::open_shard* shard;
    const detail::shard_sample* sample;
  };

  [[nodiscard]] place place_of(std::uint64_t index) const noexcept {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto number = static_cast<std::size_t>(end - ends_.begin());
    const detail::open_shard& shard = shards_[number];
    const std::uint64_t first = *end - shard.samples.size();
    return {&shard, &shard.samples[static_cast<std::size_t>(index - first)]};
  }
  [[nodiscard]] place find(std::uint64_t index) const {
    if (index >= size()) throw index_error("tar_shards", index, size());
    return place_of(index);
  }
  [[nodiscard]] static std::string name(const place& at, std::string_view extension) {
    return std::string{at.shard->keys.c_str() + at.sample->key_begin}.append(".").append(extension);
  }

  // Reads a header and the bytes after it, which start at `begin`.
  void read(const place& at, std::uint64_t begin, std::string_view extension, std::uint64_t size,
            std::span<std::byte> room) const {
    at.shard->file.read_unchanged(begin - detail::tar_block, room);
    if (!at.sample->is_usual) return;
    const std::string_view key = at.shard->keys.c_str() + at.sample->key_begin;
    std::array<char, detail::tar_name_length> memory;
    std::string_view path;  // stays "" where it is too long for a header
    if (key.size() + 1 + extension.size() <= memory.size()) {
      key.copy(memory.data(), key.size());
      memory[key.size()] = '.';
      extension.copy(memory.data() + key.size() + 1, extension.size());
      path = {memory.data(), key.size() + 1 + extension.size()};
    }
    const std::string found =
        detail::foreign_header(room.first(detail::tar_block), path, size, key.size());
    if (found.empty()) return;
    throw file_format_error(at.shard->file.path(), begin - detail::tar_block,
                            "the header of '" + name(at, extension) + "', " + std::to_string(size) +
                                " bytes, as the shard's index has it",
                            found + ": remove the index, it is of another archive");
  }

  [[noreturn]] static void refuse_label(const place& at, std::uint64_t begin,
                                        const std::string& found) {
    throw file_format_error(at.shard->file.path(), begin,
                            "a label, a whole number of 64 bits in decimal digits", found);
  }

  [[nodiscard]] static std::int64_t number(const place& at, std::uint64_t begin,
                                           std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n\v\f";
    const std::string_view all = text;
    text.remove_prefix((std::min)(text.find_first_not_of(blanks), text.size()));
    text = text.substr(0, text.find_last_not_of(blanks) + 1);
    std::int64_t value = 0;
    const auto read_to = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read_to.ec != std::errc{} || read_to.ptr != text.data() + text.size()) {
      refuse_label(at, begin, '\'' + std::string{all} + '\'');
    }
    return value;
  }

  std::uint64_t max_bytes_;
  detail::shard_wishes wishes_;
  std::vector<detail::open_shard> shards_;
  std::vector<std::uint64_t> ends_;  // of the shards, in samples, from the first shard's start
};

static_assert(blob_source<tar_shards>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
