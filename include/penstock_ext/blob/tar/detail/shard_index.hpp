// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <penstock_ext/blob/detail/lowered.hpp>
#include <penstock_ext/blob/tar/detail/tar_walk.hpp>
#include <penstock_ext/blob/tar/tar_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The path of a file in a shard, in the two parts that WebDataset's rule makes of it.
struct component_name {
  std::string_view key;        ///< up to the first dot of the file's name: that of the sample
  std::string_view extension;  ///< after that dot
  bool has_dot = false;        ///< if not, the file belongs to no sample

  /// Whether the file's name starts with a dot; such a file is not listed.
  [[nodiscard]] bool is_hidden() const noexcept { return key.empty() || key.back() == '/'; }
};

/// Takes a path apart. Without a dot the key is the path but for its last character, and the
/// extension is the path: so NVIDIA's wds2idx has it in its index files.
[[nodiscard]] inline component_name split_component(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  const std::size_t dot = path.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) {
    return {path.substr(0, path.empty() ? 0 : path.size() - 1), path, false};
  }
  return {path.substr(0, dot), path.substr(dot + 1), true};
}

/// A file of a shard.
struct shard_component {
  std::string_view name = {};  ///< its path
  std::uint64_t begin = 0;     ///< where its bytes start
  std::uint64_t size = 0;      ///< bytes
  bool is_usual = true;        ///< see `tar_member`
};

/// Where a sample lies in its shard.
struct shard_sample {
  static constexpr std::uint32_t no_label = 0;  ///< the first block of an archive is a header

  std::uint64_t blob_size = 0;           ///< bytes
  std::uint32_t blob_block = 0;          ///< where it starts, in blocks
  std::uint32_t label_block = no_label;  ///< where it starts, in blocks
  std::uint32_t key_begin = 0;           ///< in the shard's keys, each of which a NUL ends
  std::uint16_t label_size = 0;          ///< bytes; the most there is for all that are longer
  std::uint8_t extension = 0;            ///< which of those asked for the blob has
  bool is_usual = true;                  ///< that the headers of blob and label are
};

static_assert(sizeof(shard_sample) == 24, "what tar_shards says that a sample takes");

/// What of a sample is wanted.
struct shard_wishes {
  std::vector<std::string> blob;  ///< extensions, best first; at most 255, in small letters
  std::string label;              ///< an extension, in small letters; "" for none
  bool leaves_out = false;        ///< samples that lack one, instead of throwing
};

/// The samples of a shard, made of its files in their order: files that follow each other and have
/// one key are a sample.
class shard_listing {
 public:
  /// Of the archive `path`, which is for messages. Refers to `wishes`.
  shard_listing(std::string path, const shard_wishes& wishes)
      : path_(std::move(path)), wishes_(&wishes) {}

  /// Adds a file, after the ones before; whether a sample starts with it, as wds2idx counts them;
  /// nothing for a file that is not listed. Throws `missing_component` and `duplicate_component`
  /// for the sample before it or its own, and `file_format_error` where the shard is too large.
  std::optional<bool> add(const shard_component& file) {
    const component_name name = split_component(file.name);
    if (name.is_hidden()) return std::nullopt;
    const bool is_first = lines_ == 0 || name.key != line_key_;
    if (is_first) {
      line_key_ = name.key;
      ++lines_;
    }
    if (!name.has_dot) return is_first;  // it is of no sample, and parts none
    if (!has_files_ || name.key != key_) {
      finish();
      key_ = name.key;
    }
    take(name, file);
    return is_first;
  }

  /// Notes that the archive has a link, for messages: it has no bytes, and is no file of a sample.
  void pass_link() noexcept { has_links_ = true; }

  /// Ends the last sample. Throws as `add`.
  void finish() {
    if (!has_files_) return;
    has_files_ = false;
    const bool has_label = wishes_->label.empty() || next_.label_block != shard_sample::no_label;
    if (next_.blob_block != 0 && has_label) {
      next_.key_begin = static_cast<std::uint32_t>(keys_.size());
      if (keys_.size() + key_.size() > (std::numeric_limits<std::uint32_t>::max)()) {
        throw file_format_error(path_, first_, "keys of at most 4 GiB", "more: use smaller shards");
      }
      keys_.append(key_).push_back('\0');
      samples_.push_back(next_);
    } else if (wishes_->leaves_out) {
      ++left_out_;
    } else {
      std::string expected;
      if (next_.blob_block == 0) {
        for (const std::string& one : wishes_->blob) {
          expected += (expected.empty() ? "a file ." : " or .") + one;
        }
      } else {
        expected = "a file ." + wishes_->label;
      }
      throw missing_component(path_, first_, key_, expected,
                              found_ + (has_links_ ? links : "") +
                                  ": the files of a sample have to follow each other, and "
                                  "skip_incomplete leaves such samples out");
    }
    next_ = {};
    found_.clear();
  }

  /// How many samples wds2idx counts: also those that are left out here.
  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_; }
  /// How many were left out because they are incomplete.
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }
  /// The samples, to be taken from a listing that is finished.
  [[nodiscard]] std::vector<shard_sample>& samples() noexcept { return samples_; }
  /// Their keys, one after the other, each ended by a NUL.
  [[nodiscard]] std::string& keys() noexcept { return keys_; }

 private:
  static constexpr const char* links =
      ", and links in the archive, which have no bytes of their own: pack the files that they lead "
      "to (tar --dereference --hard-dereference)";

  // Whether `extension` is `wanted`, in letters of any case.
  [[nodiscard]] static bool is(std::string_view extension, std::string_view wanted) noexcept {
    return std::equal(extension.begin(), extension.end(), wanted.begin(), wanted.end(),
                      [](char a, char b) { return lowered(a) == b; });
  }

  [[noreturn]] void refuse_second(const component_name& name, const shard_component& file) const {
    throw duplicate_component(path_, file.begin - tar_block, key_,
                              "one file ." + std::string{name.extension},
                              "a second: give each sample a name of its own");
  }

  void take(const component_name& name, const shard_component& file) {
    if (!has_files_) first_ = file.begin - tar_block;
    has_files_ = true;
    constexpr std::size_t most_shown = 80;
    if (found_.size() < most_shown) {
      found_ += (found_.empty() ? "." : ", .") + std::string{name.extension.substr(0, most_shown)};
    }
    const std::uint64_t block = file.begin / tar_block;
    if (block > (std::numeric_limits<std::uint32_t>::max)()) {
      throw file_format_error(path_, file.begin, "a shard of at most 2 TiB",
                              "a larger one: use smaller shards");
    }
    if (!wishes_->label.empty() && is(name.extension, wishes_->label)) {
      if (next_.label_block != shard_sample::no_label) refuse_second(name, file);
      constexpr std::uint64_t most = (std::numeric_limits<std::uint16_t>::max)();
      next_.label_block = static_cast<std::uint32_t>(block);
      next_.label_size = static_cast<std::uint16_t>((std::min)(file.size, most));
      next_.is_usual = next_.is_usual && file.is_usual;
    }
    for (std::size_t i = 0; i < wishes_->blob.size(); ++i) {
      if (!is(name.extension, wishes_->blob[i])) continue;
      if (next_.blob_block != 0 && next_.extension == i) refuse_second(name, file);
      if (next_.blob_block != 0 && next_.extension < i) break;  // there is a better one
      next_.blob_block = static_cast<std::uint32_t>(block);
      next_.blob_size = file.size;
      next_.extension = static_cast<std::uint8_t>(i);
      next_.is_usual = next_.is_usual && file.is_usual;
      break;
    }
  }

  std::string path_;
  const shard_wishes* wishes_;
  std::string line_key_;  // of the last file, as wds2idx has it
  std::string key_;       // of the sample that is being read
  std::string found_;     // its extensions, for messages
  std::uint64_t first_ = 0;
  bool has_files_ = false;
  bool has_links_ = false;
  shard_sample next_;
  std::vector<shard_sample> samples_;
  std::string keys_;
  std::uint64_t lines_ = 0;
  std::uint64_t left_out_ = 0;
};

/// The path of the index of the shard `path`: in its folder, or in `folder`; named as wds2idx does,
/// up to the first dot of the name, then ".idx".
[[nodiscard]] inline std::string shard_index_path(const std::string& path,
                                                  const std::string& folder) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  std::string stem = path.substr(0, path.find('.', name + 1)) + ".idx";
  if (folder.empty()) return stem;
  return folder + (folder.back() == '/' ? "" : "/") + stem.substr(name);
}

/// The paths of the indexes of the shards `paths`, in their order; "" for those whose index would
/// also be that of another path.
[[nodiscard]] inline std::vector<std::string> shard_index_paths(
    const std::vector<std::string>& paths, const std::string& folder) {
  std::vector<std::string> indexes;
  indexes.reserve(paths.size());
  std::unordered_map<std::string, std::size_t> first;  // of the shards of an index
  std::unordered_set<std::string> shared;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    indexes.push_back(shard_index_path(paths[i], folder));
    const auto [place, is_new] = first.emplace(indexes[i], i);
    if (!is_new && paths[place->second] != paths[i]) shared.insert(indexes[i]);
  }
  for (std::string& index : indexes) {
    if (shared.contains(index)) index.clear();
  }
  return indexes;
}

/// The text of an index file as NVIDIA's wds2idx writes it, in the version v1.2 that DALI reads:
///
///     v1.2 SAMPLES
///     EXTENSION OFFSET SIZE PATH EXTENSION OFFSET SIZE PATH ...     for each sample
///
/// Offsets and sizes are those of the files' bytes. Nothing is quoted, so a path has no blank.
class shard_index_text {
 public:
  /// What the first line starts with.
  static constexpr std::string_view version = "v1.2 ";

  /// Adds a file that `shard_listing::add` has listed, `is_first` as that returned.
  void add(const shard_component& file, bool is_first) {
    if (file.name.find_first_of(blanks) != std::string_view::npos) has_blank_ = true;
    is_usual_ = is_usual_ && file.is_usual;
    if (!lines_.empty()) lines_ += is_first ? '\n' : ' ';
    lines_.append(split_component(file.name).extension) += ' ';
    append(file.begin);
    append(file.size);
    lines_ += file.name;
  }

  /// Why there is no index of these files; "" if there is.
  [[nodiscard]] std::string_view problem() const noexcept {
    if (lines_.empty()) return "there is no sample in the archive";
    if (has_blank_) return "a path has a blank, which the format has no way to say";
    if (!is_usual_) return "an extended header contradicts a header";
    return {};
  }

  /// The text, of so many samples.
  [[nodiscard]] std::string text(std::uint64_t samples) const {
    return std::string{version} + std::to_string(samples) + '\n' + lines_ + '\n';
  }

  /// What separates words for a program that reads the text by words.
  static constexpr std::string_view blanks{" \t\n\v\f\r\0", 7};

 private:
  void append(std::uint64_t number) {
    char digits[20];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    lines_.append(digits, end) += ' ';
  }

  std::string lines_;
  bool has_blank_ = false;
  bool is_usual_ = true;
};

/// The files that an index names, one after the other, checked as far as the text alone can be: any
/// text may come. Refers to the text.
class shard_index_words {
 public:
  /// Of an archive of `archive_size` bytes.
  shard_index_words(std::string_view text, std::uint64_t archive_size)
      : text_(text), archive_size_(archive_size) {
    if (!text_.starts_with(shard_index_text::version)) {
      problem_ = "it is no index of version v1.2, as wds2idx of DALI writes it";
      return;
    }
    text_.remove_prefix(shard_index_text::version.size());
    const auto samples = number('\n');
    if (!samples) problem_ = "its first line does not say how many samples there are";
    left_ = samples.value_or(0);
  }

  /// Goes to the next file; false at the end, and at the first thing that can't be.
  [[nodiscard]] bool next() {
    if (!problem_.empty()) return false;
    if (text_.empty()) {
      if (left_ != 0 || !at_line_end_) problem_ = "it ends too early";
      return false;
    }
    is_first_ = at_line_end_;
    if (is_first_ && left_-- == 0) return fail("it has more lines than it says");
    const std::size_t extension_end = text_.find(' ');
    if (extension_end == std::string_view::npos) return fail("it ends too early");
    const std::string_view extension = text_.substr(0, extension_end);
    text_.remove_prefix(extension_end + 1);
    const auto begin = number(' ');
    const auto size = begin ? number(' ') : std::nullopt;
    if (!size) return fail("an offset or a size is no number");
    const std::size_t name_end =
        (std::min)(text_.find_first_of(shard_index_text::blanks), text_.size());
    if (name_end == text_.size()) return fail("it ends too early");
    if (text_[name_end] != ' ' && text_[name_end] != '\n') return fail("a path is none");
    file_ = {text_.substr(0, name_end), *begin, *size, true};
    at_line_end_ = text_[name_end] == '\n';
    text_.remove_prefix(name_end + 1);
    return file_is_right(extension);
  }

  /// The file that `next` went to.
  [[nodiscard]] const shard_component& file() const noexcept { return file_; }
  /// Whether a line starts with it.
  [[nodiscard]] bool is_first() const noexcept { return is_first_; }
  /// What is wrong with the text; "" if nothing is.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// The first block after the last file.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }

 private:
  bool fail(std::string_view problem) {
    problem_ = problem;
    return false;
  }

  // The digits before `after`, which goes with them.
  [[nodiscard]] std::optional<std::uint64_t> number(char after) noexcept {
    std::uint64_t value = 0;
    const char* const end = text_.data() + text_.size();
    const auto read_to = std::from_chars(text_.data(), end, value);
    if (read_to.ec != std::errc{} || read_to.ptr == end || *read_to.ptr != after) {
      return std::nullopt;
    }
    text_.remove_prefix(static_cast<std::size_t>(read_to.ptr - text_.data()) + 1);
    return value;
  }

  // Files lie in order, each after a header of its own, and inside the archive.
  [[nodiscard]] bool file_is_right(std::string_view extension) {
    const component_name name = split_component(file_.name);
    if (file_.name.empty() || name.is_hidden() || name.extension != extension) {
      return fail("a path does not have the extension that is said");
    }
    if (file_.begin % tar_block != 0 || file_.begin < end_ + tar_block ||
        file_.begin > archive_size_ || file_.size > archive_size_ - file_.begin) {
      return fail("a file does not lie where one can: it is of another archive");
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
  shard_component file_;
  std::string problem_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
