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
#include <fstream>
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
#include <penstock_ext/blob/support/side_by_side.hpp>
#include <penstock_ext/blob/tar/detail/tar_walk.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The files that make a sample of a tar archive are not those asked for. Says which archive, at
/// which byte the sample's first file starts, and of which sample; the types derived from it say
/// what kind of problem it is.
class [[gnu::visibility("default")]] shard_sample_error : public file_format_error {
 public:
  /// `key` is the sample's: the path of its files up to the extension.
  shard_sample_error(std::string path, std::uint64_t offset, std::string key,
                     const std::string& expected, const std::string& found)
      : file_format_error(std::move(path), offset, expected + " for the sample '" + key + "'",
                          found),
        key_(std::move(key)) {}

  /// The path that the sample's files have in common, up to the first dot of the file's name.
  [[nodiscard]] const std::string& key() const noexcept { return key_; }

 private:
  std::string key_;
};

/// A sample has no file of an extension that was asked for.
class [[gnu::visibility("default")]] missing_component : public shard_sample_error {
 public:
  using shard_sample_error::shard_sample_error;
};

/// A sample has two files of one extension.
class [[gnu::visibility("default")]] duplicate_component : public shard_sample_error {
 public:
  using shard_sample_error::shard_sample_error;
};

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
  std::optional<bool> add(const tar_member& file) {
    const component_name name = split_component(file.name);
    if (name.is_hidden()) return std::nullopt;
    const bool is_first = lines_ == 0 || name.key != line_key_;
    if (is_first) {
      line_key_ = name.key;
      ++lines_;
    }
    if (!name.has_dot) return is_first;  // it is of no sample, and parts none
    if (name.key != key_) {
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
    if (found_.empty()) return;
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

  [[noreturn]] void refuse_second(const component_name& name, const tar_member& file) const {
    throw duplicate_component(path_, file.begin - tar_block, key_,
                              "one file ." + std::string{name.extension},
                              "a second: give each sample a name of its own");
  }

  void take(const component_name& name, const tar_member& file) {
    if (found_.empty()) first_ = file.begin - tar_block;
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
  std::string found_;     // its extensions, for messages; "" between two samples
  std::uint64_t first_ = 0;
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
  std::unordered_map<std::string, std::string> path_of;  // an index; "" for several
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
  void add(const tar_member& file, bool is_first) {
    if (file.name.find_first_of(blanks) != std::string_view::npos) has_blank_ = true;
    is_usual_ = is_usual_ && file.is_usual;
    if (!lines_.empty()) lines_ += is_first ? '\n' : ' ';
    lines_.append(split_component(file.name).extension) += ' ';
    lines_ += std::to_string(file.begin) + ' ' + std::to_string(file.size) + ' ';
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
    file_ = {.name = text_.substr(0, name_end), .begin = *begin, .size = *size};
    at_line_end_ = text_[name_end] == '\n';
    text_.remove_prefix(name_end + 1);
    return file_is_right(extension);
  }

  /// The file that `next` went to.
  [[nodiscard]] const tar_member& file() const noexcept { return file_; }
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
    const std::size_t end = text_.find(after);
    if (end == std::string_view::npos) return std::nullopt;
    const auto value = whole_number(text_.substr(0, end));
    text_.remove_prefix(end + 1);
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
  tar_member file_;
  std::string problem_;
};

/// Lists the samples of an archive by all its headers; the text of its index goes to `index` unless
/// that is null. Throws what `tar_walk` and `shard_listing` throw.
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

/// Lists the samples of an archive by the text of its index. Returns what is wrong with that, ""
/// if nothing is; then each of its files has room in the archive, and there are none after them.
/// What lies there is looked at when it is read. Throws what `tar_walk` and `shard_listing` throw.
template <archive_bytes Source>
[[nodiscard]] std::string list_by_index(const Source& archive, std::string_view text,
                                        shard_listing& into) {
  shard_index_words words{text, archive.size()};
  while (words.next()) {
    if (into.add(words.file()) != words.is_first()) return "its lines are no samples";
  }
  if (!words.problem().empty()) return words.problem();
  if (words.end() == 0) return "it names no file";
  tar_walk rest{archive, words.end()};
  while (rest.next()) {
    if (rest.member().is_file && !split_component(rest.member().name).is_hidden()) {
      return "the archive has more files: the index is of an older one";
    }
  }
  into.finish();
  return {};
}

/// A shard that is open, and what is in it.
struct open_shard {
  shard_file file;
  std::vector<shard_sample> samples = {};
  std::string keys = {};
  std::uint64_t left_out = 0;
  bool is_from_index = false;
  std::string problem = {};  ///< why an index was not used or not written; "" if none was wanted

  /// Opens and lists the shard `path`. `index` is the path of its index, "" for none, which is read
  /// if it is there, and, with `keep`, else written. Throws `file_unreadable`, what `tar_walk` and
  /// `shard_listing` throw, and `file_changed` where the archive was written to meanwhile.
  [[nodiscard]] static open_shard list(std::string path, const shard_wishes& wishes,
                                       const std::string& index, bool keep) {
    open_shard shard{shard_file{std::move(path)}};
    if (!index.empty()) shard.read_index(index, wishes);
    if (!shard.is_from_index) {
      shard_listing listing{shard.file.path(), wishes};
      shard_index_text text;
      list_by_headers(shard.file, listing, keep ? &text : nullptr);
      shard.take(listing);
      shard.file.require_unchanged();  // before what was listed is kept
      if (keep) shard.write_index(index, text, listing.lines());
    }
    return shard;
  }

 private:
  void take(shard_listing& listing) {
    samples = std::move(listing.samples());
    samples.shrink_to_fit();
    keys = std::move(listing.keys());
    keys.shrink_to_fit();
    left_out = listing.left_out();
  }

  void add_problem(const std::string& index, const std::string& what) {
    problem += (problem.empty() ? "" : "; ") + index + ": " + what;
  }

  void read_index(const std::string& index, const shard_wishes& wishes) {
    struct ::stat status {};
    if (::stat(index.c_str(), &status) != 0) return;
    std::string wrong;
    try {
      wrong = list_by(index, status, wishes);
    } catch (const file_error& error) {
      wrong = error.what();  // the archive will say so itself, if it is at fault
    }
    is_from_index = wrong.empty();
    if (!is_from_index) add_problem(index, "not used: " + wrong);
  }

  /// Lists the shard by its index, which is there. Returns why that can't be; "" if it can.
  [[nodiscard]] std::string list_by(const std::string& index, const struct ::stat& status,
                                    const shard_wishes& wishes) {
    if (!S_ISREG(status.st_mode)) return "it is no regular file";
    if (file_stamp_of(status).is_older_than(file.stamp())) {
      return "it is older than the archive: if it is right all the same, touch it";
    }
    constexpr std::uint64_t most = std::uint64_t{1} << 32;
    const std::vector<std::byte> bytes = read_file(index, most);
    shard_listing listing{file.path(), wishes};
    std::string wrong =
        list_by_index(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, listing);
    if (wrong.empty()) {
      file.require_unchanged();
      take(listing);
    }
    return wrong;
  }

  /// Whether nothing is lost there: no file, an empty one, or an index.
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
      wrong = "there is a file that is no index of tar shards: choose another index_folder";
    }
    if (wrong.empty()) {
      errno = write_whole_file(index, text.text(lines));
      if (errno != 0) wrong = system_reason();
    }
    if (!wrong.empty()) return add_problem(index, "not written: " + wrong);
    // The time of the archive as it was listed, so that a later change makes the index older.
    const file_stamp& stamp = file.stamp();
    const ::timespec time{stamp.seconds, stamp.nanoseconds};
    const ::timespec times[] = {time, time};
    static_cast<void>(::utimensat(AT_FDCWD, index.c_str(), times, 0));
  }
};

}  // namespace detail

/// The paths that a pattern in WebDataset's notation stands for: "train-{000..146}.tar" is 147
/// paths, with numbers of as many digits as the first has. Ranges may follow each other; the last
/// one counts fastest. What is in braces and no range stays as it is. Throws `option_error` for a
/// range that goes down, and for more than a million paths.
[[nodiscard]] inline std::vector<std::string> shard_paths(std::string_view pattern) {
  constexpr std::uint64_t most = 1'000'000;
  std::vector<std::string> paths{""};
  while (true) {
    // The next range: digits, two dots, digits.
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
    if (*end < *begin) throw option_error("shards", range + " goes down");
    if (*end - *begin >= most / paths.size()) {
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

/// What `tar_shards` does about the index file of a shard.
enum class shard_index {
  ignore,  ///< no index is read: all headers are
  use,     ///< an index that is there and fits is read, none is written
  keep     ///< besides, one that is not there or does not fit is written, anew
};

/// What of the samples of tar shards is read, and how.
struct tar_shards_options {
  /// Extensions of the file that is a sample's blob, best first: all after the first dot of the
  /// file's name, compared in letters of any case. 1 to 255.
  std::vector<std::string> blob = {"jpg", "jpeg", "png", "webp"};
  /// Extension of the file that has the label as a decimal number; "" for labels that are all 0.
  std::string label = "cls";
  /// Whether samples without a blob or a label are left out and counted. If not,
  /// `missing_component` names the first.
  bool skip_incomplete = false;
  /// Index files in the form of DALI's wds2idx, as `name.idx` for `name.tar`. Shards whose names
  /// agree up to the first dot would share one, and have none.
  shard_index index = shard_index::use;
  /// The folder of the index files, for shards of different names; "" is that of each shard.
  std::string index_folder = {};
  /// The largest blob that is read, in bytes: `bytes` throws `file_format_error` for a larger one,
  /// before it takes memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  /// How many threads list the shards at the construction: headers on a disk are waited for side by
  /// side. None is left when it returns.
  std::size_t threads = 8;
  /// How many shards stay open. Those after them are opened for each read, and checked.
  std::size_t most_open = 512;
};

namespace detail {

/// What is wanted of a sample. Throws `option_error` for options that mean nothing.
[[nodiscard]] inline shard_wishes wishes_of(const tar_shards_options& options) {
  shard_wishes wishes{options.blob, options.label, options.skip_incomplete};
  if (wishes.blob.empty() || wishes.blob.size() > 255) {
    throw option_error("blob", "must name 1 to 255 extensions");
  }
  const auto lower = [](std::string& text) {
    std::transform(text.begin(), text.end(), text.begin(), lowered);
  };
  for (std::string& extension : wishes.blob) {
    if (extension.starts_with('.')) {
      throw option_error("blob", "'" + extension + "': extensions are named without their dot");
    }
    lower(extension);
  }
  if (wishes.label.starts_with('.')) {
    throw option_error("label", "the extension is named without its dot");
  }
  lower(wishes.label);
  return wishes;
}

}  // namespace detail

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
/// the archive, if its entries are possible and it names the last file; else all headers are read.
/// Each read looks at its file's own header: a wrong index gives an error, and no bytes of another
/// size or path. Paths that are not ASCII, or have more than 100 characters, need not stand in that
/// header and count as right.
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
    const std::vector<std::string> indexes =
        options.index == shard_index::ignore
            ? std::vector<std::string>(paths.size())
            : detail::shard_index_paths(paths, options.index_folder);
    const auto open = [&](std::size_t number) {
      const std::string& index = indexes[number];
      const bool keeps = options.index == shard_index::keep && !index.empty();
      auto shard = detail::open_shard::list(paths[number], wishes_, index, keeps);
      if (options.index != shard_index::ignore && index.empty()) {
        shard.problem = detail::shard_index_path(paths[number], options.index_folder) +
                        ": not used: it would be the index of several shards, whose names agree up "
                        "to the first dot: name them differently";
      }
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
  /// bytes differs from the one in the index.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const place at = find(index);
    const std::uint64_t size = at.sample->blob_size;
    const std::uint64_t begin = std::uint64_t{at.sample->blob_block} * detail::tar_block;
    if (size > max_bytes_) detail::refuse_large(at.shard->file.path(), begin, max_bytes_, size);
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

  /// The path of the shard, and in it that of the sample's blob, its extension in small letters:
  /// "train-000.tar/n01440764/10.jpg". Throws `index_error`.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const place at = find(index);
    return at.shard->file.path() + '/' + name(at, wishes_.blob[at.sample->extension]);
  }

  /// Has the system read the blob and its label ahead, by posix_fadvise; does nothing for
  /// an index out of range, and in shards beyond `most_open`.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size()) return;
    const place at = place_of(index);
    const detail::shard_sample& one = *at.sample;
    std::uint64_t begin = one.blob_block - std::uint64_t{1};
    std::uint64_t end = one.blob_block + one.blob_size / detail::tar_block + 1;
    // The label usually follows the blob; if not, it takes a block or two.
    constexpr std::uint64_t near_by = 128;
    if (one.label_block != detail::shard_sample::no_label && one.label_block + near_by > begin &&
        one.label_block < end + near_by) {
      begin = std::min<std::uint64_t>(begin, one.label_block - std::uint64_t{1});
      end = std::max<std::uint64_t>(end, one.label_block + std::uint64_t{1});
    }
    at.shard->file.prefetch(begin * detail::tar_block, (end - begin) * detail::tar_block);
  }

  /// The bytes of the blob of sample `index`; 0 for one out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
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
    const std::string found =
        detail::foreign_header(room.first(detail::tar_block), key, extension, size);
    if (found.empty()) return;
    throw file_format_error(
        at.shard->file.path(), begin - detail::tar_block,
        "the header of '" + name(at, extension) + "', " + std::to_string(size) +
            " bytes, as the shard's index has it",
        found +
            ": remove the index, it is of another archive, or of a wds2idx that "
            "takes extended headers for files' bytes");
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
    const auto value = detail::whole_number<std::int64_t>(text);
    if (!value) refuse_label(at, begin, '\'' + std::string{all} + '\'');
    return *value;
  }

  std::uint64_t max_bytes_;
  detail::shard_wishes wishes_;
  std::vector<detail::open_shard> shards_;
  std::vector<std::uint64_t> ends_;  // of the shards, in samples, from the first shard's start
};

static_assert(blob_source<tar_shards>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
