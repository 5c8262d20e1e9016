// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/blob/tar/detail/tar_header.hpp>
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

  /// Notes that the archive has a link of that name at this place, for messages: it has no bytes,
  /// and is no file of a sample.
  void pass_link(std::string_view path) {
    const component_name name = split_component(path);
    if (name.is_hidden() || !name.has_dot) return;
    if (has_files_ && name.key == key_) {
      note_link(links_, name);
      return;
    }
    if (name.key != link_key_) next_links_.clear();
    link_key_ = name.key;
    note_link(next_links_, name);
  }

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
                              found_ + links_ +
                                  ": the files of a sample have to follow each other, and "
                                  "skip_incomplete leaves such samples out");
    }
    next_ = {};
    found_.clear();
    links_.clear();
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
  // Whether `extension` is `wanted`, in letters of any case.
  [[nodiscard]] static bool is(std::string_view extension, std::string_view wanted) noexcept {
    return std::equal(extension.begin(), extension.end(), wanted.begin(), wanted.end(),
                      [](char a, char b) {
                        return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
                      });
  }

  [[noreturn]] void refuse_second(const component_name& name, const shard_component& file) const {
    throw duplicate_component(path_, file.begin - tar_block, key_,
                              "one file ." + std::string{name.extension},
                              "a second: give each sample a name of its own");
  }

  static void note_link(std::string& links, const component_name& name) {
    constexpr std::size_t most_shown = 80;
    if (!links.empty()) return;
    links = ", and ." + std::string{name.extension.substr(0, most_shown)} +
            " as a link, which has no bytes of its own: pack the files that links lead to (tar "
            "--dereference --hard-dereference)";
  }

  void take(const component_name& name, const shard_component& file) {
    if (!has_files_) {
      first_ = file.begin - tar_block;
      if (link_key_ == key_) links_.swap(next_links_);
    }
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
  std::string line_key_;    // of the last file, as wds2idx has it
  std::string key_;         // of the sample that is being read
  std::string found_;       // its extensions, for messages
  std::string links_;       // of it, for messages
  std::string link_key_;    // of the last link that is of no sample yet
  std::string next_links_;  // of that key, for messages
  std::uint64_t first_ = 0;
  bool has_files_ = false;
  shard_sample next_;
  std::vector<shard_sample> samples_;
  std::string keys_;
  std::uint64_t lines_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
