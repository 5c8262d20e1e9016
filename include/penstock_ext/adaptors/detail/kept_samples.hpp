// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/index_file.hpp>
#include <penstock_ext/files/mapped_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the number of 64-bit words that have a bit for each of `size` samples.
[[nodiscard]] constexpr std::uint64_t words_of_bits(std::uint64_t size) noexcept {
  return size / 64 + (size % 64 == 0 ? 0 : 1);
}

/// Returns the position of set bit `rank` of `word`, counted from 0. `word` must have more than
/// `rank` set bits.
[[nodiscard]] constexpr unsigned position_of_bit(std::uint64_t word, unsigned rank) noexcept {
  unsigned at = 0;
  for (unsigned width = 32; width != 0; width /= 2) {
    const std::uint64_t low = word & ((std::uint64_t{1} << width) - 1);
    const auto below = static_cast<unsigned>(std::popcount(low));
    const bool is_above = rank >= below;
    word = is_above ? word >> width : low;
    rank -= is_above ? below : 0;
    at += is_above ? width : 0;
  }
  return at;
}

/// Header of a filter file, followed by one bit for each sample in 8-byte words in native byte
/// order, and by the key. A machine with a different byte order finds a wrong checksum.
struct filter_header {
  char magic[8] = {'p', 's', 'F', 'I', 'L', 'T', 'R', '1'};
  std::uint64_t checksum = 0;     ///< checksum of all following bytes
  std::uint64_t size = 0;         ///< number of samples in the dataset
  std::uint64_t kept = 0;         ///< number of kept samples
  std::uint64_t fingerprint = 0;  ///< dataset fingerprint
  std::uint64_t key_bytes = 0;    ///< size of the key in bytes
};
static_assert(sizeof(filter_header) == 48);

/// The dataset and predicate to which a filter file belongs.
struct filter_identity {
  std::uint64_t size = 0;
  std::uint64_t fingerprint = 0;
  std::string_view key = {};
};

/// One bit for each sample, in memory or in a mapped filter file, and a directory for finding the
/// n-th set bit. Reading is thread-safe.
class sample_bits {
 public:
  /// Takes one bit for each sample. All other bits of the last word must be 0.
  explicit sample_bits(std::vector<std::uint64_t> words) : owned_(std::move(words)) {
    words_ = owned_;
    make_directory();
  }

  /// Opens a filter file. Throws `file_format_error` if the file is not a filter file, or if the
  /// key or the fingerprint differs from `expected`, and `length_mismatch` if the size differs.
  /// Throws `file_truncated`, and `file_corrupt` if the checksum or the content is wrong.
  sample_bits(mapped_file file, const filter_identity& expected) : file_(std::move(file)) {
    require_magic(*file_);
    const auto bytes = file_->bytes();
    filter_header head;
    std::memcpy(&head, bytes.data(), (std::min)(bytes.size(), sizeof head));
    const std::uint64_t room = bytes.size() < sizeof head ? 0 : bytes.size() - sizeof head;
    const std::uint64_t count = words_of_bits(head.size);
    if (bytes.size() < sizeof head || count > room / sizeof(std::uint64_t) ||
        head.key_bytes > room - count * sizeof(std::uint64_t)) {
      throw file_truncated(file_->path(), bytes.size(),
                           str_cat({"a header of 48 bytes, the bits of ", head.size,
                                    " samples and a key of ", head.key_bytes, " bytes"}),
                           "the end of the file: remove it");
    }
    require_checksum(bytes, head.checksum, file_->path(), "the filter file");
    const auto body = bytes.subspan(sizeof head);
    const auto key = body.subspan(static_cast<std::size_t>(count * sizeof(std::uint64_t)),
                                  static_cast<std::size_t>(head.key_bytes));
    require_identity(head, {reinterpret_cast<const char*>(key.data()), key.size()}, expected);
    words_ = {reinterpret_cast<const std::uint64_t*>(body.data()), static_cast<std::size_t>(count)};
    make_directory();
    const bool has_later_bits = head.size % 64 != 0 && words_.back() >> head.size % 64 != 0;
    if (size() != head.kept || has_later_bits) {
      throw file_corrupt(file_->path(), offsetof(filter_header, kept),
                         str_cat({size(), " kept samples, which are the bits of the file"}),
                         str_cat({head.kept, ": the file is damaged: remove it"}));
    }
  }

  sample_bits(sample_bits&&) = delete;
  sample_bits& operator=(sample_bits&&) = delete;

  /// Throws `file_format_error` if the file is not a filter file.
  static void require_magic(const mapped_file& file) {
    if (has_magic_of<filter_header>(file.bytes())) return;
    throw file_format_error(file.path(), 0, "a filter file, which starts with psFILTR1",
                            "other bytes: set .path to another file");
  }

  /// Writes the bits to a filter file. Throws `file_unwritable`.
  void write(const new_index& file, const filter_identity& identity) const {
    const filter_header head{.size = identity.size,
                             .kept = size(),
                             .fingerprint = identity.fingerprint,
                             .key_bytes = identity.key.size()};
    std::string bytes(sizeof head, '\0');
    bytes.append(reinterpret_cast<const char*>(words_.data()), words_.size_bytes());
    bytes += identity.key;
    file.write(head, bytes);
  }

  /// Returns the number of set bits.
  [[nodiscard]] std::uint64_t size() const noexcept { return counts_.back(); }
  /// Returns a hash of all bits.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  /// Returns the position of set bit `i`, counted from 0. `i` must be less than size(). Searches
  /// between two marks, so the time depends only on the distance between set bits.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept {
    const std::uint64_t* const mark = &marks_[static_cast<std::size_t>(i / mark_distance)];
    // Finds the last block with at most `i` set bits before it.
    const auto* const found = std::upper_bound(&counts_[mark[0]] + 1, &counts_[mark[1]] + 1, i) - 1;
    auto word = static_cast<std::size_t>(found - counts_.data()) * block_words;
    auto rank = static_cast<unsigned>(i - *found);
    for (;; ++word) {
      const auto count = static_cast<unsigned>(std::popcount(words_[word]));
      if (rank < count) break;
      rank -= count;
    }
    return word * 64 + position_of_bit(words_[word], rank);
  }

 private:
  static constexpr std::size_t block_words = 8;
  static constexpr std::uint64_t mark_distance = 4096;

  /// Counts the bits before each block of 512 samples, and marks the blocks of some set bits.
  void make_directory() {
    counts_.reserve(words_.size() / block_words + 2);
    counts_.push_back(0);
    for (std::size_t first = 0; first < words_.size(); first += block_words) {
      std::uint64_t count = counts_.back();
      const std::size_t last = (std::min)(first + block_words, words_.size());
      for (std::size_t i = first; i < last; ++i) {
        count += static_cast<std::uint64_t>(std::popcount(words_[i]));
      }
      if (marks_.size() * mark_distance < count) marks_.push_back(counts_.size() - 1);
      counts_.push_back(count);
    }
    if (counts_.size() > 1) marks_.push_back(counts_.size() - 2);
    hash_ = word_hash{}.add_all(words_).value();
  }

  void require_identity(const filter_header& head, std::string_view key,
                        const filter_identity& expected) const {
    static constexpr const char* remedy = ": remove the file, or set .on_stale = rebuild";
    const std::string& path = file_->path();
    if (key != expected.key) {
      throw file_format_error(path, sizeof head + words_of_bits(head.size) * sizeof(std::uint64_t),
                              str_cat({"the key \"", expected.key, "\""}),
                              str_cat({"\"", key, "\"", remedy}));
    }
    if (head.size != expected.size) {
      throw length_mismatch(path, offsetof(filter_header, size),
                            str_cat({"a filter of ", expected.size, " samples"}),
                            str_cat({head.size, remedy}));
    }
    if (head.fingerprint != expected.fingerprint) {
      throw file_format_error(
          path, offsetof(filter_header, fingerprint),
          str_cat({"the fingerprint ", expected.fingerprint, " of the selected samples"}),
          str_cat({head.fingerprint, remedy}));
    }
  }

  std::optional<mapped_file> file_;
  std::vector<std::uint64_t> owned_;
  std::span<const std::uint64_t> words_;
  std::vector<std::uint64_t> counts_;  // set bits before each block, and of all blocks
  std::vector<std::uint64_t> marks_;   // blocks of set bits 0, 4096, ..., and the last block
  std::uint64_t hash_ = 0;
};

/// The samples that a filter keeps, as a selection of `subset_dataset`. Copies share the bits.
class kept_samples {
 public:
  explicit kept_samples(std::shared_ptr<const sample_bits> bits) noexcept
      : bits_(std::move(bits)) {}

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return bits_->size(); }
  /// Returns the index of sample `i` in the whole dataset.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept { return (*bits_)[i]; }
  /// Adds the selection to a hash.
  void add_to(word_hash& hash) const noexcept { hash.add_all({5 /* of bits */, bits_->hash()}); }
  /// Does nothing, because the bits were computed from this dataset.
  void check(std::uint64_t) const noexcept {}

 private:
  std::shared_ptr<const sample_bits> bits_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
