// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <penstock_ext/blob/tar/detail/shard_listing.hpp>
#include <penstock_ext/blob/tar/detail/tar_header.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where the index of the shard `path` lies: beside it, or in `folder`; named as wds2idx does, up
/// to the first dot of the name, then ".idx".
[[nodiscard]] inline std::string shard_index_path(const std::string& path,
                                                  const std::string& folder) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  std::string stem = path.substr(0, path.find('.', name + 1)) + ".idx";
  if (folder.empty()) return stem;
  return folder + (folder.back() == '/' ? "" : "/") + stem.substr(name);
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
