// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/blob/tar/detail/tar_walk.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/hidden_path.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a tar sample has missing or duplicate files. Contains the archive path, the offset of
/// the sample's first file, and the sample key.
class [[gnu::visibility("default")]] shard_sample_error : public file_format_error {
 public:
  /// `key` is the sample key: the common path of its files up to the extension.
  shard_sample_error(std::string path, std::uint64_t offset, std::string key,
                     const std::string& expected, const std::string& found)
      : file_format_error(std::move(path), offset, expected + " for the sample '" + key + "'",
                          found),
        key_(std::move(key)) {}

  /// Returns the sample key: the common path of its files up to the first dot of the file name.
  [[nodiscard]] const std::string& key() const noexcept { return key_; }

 private:
  std::string key_;
};

/// Thrown if a sample has no file with a required extension.
class [[gnu::visibility("default")]] missing_component : public shard_sample_error {
 public:
  using shard_sample_error::shard_sample_error;
};

/// Thrown if a sample has two files with the same extension.
class [[gnu::visibility("default")]] duplicate_component : public shard_sample_error {
 public:
  using shard_sample_error::shard_sample_error;
};

namespace detail {

/// The path of a file in a shard, split by WebDataset rules.
struct component_name {
  std::string_view key;        ///< Sample key: the path up to the first dot of the file name.
  std::string_view extension;  ///< The part of the file name after that dot.
  bool has_dot = false;        ///< If false, the file belongs to no sample.

  /// Returns true if the file name starts with a dot. Hidden files are skipped.
  [[nodiscard]] bool is_hidden() const noexcept { return key.empty() || key.back() == '/'; }
};

/// Splits a path like NVIDIA's wds2idx. If the path has no dot, the key is the path without its
/// last character, and the extension is the whole path.
[[nodiscard]] inline component_name split_component(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  const std::size_t dot = path.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) {
    return {path.substr(0, path.empty() ? 0 : path.size() - 1), path, false};
  }
  return {path.substr(0, dot), path.substr(dot + 1), true};
}

/// Returns true if a file describes the shard instead of a sample. In WebDataset, the path of such
/// a file starts with a component such as `__meta__`.
[[nodiscard]] constexpr bool is_shard_metadata(std::string_view path) noexcept {
  while (path.starts_with("./")) path.remove_prefix(2);
  const std::string_view part = path.substr(0, path.find('/'));
  return part.size() >= 4 && part.starts_with("__") && part.ends_with("__");
}

/// Returns the sample key `key` as a normalized relative path, as tar extracts it. "./a", "/a" and
/// "b/.//a" become "a", "a" and "b/a", so that different spellings compare equal.
[[nodiscard]] inline std::string plain_key(std::string_view key) {
  key.remove_prefix((std::min)(key.find_first_not_of('/'), key.size()));
  const bool is_plain = !key.starts_with("./") && !key.starts_with("../") &&
                        key.find("//") == key.npos && key.find("/.") == key.npos;
  return is_plain ? std::string{key} : std::filesystem::path{key}.lexically_normal().string();
}

/// The location of a sample in its shard.
struct shard_sample {
  /// Value of `label_block` for no label. Block 0 of an archive is a header.
  static constexpr std::uint32_t no_label = 0;
  static constexpr std::uint8_t skipped = 255;  ///< Value of `extension` for a skipped sample.

  std::uint64_t blob_size = 0;           ///< Size of the blob in bytes.
  std::uint32_t blob_block = 0;          ///< First block of the blob.
  std::uint32_t label_block = no_label;  ///< First block of the label.
  std::uint32_t key_begin = 0;           ///< Offset of the key in the shard's NUL-terminated keys.
  std::uint16_t label_size = 0;          ///< Size of the label in bytes, saturated.
  std::uint8_t extension = 0;            ///< Index of the blob extension, or `skipped`.
  bool is_usual = true;                  ///< True if reads check the headers of the blob and label.
};

static_assert(sizeof(shard_sample) == 24, "what tar_shards says that a sample takes");

/// The files that each sample must have.
struct shard_selection {
  std::vector<std::string> blob;  ///< Up to 255 extensions in lower case, preferred first.
  std::string label;              ///< An extension in lower case, or "" for none.
  /// If true, incomplete samples are skipped. If false, they cause an exception.
  bool leaves_out = false;
  duplicate_action duplicates = duplicate_action::reject;
};

/// Groups the files of a shard into samples. Consecutive files with the same key form a sample.
class shard_listing {
 public:
  /// Prepares a listing of the archive `path`, which appears in messages. References `selection`.
  shard_listing(std::string path, const shard_selection& selection)
      : path_(std::move(path)), selection_(&selection) {}

  /// Adds the next file. Returns true if wds2idx would start a new sample with the file. Returns
  /// nothing if the file is skipped. Throws `missing_component` and `duplicate_component` for the
  /// previous sample, and `file_format_error` if the shard is too large.
  std::optional<bool> add(const tar_member& file) {
    const component_name name = split_component(file.name);
    const bool is_no_sample = is_hidden_path(file.name) || is_shard_metadata(file.name);
    if (is_no_sample) hidden_.add(file.name);
    if (name.is_hidden()) return std::nullopt;
    const bool is_first = lines_ == 0 || name.key != line_key_;
    if (is_first) {
      line_key_ = name.key;
      ++lines_;
    }
    if (!name.has_dot || is_no_sample) return is_first;  // belongs to no sample
    if (selection_->duplicates == duplicate_action::take_last) {
      files_.push_back({std::string{file.name}, plain_key(name.key), file});
    } else {
      take(name, file);
    }
    return is_first;
  }

  /// Records that the archive contains a link, for messages. Links have no data, so they belong to
  /// no sample.
  void pass_link() noexcept { has_links_ = true; }

  /// Ends the last sample. Throws the same errors as `add`.
  void finish() {
    if (!files_.empty()) take_extracted();
    end_sample();
  }

  /// Returns the number of samples as counted by wds2idx, including samples that are skipped here.
  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_; }
  /// Returns the number of files that were skipped because a later file has the same path.
  [[nodiscard]] std::uint64_t replaced() const noexcept { return replaced_; }
  /// Returns the files that were skipped because of their names.
  [[nodiscard]] hidden_entries& hidden() noexcept { return hidden_; }
  /// Returns the samples of a finished listing, which the caller may move from. Incomplete samples
  /// are marked `skipped`.
  [[nodiscard]] std::vector<shard_sample>& samples() noexcept { return samples_; }
  /// Returns the NUL-terminated sample keys, one after another.
  [[nodiscard]] std::string& keys() noexcept { return keys_; }

 private:
  /// A file that is retained until all files have been listed.
  struct listed_file {
    std::string name;
    std::string key;  // normalized by `plain_key`
    tar_member file;  // the member `name` is no longer valid

    [[nodiscard]] std::string_view extension() const { return split_component(name).extension; }
  };
  /// A file of the current sample.
  struct found_file {
    std::size_t begin;  // position of the extension in `found_`
    std::size_t length;
    std::uint64_t header;  // position of the header in the archive
  };

  static constexpr const char* links =
      ", and links in the archive, which have no contents: pack the files that they refer to (tar "
      "--dereference --hard-dereference)";

  [[nodiscard]] static bool comes_before(std::string_view a, std::string_view b) noexcept {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](char x, char y) { return lowered(x) < lowered(y); });
  }

  // Selects the files that tar would extract, which are the last files with each path. Groups files
  // with the same key at the position of the last such file.
  void take_extracted() {
    std::sort(files_.begin(), files_.end(), [](const listed_file& a, const listed_file& b) {
      if (a.key != b.key) return a.key < b.key;
      if (comes_before(a.extension(), b.extension())) return true;
      return !comes_before(b.extension(), a.extension()) && a.file.begin < b.file.begin;
    });
    struct key_files {
      std::size_t first;
      std::size_t last;
      std::uint64_t place;
    };
    std::vector<key_files> keys;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (i == 0 || files_[i].key != files_[i - 1].key) keys.push_back({i, i, 0});
      keys.back().last = i;
      keys.back().place = (std::max)(keys.back().place, files_[i].file.begin);
    }
    std::sort(keys.begin(), keys.end(),
              [](const key_files& a, const key_files& b) { return a.place < b.place; });
    for (const key_files& one : keys) {
      for (std::size_t i = one.first; i <= one.last; ++i) {
        if (i != one.last && !comes_before(files_[i].extension(), files_[i + 1].extension())) {
          ++replaced_;
          continue;
        }
        take(split_component(files_[i].name), files_[i].file);
      }
      end_sample();
    }
    files_.clear();
  }

  // Adds a file to its sample.
  void take(const component_name& name, const tar_member& file) {
    if (name.key != key_) {
      // Only `take_extracted` groups files whose keys have different spellings.
      const bool is_same = !run_.empty() && selection_->duplicates == duplicate_action::take_last;
      if (!is_same) end_sample();
      next_.is_usual = !is_same;
      key_ = name.key;
    }
    if (run_.empty()) first_ = file.begin - tar_block;
    run_.push_back({found_.size() + 1, name.extension.size(), file.begin - tar_block});
    found_.append(".").append(name.extension).append(", ");
    const std::uint64_t block = file.begin / tar_block;
    if (block > (std::numeric_limits<std::uint32_t>::max)()) {
      throw file_format_error(path_, file.begin, "a shard of at most 2 TiB",
                              "a larger shard: use smaller shards");
    }
    if (!selection_->label.empty() && is_in_any_case(name.extension, selection_->label)) {
      constexpr std::uint64_t max = (std::numeric_limits<std::uint16_t>::max)();
      next_.label_block = static_cast<std::uint32_t>(block);
      next_.label_size = static_cast<std::uint16_t>((std::min)(file.size, max));
      next_.is_usual = next_.is_usual && file.is_usual;
    }
    for (std::size_t i = 0; i < selection_->blob.size(); ++i) {
      if (!is_in_any_case(name.extension, selection_->blob[i])) continue;
      // Another file of the sample has a preferred extension.
      if (next_.blob_block != 0 && next_.extension < i) break;
      next_.blob_block = static_cast<std::uint32_t>(block);
      next_.blob_size = file.size;
      next_.extension = static_cast<std::uint8_t>(i);
      next_.is_usual = next_.is_usual && file.is_usual;
      break;
    }
  }

  [[nodiscard]] std::string_view extension(const found_file& file) const noexcept {
    return std::string_view{found_}.substr(file.begin, file.length);
  }

  // Throws if two files of the sample have the same extension.
  void require_distinct() {
    std::sort(run_.begin(), run_.end(), [this](const found_file& a, const found_file& b) {
      if (comes_before(extension(a), extension(b))) return true;
      return !comes_before(extension(b), extension(a)) && a.header < b.header;
    });
    for (std::size_t i = 1; i < run_.size(); ++i) {
      if (comes_before(extension(run_[i - 1]), extension(run_[i]))) continue;
      throw duplicate_component(
          path_, run_[i].header, key_, "one file ." + std::string{extension(run_[i])},
          "a second, after the one at byte " + std::to_string(run_[i - 1].header) +
              ": give each sample a unique name, or set .duplicates = "
              "duplicate_action::take_last");
    }
  }

  // Ends the current sample, if any.
  void end_sample() {
    if (run_.empty()) return;
    if (run_.size() > 1) require_distinct();
    const bool has_label = selection_->label.empty() || next_.label_block != shard_sample::no_label;
    if (next_.blob_block == 0 || !has_label) {
      if (!selection_->leaves_out) reject_incomplete();
      next_.blob_block = static_cast<std::uint32_t>(first_ / tar_block + 1);
      next_.extension = shard_sample::skipped;
    }
    next_.key_begin = static_cast<std::uint32_t>(keys_.size());
    if (keys_.size() + key_.size() > (std::numeric_limits<std::uint32_t>::max)()) {
      throw file_format_error(path_, first_, "keys of at most 4 GiB", "more: use smaller shards");
    }
    keys_.append(key_).push_back('\0');
    samples_.push_back(next_);
    next_ = {};
    run_.clear();
    found_.clear();
  }

  [[noreturn]] void reject_incomplete() const {
    std::string expected;
    if (next_.blob_block == 0) {
      for (const std::string& one : selection_->blob) {
        expected += (expected.empty() ? "a file ." : " or .") + one;
      }
    } else {
      expected = "a file ." + selection_->label;
    }
    constexpr std::size_t max_shown = 160;
    throw missing_component(path_, first_, key_, expected,
                            found_.substr(0, (std::min)(found_.size() - 2, max_shown)) +
                                (has_links_ ? links : "") +
                                ": store the files of a sample one after the other, or set "
                                "skip_incomplete to omit such samples");
  }

  std::string path_;
  const shard_selection* selection_;
  std::string line_key_;  // key of the previous file, as in wds2idx
  std::string key_;       // key of the current sample
  // Extensions of the current sample for messages, such as ".jpg, .cls, ".
  std::string found_;
  std::vector<found_file> run_;     // files of the current sample; empty between two samples
  std::vector<listed_file> files_;  // all files, with `take_last`
  std::uint64_t first_ = 0;         // offset of the current sample's first file in the archive
  bool has_links_ = false;
  shard_sample next_;
  std::vector<shard_sample> samples_;
  std::string keys_;
  std::uint64_t lines_ = 0;
  std::uint64_t replaced_ = 0;
  hidden_entries hidden_;
};

/// Returns the index path of the shard `path`, in the shard's folder or in `folder`. As in wds2idx,
/// the file name is the shard's file name up to its first dot, plus ".idx".
[[nodiscard]] inline std::string shard_index_path(const std::string& path,
                                                  const std::string& folder) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  std::string stem = path.substr(0, path.find('.', name + 1)) + ".idx";
  if (folder.empty()) return stem;
  return folder + (folder.back() == '/' ? "" : "/") + stem.substr(name);
}

/// Returns the index paths of the shards `paths`, in the same order. A path is "" if several shards
/// would share the index file.
[[nodiscard]] inline std::vector<std::string> shard_index_paths(
    const std::vector<std::string>& paths, const std::string& folder) {
  std::vector<std::string> indexes;
  indexes.reserve(paths.size());
  std::unordered_map<std::string, std::string> path_of;  // shard path of each index path; "" if
                                                         // there are several shards
  for (const std::string& path : paths) {
    const auto place = path_of.emplace(shard_index_path(path, folder), path).first;
    if (place->second != path) place->second.clear();
    indexes.push_back(place->first);
  }
  for (std::string& index : indexes) {
    if (path_of.at(index).empty()) index.clear();
  }
  return indexes;
}

/// Builds the text of an index file in the v1.2 format of NVIDIA's wds2idx, which DALI reads:
///
///     v1.2 SAMPLES
///     EXTENSION OFFSET SIZE PATH EXTENSION OFFSET SIZE PATH ...     for each sample
///
/// Offsets and sizes refer to file data. The format has no quoting, so a path must not contain a
/// blank.
class shard_index_text {
 public:
  static constexpr std::string_view version = "v1.2 ";

  /// Adds a file after `shard_listing::add` listed it. `is_first` is the result of that call.
  void add(const tar_member& file, bool is_first) {
    if (file.name.find_first_of(blanks) != std::string_view::npos) has_blank_ = true;
    is_usual_ = is_usual_ && file.is_usual;
    if (!lines_.empty()) lines_ += is_first ? '\n' : ' ';
    lines_.append(split_component(file.name).extension) += ' ';
    lines_ += std::to_string(file.begin) + ' ' + std::to_string(file.size) + ' ';
    lines_ += file.name;
  }

  /// Returns the reason why the files cannot be indexed, or "".
  [[nodiscard]] std::string_view problem() const noexcept {
    if (lines_.empty()) return "the archive has no sample";
    if (has_blank_) return "a path contains a space, which the format cannot represent";
    if (!is_usual_) return "an extended header contradicts a header";
    return {};
  }

  /// Returns the index text for `samples` samples.
  [[nodiscard]] std::string text(std::uint64_t samples) const {
    return std::string{version} + std::to_string(samples) + '\n' + lines_ + '\n';
  }

  /// Characters that separate words.
  static constexpr std::string_view blanks{" \t\n\v\f\r\0", 7};

 private:
  std::string lines_;
  bool has_blank_ = false;
  bool is_usual_ = true;
};

/// Iterates over the files listed in an index. Validates the untrusted text as far as possible
/// without the archive. References the text.
class shard_index_words {
 public:
  /// Prepares to parse the index `text` of an archive of `archive_size` bytes.
  shard_index_words(std::string_view text, std::uint64_t archive_size)
      : text_(text), archive_size_(archive_size) {
    if (!text_.starts_with(shard_index_text::version)) {
      problem_ = "it is not an index of version v1.2, as written by DALI's wds2idx";
      return;
    }
    text_.remove_prefix(shard_index_text::version.size());
    const auto samples = number('\n');
    if (!samples) problem_ = "its first line does not give the number of samples";
    left_ = samples.value_or(0);
  }

  /// Advances to the next file. Returns false at the end and at the first error.
  [[nodiscard]] bool next() {
    if (!problem_.empty()) return false;
    if (text_.empty()) {
      if (left_ != 0 || !at_line_end_) problem_ = "it ends too early";
      return false;
    }
    is_first_ = at_line_end_;
    if (is_first_ && left_-- == 0) return fail("it has more lines than its first line says");
    const std::size_t extension_end = text_.find(' ');
    if (extension_end == std::string_view::npos) return fail("it ends too early");
    const std::string_view extension = text_.substr(0, extension_end);
    text_.remove_prefix(extension_end + 1);
    const auto begin = number(' ');
    const auto size = begin ? number(' ') : std::nullopt;
    if (!size) return fail("an offset or a size is not a number");
    const std::size_t name_end =
        (std::min)(text_.find_first_of(shard_index_text::blanks), text_.size());
    if (name_end == text_.size()) return fail("it ends too early");
    if (text_[name_end] != ' ' && text_[name_end] != '\n') return fail("a path is invalid");
    file_ = {.name = text_.substr(0, name_end), .begin = *begin, .size = *size};
    at_line_end_ = text_[name_end] == '\n';
    text_.remove_prefix(name_end + 1);
    return file_is_right(extension);
  }

  /// Returns the current file.
  [[nodiscard]] const tar_member& file() const noexcept { return file_; }
  /// Returns true if the current file is the first in its line.
  [[nodiscard]] bool is_first() const noexcept { return is_first_; }
  /// Returns a description of the error in the text, or "".
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// Returns the first block after the last file.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }

 private:
  bool fail(std::string_view problem) {
    problem_ = problem;
    return false;
  }

  // Parses the digits before the character `after`, and removes both from the text.
  [[nodiscard]] std::optional<std::uint64_t> number(char after) noexcept {
    const std::size_t end = text_.find(after);
    if (end == std::string_view::npos) return std::nullopt;
    const auto value = whole_number(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return value;
  }

  // Checks that files are in order and inside the archive, with room for a header before each file.
  [[nodiscard]] bool file_is_right(std::string_view extension) {
    const component_name name = split_component(file_.name);
    if (file_.name.empty() || name.is_hidden() || name.extension != extension) {
      return fail("a path does not have the stated extension");
    }
    if (file_.begin % tar_block != 0 || file_.begin < end_ + tar_block ||
        file_.begin > archive_size_ || file_.size > archive_size_ - file_.begin) {
      return fail("a file has an impossible offset: the index belongs to another archive");
    }
    end_ = file_.begin + (file_.size + tar_block - 1) / tar_block * tar_block;
    return true;
  }

  std::string_view text_;
  std::uint64_t archive_size_;
  std::uint64_t left_ = 0;
  std::uint64_t end_ = 0;
  bool at_line_end_ = true;
  bool is_first_ = false;
  tar_member file_;
  std::string problem_;
};

/// Lists the samples of an archive by reading all its headers. If `index` is not null, also builds
/// the index text. Throws the same errors as `tar_walk` and `shard_listing`.
template <archive_bytes Source>
void list_by_headers(const Source& archive, shard_listing& into, shard_index_text* index) {
  tar_walk walk{archive};
  while (walk.next()) {
    const tar_member& member = walk.member();
    if (member.is_link) into.pass_link();
    if (!member.is_file) continue;
    const auto listed = into.add(member);
    if (listed && index != nullptr) index->add(member, *listed);
  }
  into.finish();
}

/// Lists the samples of an archive from its index text. Returns a description of the error in the
/// text, or "". If the result is "", each listed file fits into the archive, and no other files
/// follow. The content is checked when it is read. Throws the same errors as `tar_walk` and
/// `shard_listing`.
template <archive_bytes Source>
[[nodiscard]] std::string list_by_index(const Source& archive, std::string_view text,
                                        shard_listing& into) {
  shard_index_words words{text, archive.size()};
  while (words.next()) {
    if (into.add(words.file()) != words.is_first()) return "its lines do not describe samples";
  }
  if (!words.problem().empty()) return words.problem();
  if (words.end() == 0) return "it names no file";
  tar_walk rest{archive, words.end()};
  while (rest.next()) {
    if (rest.member().is_file && !split_component(rest.member().name).is_hidden()) {
      return "the archive has more files: the index belongs to an older archive";
    }
  }
  into.finish();
  return {};
}

/// An open shard and its samples.
struct open_shard {
  shard_file file;
  std::vector<shard_sample> samples = {};
  std::string keys = {};
  std::uint64_t skipped = 0;
  std::uint64_t replaced = 0;
  hidden_entries hidden = {};
  bool is_from_index = false;
  std::string problem = {};  ///< Reason why an index was not used or not written, or "".

  /// Opens and lists the shard `path`. `index` is the index path, or "" for none. Uses an existing
  /// index. If no index can be used and `keep` is true, writes an index. Throws `file_unreadable`,
  /// errors from `tar_walk` and `shard_listing`, and `file_changed` if the archive was modified
  /// during the call.
  [[nodiscard]] static open_shard list(std::string path, const shard_selection& selection,
                                       const std::string& index, bool keep) {
    open_shard shard{shard_file{std::move(path)}};
    if (!index.empty()) shard.read_index(index, selection);
    if (!shard.is_from_index) {
      shard_listing listing{shard.file.path(), selection};
      shard_index_text text;
      list_by_headers(shard.file, listing, keep ? &text : nullptr);
      shard.take(listing);
      shard.file.require_unchanged();
      if (keep) shard.write_index(index, text, listing.lines());
    }
    return shard;
  }

 private:
  void take(shard_listing& listing) {
    samples = std::move(listing.samples());
    keys = std::move(listing.keys());
    keys.shrink_to_fit();
    skipped = static_cast<std::uint64_t>(std::count_if(
        samples.begin(), samples.end(),
        [](const shard_sample& one) { return one.extension == shard_sample::skipped; }));
    replaced = listing.replaced();
    hidden = std::move(listing.hidden());
  }

  void add_problem(const std::string& index, const std::string& what) {
    problem += (problem.empty() ? "" : "; ") + index + ": " + what;
  }

  void read_index(const std::string& index, const shard_selection& selection) {
    struct ::stat status {};
    if (::stat(index.c_str(), &status) != 0) return;
    std::string wrong;
    try {
      wrong = list_by(index, status, selection);
    } catch (const file_error& error) {
      wrong = error.what();  // if the archive is damaged, listing by headers throws again
    }
    is_from_index = wrong.empty();
    if (!is_from_index) add_problem(index, "not used: " + wrong);
  }

  /// Lists the shard from its existing index. Returns the reason if the index cannot be used, or
  /// "".
  [[nodiscard]] std::string list_by(const std::string& index, const struct ::stat& status,
                                    const shard_selection& selection) {
    if (!S_ISREG(status.st_mode)) return "it is not a regular file";
    if (file_stamp_of(status).is_older_than(file.stamp())) {
      return "it is older than the archive: if it is correct nevertheless, touch it";
    }
    constexpr std::uint64_t max = std::uint64_t{1} << 32;
    const std::vector<std::byte> bytes = read_file(index, max);
    shard_listing listing{file.path(), selection};
    std::string wrong =
        list_by_index(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, listing);
    if (wrong.empty()) {
      file.require_unchanged();
      take(listing);
    }
    return wrong;
  }

  /// Returns true if the file may be overwritten with an index: it is missing, empty, or already an
  /// index.
  [[nodiscard]] static bool may_write(const std::string& index) {
    struct ::stat status {};
    if (::stat(index.c_str(), &status) != 0) return errno == ENOENT;
    if (!S_ISREG(status.st_mode)) return false;
    if (status.st_size == 0) return true;
    std::array<char, 3> begin{};
    std::ifstream file{index, std::ios::binary};
    file.read(begin.data(), begin.size());
    return file && std::string_view{begin.data(), begin.size()} == "v1.";
  }

  void write_index(const std::string& index, const shard_index_text& text, std::uint64_t lines) {
    std::string wrong{text.problem()};
    if (wrong.empty() && !may_write(index)) {
      wrong =
          "a file that is not an index of tar shards has this name: choose another index_folder";
    }
    if (wrong.empty()) {
      errno = write_whole_file(index, text.text(lines));
      if (errno != 0) wrong = system_reason();
    }
    if (!wrong.empty()) return add_problem(index, "not written: " + wrong);
    // Uses the archive's modification time from before the listing, so that a later change makes
    // the index older than the archive.
    const file_stamp& stamp = file.stamp();
    const ::timespec time{stamp.seconds, stamp.nanoseconds};
    const ::timespec times[] = {time, time};
    static_cast<void>(::utimensat(AT_FDCWD, index.c_str(), times, 0));
  }
};

/// Finds samples with the same key in all shards. If `action` is `reject`, throws `duplicate_entry`
/// for the first duplicate. If `action` is `take_last`, marks all but the last sample with each key
/// as `skipped`. Temporarily allocates 8 bytes for each sample, plus the duplicate keys.
inline void resolve_duplicates(std::vector<open_shard>& shards, duplicate_action action) {
  const auto key_of = [](const open_shard& shard, const shard_sample& sample) {
    return std::string_view{shard.keys.c_str() + sample.key_begin};
  };
  const auto hash_of = [](std::string_view key) {
    return std::hash<std::string>{}(plain_key(key));
  };
  std::vector<std::size_t> hashes;
  for (const open_shard& shard : shards) {
    for (const shard_sample& one : shard.samples) hashes.push_back(hash_of(key_of(shard, one)));
  }
  std::sort(hashes.begin(), hashes.end());
  std::size_t repeated = 0;
  for (std::size_t i = 1; i < hashes.size(); ++i) {
    if (hashes[i] == hashes[i - 1]) hashes[repeated++] = hashes[i];
  }
  hashes.resize(repeated);
  if (hashes.empty()) return;
  struct place {
    open_shard* shard;
    shard_sample* sample;
    [[nodiscard]] std::uint64_t offset() const {
      return (std::uint64_t{sample->blob_block} - 1) * tar_block;
    }
  };
  std::unordered_map<std::string, place> places;
  for (open_shard& shard : shards) {
    for (shard_sample& one : shard.samples) {
      const std::string key{key_of(shard, one)};
      if (!std::binary_search(hashes.begin(), hashes.end(), hash_of(key))) continue;
      const place now{&shard, &one};
      if (action == duplicate_action::take_last && one.extension == shard_sample::skipped) continue;
      const auto [before, is_new] = places.try_emplace(plain_key(key), now);
      if (is_new) continue;
      if (action == duplicate_action::reject) {
        throw duplicate_entry(
            shard.file.path(), now.offset(), "the sample '" + key + '\'',
            before->second.shard->file.path(), before->second.offset(),
            "give each sample a unique key, and store its files one after the other; or set "
            ".duplicates = duplicate_action::take_last, which reads what tar extracts, or keep");
      }
      before->second.sample->extension = shard_sample::skipped;
      ++before->second.shard->replaced;
      before->second = now;
    }
  }
}

}  // namespace detail

/// Expands a pattern in WebDataset notation: "train-{000..146}.tar" becomes 147 paths. The numbers
/// have as many digits as the first number. If there are several ranges, the last range varies
/// fastest. Braces without a range stay unchanged. Throws `option_error` if a range is descending
/// or there are more than a million paths.
[[nodiscard]] inline std::vector<std::string> shard_paths(std::string_view pattern) {
  constexpr std::uint64_t max = 1'000'000;
  std::vector<std::string> paths{""};
  while (true) {
    // Finds the next range: digits, two dots, digits.
    std::size_t open = pattern.find('{');
    std::size_t close = 0;
    std::string_view first;
    std::optional<std::uint64_t> begin;
    std::optional<std::uint64_t> end;
    for (; open != std::string_view::npos; open = pattern.find('{', open + 1)) {
      close = pattern.find('}', open);
      const std::string_view inside = pattern.substr(open + 1, close - open - 1);
      const std::size_t dots = inside.find("..");
      if (close == std::string_view::npos || dots == std::string_view::npos) continue;
      const auto number = [](std::string_view text) {
        return text.size() < 19 ? detail::whole_number(text) : std::nullopt;
      };
      first = inside.substr(0, dots);
      begin = number(first);
      end = number(inside.substr(dots + 2));
      if (begin && end) break;
    }
    const std::string_view before = pattern.substr(0, open);
    for (std::string& path : paths) path += before;
    if (open == std::string_view::npos) return paths;
    const std::string range{pattern.substr(open, close - open + 1)};
    if (*end < *begin) throw option_error("shards", range + " is descending");
    if (*end - *begin >= max / paths.size()) {
      throw option_error("shards", range + " makes more than a million paths");
    }
    std::vector<std::string> longer;
    longer.reserve(paths.size() * static_cast<std::size_t>(*end - *begin + 1));
    for (const std::string& path : paths) {
      for (std::uint64_t i = *begin; i <= *end; ++i) {
        std::string digits = std::to_string(i);
        if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
        longer.push_back(path + digits);
      }
    }
    paths = std::move(longer);
    pattern.remove_prefix(close + 1);
  }
}

/// Specifies how `tar_shards` uses index files.
enum class shard_index {
  ignore,  ///< Reads no index. Reads all headers instead.
  use,     ///< Reads a matching index. Writes no index.
  keep     ///< Like `use`, but also writes a missing or unsuitable index.
};

/// Options of `tar_shards`.
struct tar_shards_options {
  /// Extensions of the blob file in order of preference, ignoring case. An extension is everything
  /// after the first dot of the file name. The list must have 1 to 255 extensions.
  std::vector<std::string> blob = {"jpg", "jpeg", "png", "webp"};
  /// Extension of the label file, which contains a decimal integer. If empty, all labels are 0.
  std::string label = "cls";
  /// If true, samples without a blob or label are skipped and counted. If false, the first such
  /// sample causes `missing_component`.
  bool skip_incomplete = false;
  /// Handling of duplicate sample keys, duplicate paths in a sample, and repeated shards. `keep`
  /// treats samples with the same key as different samples, which suits shards that each count from
  /// 0.
  duplicate_action duplicates = duplicate_action::reject;
  /// Use of index files. The index of `name.tar` is `name.idx`, in DALI's wds2idx format. Shards
  /// whose names are equal up to the first dot would share an index file, so they are read without
  /// an index.
  shard_index index = shard_index::use;
  /// Folder of all index files. If set, shard names must be unique. If empty, each index is in the
  /// folder of its shard.
  std::string index_folder = {};
  /// Maximum blob size in bytes. For a larger blob, `bytes` throws `file_format_error` before it
  /// allocates memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  /// Number of threads that list the shards at construction, so that several headers are read from
  /// disk concurrently. The threads end before the constructor returns.
  std::size_t threads = 8;
  /// Number of shards that stay open. Each read from another shard opens and checks its file.
  std::size_t max_open = 512;
};

namespace detail {

/// Returns the files that each sample must have. Throws `option_error` if an option is invalid.
[[nodiscard]] inline shard_selection selection_of(const tar_shards_options& options) {
  shard_selection selection{options.blob, options.label, options.skip_incomplete,
                            options.duplicates};
  if (selection.blob.empty() || selection.blob.size() > 255) {
    throw option_error("blob", "must name 1 to 255 extensions");
  }
  const auto lower = [](std::string& text) {
    std::transform(text.begin(), text.end(), text.begin(), lowered);
  };
  for (std::string& extension : selection.blob) {
    if (extension.starts_with('.')) {
      throw option_error("blob", "'" + extension + "': write extensions without their dot");
    }
    lower(extension);
  }
  if (selection.label.starts_with('.')) {
    throw option_error("label", "write the extension without its dot");
  }
  lower(selection.label);
  return selection;
}

}  // namespace detail

/// A `blob_source` of the samples in tar archives in WebDataset format:
///
///     tar_shards photos{"imagenet-train-{000000..000146}.tar"};
///     tar_shards texts{{"a.tar", "b.tar"}, {.blob = {"txt"}, .label = ""}};
///
/// A sample consists of consecutive files whose paths are equal up to the first dot of the file
/// name. Hidden files (`is_hidden_path`), files below `__meta__/` and similar folders, and files
/// without a dot belong to no sample. Sample indices continue across shards, so any sampler
/// shuffles over all shards. The option `duplicates` specifies the handling of repeated keys.
///
/// The constructor lists samples from an archive's headers or from an index file. The constructor
/// uses an index that is not older than the archive, has plausible entries, and contains the last
/// file. Otherwise all headers are read. Each read checks the header of its file. A wrong index
/// therefore causes an error and never returns data of another size or path. The check ignores
/// paths that are not ASCII or exceed 100 characters, because headers need not contain them.
///
/// Shards must not change while the object exists. Replacing the file of an open shard has no
/// effect, because the old file stays open. Reading throws `file_changed` if the shard was
/// modified, or if it is not among the `max_open` open shards and was replaced. Names in an archive
/// are used only as keys, never as paths.
///
/// Each sample occupies 24 bytes plus its key. Movable, not copyable. Reading is thread-safe.
class tar_shards {
 public:
  /// Opens and lists the shards of `pattern` (see `shard_paths`). Throws the same errors as the
  /// constructor below, and `option_error` if the pattern yields no path.
  template <std::convertible_to<std::string> Pattern>
  explicit tar_shards(const Pattern& pattern, const tar_shards_options& options = {})
      : tar_shards(shard_paths(std::string(pattern)), options) {}

  /// Opens and lists the shards `paths`. An index that cannot be used or written is not an error
  /// (see `index_problems()`). Throws for the first faulty shard:
  /// - `file_unreadable` if a file cannot be read
  /// - `file_truncated` if an archive ends too early
  /// - `file_corrupt` if a header is damaged
  /// - `file_format_error` if a file is not a tar archive, is compressed, or has sparse files
  /// - `missing_component`, `duplicate_component` if a sample lacks a file or has two files with
  ///   the same extension
  /// - `duplicate_entry` if two samples have the same key, or a shard is listed twice
  /// - `file_changed` if a shard is modified during the call
  /// - `option_error` if an option is invalid
  explicit tar_shards(const std::vector<std::string>& paths, const tar_shards_options& options = {})
      : max_bytes_(options.max_bytes), selection_(detail::selection_of(options)) {
    if (paths.empty()) throw option_error("shards", "must not be empty");
    const std::vector<std::string> indexes =
        options.index == shard_index::ignore
            ? std::vector<std::string>(paths.size())
            : detail::shard_index_paths(paths, options.index_folder);
    const auto open = [&](std::size_t number) {
      const std::string& index = indexes[number];
      const bool keeps = options.index == shard_index::keep && !index.empty();
      auto shard = detail::open_shard::list(paths[number], selection_, index, keeps);
      if (options.index != shard_index::ignore && index.empty()) {
        shard.problem = detail::shard_index_path(paths[number], options.index_folder) +
                        ": not used: it would be the index of several shards, because their names "
                        "are equal up to the first dot: rename them";
      }
      if (number >= options.max_open) shard.file.close();
      return shard;
    };
    shards_ = detail::open_in_parallel(paths.size(), options.threads, open);
    if (options.duplicates == duplicate_action::reject) {
      detail::resolve_repeated_files(shards_, options.duplicates);
    }
    if (options.duplicates != duplicate_action::keep) {
      detail::resolve_duplicates(shards_, options.duplicates);
    }
    for (auto& shard : shards_) {
      std::erase_if(shard.samples, [](const detail::shard_sample& one) {
        return one.extension == detail::shard_sample::skipped;
      });
      shard.samples.shrink_to_fit();
    }
    ends_.reserve(shards_.size());
    for (const auto& shard : shards_) ends_.push_back(size() + shard.samples.size());
  }

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  /// Returns the blob of sample `index`, read into `buffer`. Throws `index_error`,
  /// `file_unreadable`, `file_changed`. Throws `file_format_error` if the blob exceeds `max_bytes`
  /// or its header in the archive contradicts the index.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const place at = find(index);
    const std::uint64_t size = at.sample->blob_size;
    const std::uint64_t begin = std::uint64_t{at.sample->blob_block} * detail::tar_block;
    if (size > max_bytes_)
      detail::throw_blob_too_large(at.shard->file.path(), begin, max_bytes_, size);
    const auto room = buffer.room_for(detail::tar_block + static_cast<std::size_t>(size));
    read(at, begin, selection_.blob[at.sample->extension], size, room);
    return room.subspan(detail::tar_block);
  }

  /// Returns the label of sample `index`: the integer in its label file, which may be surrounded by
  /// blanks. Throws `index_error`, `file_unreadable`, `file_changed`, and `file_format_error` if
  /// the label is not a 64-bit integer.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    const place at = find(index);
    if (at.sample->label_block == detail::shard_sample::no_label) return 0;
    const std::uint64_t begin = std::uint64_t{at.sample->label_block} * detail::tar_block;
    constexpr std::size_t longest = 64;
    const std::size_t size = at.sample->label_size;
    if (size > longest) reject_label(at, begin, std::to_string(size) + " bytes or more");
    std::array<std::byte, detail::tar_block + longest> memory;
    const auto room = std::span{memory}.first(detail::tar_block + size);
    read(at, begin, selection_.label, size, room);
    return number(at, begin,
                  {reinterpret_cast<const char*>(room.data()) + detail::tar_block, size});
  }

  /// Returns the shard path, followed by the blob's path in the shard with a lower-case extension:
  /// "train-000.tar/n01440764/10.jpg". Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const place at = find(index);
    return at.shard->file.path() + '/' + name(at, selection_.blob[at.sample->extension]);
  }

  /// Starts a background read of the blob and its label with posix_fadvise. Does nothing if the
  /// index is out of range or the shard is beyond `max_open`.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size()) return;
    const place at = place_of(index);
    const detail::shard_sample& one = *at.sample;
    std::uint64_t begin = one.blob_block - std::uint64_t{1};
    std::uint64_t end = one.blob_block + one.blob_size / detail::tar_block + 1;
    // The label usually follows the blob and occupies one or two blocks.
    constexpr std::uint64_t near_by = 128;
    if (one.label_block != detail::shard_sample::no_label && one.label_block + near_by > begin &&
        one.label_block < end + near_by) {
      begin = std::min<std::uint64_t>(begin, one.label_block - std::uint64_t{1});
      end = std::max<std::uint64_t>(end, one.label_block + std::uint64_t{1});
    }
    at.shard->file.prefetch(begin * detail::tar_block, (end - begin) * detail::tar_block);
  }

  /// Returns the size of sample `index`'s blob in bytes, or 0 if the index is out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return index < size() ? std::uint64_t{place_of(index).sample->blob_size} : 0;
  }

  /// Returns the number of shards.
  [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }
  /// Returns the number of shards that were listed from an index.
  [[nodiscard]] std::size_t listed_from_index() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(shards_.begin(), shards_.end(),
                      [](const detail::open_shard& shard) { return shard.is_from_index; }));
  }
  /// Returns the reasons why indexes were not used or written, for a log. Each affected shard has
  /// one line. The listing is correct in any case.
  [[nodiscard]] std::vector<std::string> index_problems() const {
    std::vector<std::string> all;
    for (const auto& shard : shards_) {
      if (!shard.problem.empty()) all.push_back(shard.problem);
    }
    return all;
  }
  /// Returns the number of samples skipped because of `skip_incomplete`.
  [[nodiscard]] std::uint64_t skipped() const noexcept {
    return sum_of(&detail::open_shard::skipped);
  }
  /// Returns the number of files and samples skipped because of later duplicates
  /// (`duplicate_action::take_last`).
  [[nodiscard]] std::uint64_t replaced() const noexcept {
    return sum_of(&detail::open_shard::replaced);
  }
  /// Returns the number of files skipped because of their names: hidden files (`is_hidden_path`)
  /// and shard metadata below `__meta__/` and similar folders. Files whose names start with a dot
  /// are not counted in shards listed from an index.
  [[nodiscard]] std::uint64_t hidden() const { return hidden_entries().count; }
  /// Returns warnings for the user about files skipped because of their names or later duplicates,
  /// and about shards without samples. `loader::footprint` repeats the warnings.
  [[nodiscard]] std::vector<std::string> warnings() const {
    const std::string where =
        shards_.front().file.path() + (shards() == 1 ? "" : " and the shards after it");
    auto all = hidden_entries().warnings(where, "hidden files and files of the shard");
    if (replaced() != 0) {
      all.push_back(
          where + ": left out " + std::to_string(replaced()) +
          " files and samples in favor of later ones of the same name, as set by .duplicates");
    }
    if (size() == 0) {
      all.push_back(where + ": no sample, and " + std::to_string(skipped()) +
                    " samples omitted by skip_incomplete");
    }
    return all;
  }

 private:
  struct place {
    const detail::open_shard* shard;
    const detail::shard_sample* sample;
  };

  [[nodiscard]] std::uint64_t sum_of(std::uint64_t detail::open_shard::*count) const noexcept {
    std::uint64_t sum = 0;
    for (const auto& shard : shards_) sum += shard.*count;
    return sum;
  }
  [[nodiscard]] detail::hidden_entries hidden_entries() const {
    detail::hidden_entries all;
    for (const auto& shard : shards_) all.add(shard.hidden);
    return all;
  }

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

  // Reads a header and the data after it, which starts at `begin`.
  void read(const place& at, std::uint64_t begin, std::string_view extension, std::uint64_t size,
            std::span<std::byte> room) const {
    at.shard->file.read_unchanged(begin - detail::tar_block, room);
    if (!at.sample->is_usual) return;
    const std::string_view key = at.shard->keys.c_str() + at.sample->key_begin;
    const std::string found =
        detail::foreign_header(room.first(detail::tar_block), key, extension, size);
    if (found.empty()) return;
    throw file_format_error(
        at.shard->file.path(), begin - detail::tar_block,
        "the header of '" + name(at, extension) + "', " + std::to_string(size) +
            " bytes, according to the shard's index",
        found +
            ": remove the index, which belongs to another archive, or was written by a wds2idx "
            "that counts extended headers as contents of files");
  }

  [[noreturn]] static void reject_label(const place& at, std::uint64_t begin,
                                        const std::string& found) {
    throw file_format_error(at.shard->file.path(), begin,
                            "a label, a 64-bit integer in decimal digits", found);
  }

  [[nodiscard]] static std::int64_t number(const place& at, std::uint64_t begin,
                                           std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n\v\f";
    const std::string_view all = text;
    text.remove_prefix((std::min)(text.find_first_not_of(blanks), text.size()));
    text = text.substr(0, text.find_last_not_of(blanks) + 1);
    const auto value = detail::whole_number<std::int64_t>(text);
    if (!value) reject_label(at, begin, '\'' + std::string{all} + '\'');
    return *value;
  }

  std::uint64_t max_bytes_;
  detail::shard_selection selection_;
  std::vector<detail::open_shard> shards_;
  std::vector<std::uint64_t> ends_;  // cumulative number of samples up to the end of each shard
};

static_assert(blob_source<tar_shards>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
