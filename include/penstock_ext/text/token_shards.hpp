// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/text/token_windows.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Header format of a token file.
struct token_header {
  /// Number of bytes before the first token.
  std::uint64_t bytes = 0;
  /// Token size in bytes: 2 (`uint16`) or 4 (`uint32`, or `int32` without negative values). If
  /// `is_llmc` is true, the file specifies the size.
  std::size_t token_bytes = 2;
  /// True for the llm.c header, which starts with three 32-bit integers: the magic number, the
  /// version and the token count.
  bool is_llmc = false;
};

/// The 1024-byte header of llm.c and modded-nanogpt files. Accepts GPT-2 tokens (magic number
/// 20240520, version 1, `uint16`) and Llama 3 tokens (20240801, version 7, `uint32`).
inline constexpr token_header llmc_header{.bytes = 1024, .token_bytes = 0, .is_llmc = true};

/// Options of `token_shards`.
struct token_shards_options {
  /// Number of tokens in `x` and in `y`, at least 1.
  std::size_t length = 1024;
  /// Header format of all files.
  token_header header = {};
  /// Number of windows in a step: the batch size times the number of ranks. As in llm.c, a shard
  /// contains only whole steps. The remaining windows are skipped, so that no step spans two
  /// shards. With 1, no window is skipped.
  std::uint64_t whole_steps = 1;
  /// If true, rejects a file that has no llm.c header and starts like a known format, such as npy,
  /// gzip or Parquet.
  bool check_format = true;
};

namespace detail {

/// The tokens in a file.
struct stored_tokens {
  std::span<const std::byte> bytes;
  std::size_t token_bytes = 0;  ///< token size, 2 or 4
};

/// Finds the tokens in `bytes`, the content of the file `path`. Throws `file_truncated` if the file
/// ends within its header or within a token, and `file_format_error` if the magic number or version
/// is wrong. Throws `length_mismatch` if the token count in the header differs from the file, and
/// `option_error` if the token size is invalid.
[[nodiscard]] inline stored_tokens stored_tokens_of(std::span<const std::byte> bytes,
                                                    const std::string& path,
                                                    const token_header& header) {
  if (bytes.size() < header.bytes) {
    throw file_truncated(path, bytes.size(),
                         "a header of " + std::to_string(header.bytes) + " bytes",
                         "the end of the file");
  }
  const auto rest = bytes.subspan(static_cast<std::size_t>(header.bytes));
  std::size_t width = header.token_bytes;
  if (header.is_llmc) {
    if (header.bytes < 12)
      throw_option_error("header", {"a header of llm.c has at least 12 bytes"});
    const auto number = [&](std::size_t at) { return little_endian<4>(bytes.data() + at); };
    const bool is_gpt2 = number(0) == 20240520;
    if (!is_gpt2 && number(0) != 20240801) {
      const std::string format = foreign_text(bytes);
      throw file_format_error(path, 0, "the magic number of llm.c, 20240520 or 20240801",
                              std::to_string(number(0)) + (format.empty() ? "" : ", " + format));
    }
    const std::uint64_t version = is_gpt2 ? 1 : 7;
    if (number(4) != version) {
      throw file_format_error(path, 4, "version " + std::to_string(version),
                              std::to_string(number(4)));
    }
    width = is_gpt2 ? 2 : 4;
    if (number(8) * width != rest.size()) {
      throw length_mismatch(path, 8,
                            std::to_string(rest.size() / width) + " tokens of " +
                                std::to_string(width) + " bytes, according to the file's length",
                            std::to_string(number(8)) + ": the file was truncated or written to");
    }
  }
  if (width != 2 && width != 4) {
    throw_option_error("header", {"expected tokens of 2 or 4 bytes, found ", width});
  }
  if (rest.size() % width != 0) {
    throw file_truncated(path, bytes.size(), "tokens of " + std::to_string(width) + " bytes",
                         "the end of the file within a token: check the size of the tokens");
  }
  return {rest, width};
}

/// The windows in a file of `token_shards`. Reading is thread-safe.
template <std::integral Token>
class token_shard {
 public:
  using record_type = window_record<Token>;
  static constexpr bool looks_ahead = true;

  /// Opens the file `path`. Throws the same errors as the `token_shards` constructor.
  token_shard(std::string path, const token_shards_options& options)
      : file_(std::move(path)), length_(options.length) {
    if (options.check_format && !options.header.is_llmc) {
      throw_foreign_format(file_.bytes(), file_.path(), "raw tokens", options.header.bytes);
    }
    tokens_ = stored_tokens_of(file_.bytes(), file_.path(), options.header);
    const std::uint64_t tokens = tokens_.bytes.size() / tokens_.token_bytes;
    // A window also contains the first token of the next window.
    const std::uint64_t windows = tokens == 0 ? 0 : (tokens - 1) / length_;
    size_ = windows / options.whole_steps * options.whole_steps;
    if (size_ != 0) return;
    throw file_truncated(file_.path(), file_.bytes().size(),
                         std::to_string(options.whole_steps) + " windows of " +
                             std::to_string(length_) + " tokens and the next token",
                         "the end of the file after " + std::to_string(tokens) +
                             " tokens: set a shorter .length or omit the file");
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] record_extents<record_type> extents() const noexcept {
    return {{length_}, {length_}};
  }

  /// Writes window `index` to `out`. `index` must be less than size(). Throws
  /// `element_type_mismatch` if a token does not fit.
  void read(std::uint64_t index, sample<record_type> out) const {
    const auto x = get<"x">(out).flat();
    const auto y = get<"y">(out).flat();
    if (tokens_.token_bytes == 2) {
      copy<2>(index, x, y);
    } else {
      copy<4>(index, x, y);
    }
  }
  /// Prefetches window `index` into the CPU cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size_) prefetch_row(first_of(index), window_bytes());
  }
  /// Starts background reads of windows that are not in memory.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    read_soon pages;
    for (const std::uint64_t index : indices) {
      if (index < size_) pages.add(first_of(index), window_bytes());
    }
  }
  /// Returns the size of a window in the file in bytes.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t) const noexcept { return window_bytes(); }

 private:
  [[nodiscard]] std::size_t window_bytes() const noexcept {
    return (length_ + 1) * tokens_.token_bytes;
  }
  [[nodiscard]] const std::byte* first_of(std::uint64_t index) const noexcept {
    return tokens_.bytes.data() + static_cast<std::size_t>(index) * length_ * tokens_.token_bytes;
  }

  template <std::size_t Width>
  void copy(std::uint64_t index, std::span<Token> x, std::span<Token> y) const {
    constexpr auto limit = static_cast<std::uint64_t>((std::numeric_limits<Token>::max)());
    const std::byte* const first = first_of(index);
    // The bitwise OR of all tokens, compared with a limit whose bits are all set. 32 bits suffice
    // and make the loop faster than 64 bits.
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < length_; ++i) {
      const auto token = static_cast<std::uint32_t>(little_endian<Width>(first + i * Width));
      bits |= token;
      x[i] = static_cast<Token>(token);
    }
    std::copy(x.begin() + 1, x.end(), y.begin());
    const auto next = static_cast<std::uint32_t>(little_endian<Width>(first + length_ * Width));
    y.back() = static_cast<Token>(next);
    if ((bits | next) > limit) reject<Width>(first, limit);
  }
  template <std::size_t Width>
  [[noreturn]] void reject(const std::byte* at, std::uint64_t limit) const {
    while (little_endian<Width>(at) <= limit) at += Width;
    throw element_type_mismatch(
        file_.path(), static_cast<std::uint64_t>(at - file_.bytes().data()),
        "a token of at most " + std::to_string(limit),
        std::to_string(little_endian<Width>(at)) + ": read the tokens with a larger type");
  }

  mapped_file file_;
  std::size_t length_;
  stored_tokens tokens_;
  std::uint64_t size_ = 0;
};

/// Opens the files. Throws the same errors as the `token_shards` constructor.
template <std::integral Token>
[[nodiscard]] part_list<token_shard<Token>> opened_shards(const std::vector<std::string>& paths,
                                                          const token_shards_options& options) {
  if (paths.empty()) throw_option_error("paths", {"expected at least one file, found none"});
  if (options.length == 0) throw_option_error("length", {"must be at least 1, but is 0"});
  if (options.whole_steps == 0) throw_option_error("whole_steps", {"must be at least 1, but is 0"});
  std::vector<token_shard<Token>> shards;
  shards.reserve(paths.size());
  for (const std::string& path : paths) shards.emplace_back(path, options);
  return part_list<token_shard<Token>>{std::move(shards)};
}

}  // namespace detail

/// A dataset of windows over a list of token files, divided as in llm.c. Files contain 16-bit or
/// 32-bit little-endian tokens. Batches contain tokens of any integer type:
///
///     ps::token_shards<int> train{
///         ps::glob("fineweb/train_*.bin"),
///         {.length = 1024, .header = ps::llmc_header, .whole_steps = 512}};
///     ps::sharded order{ps::sequential{}, {.rank = r, .world = 8, .global_batch = 512}};
///
/// A window starts at every `length`-th token of a shard, and never spans two shards. The fields
/// `x` and `y` have `length` tokens each, and `y` starts one token after `x`. If `whole_steps`
/// equals the global batch size, `sequential` and `sharded` assign the same windows to each rank
/// and step as the llm.c data loader without shuffling. `shuffled` mixes the windows of all shards.
///
/// All files are opened and checked at construction. Files are memory-mapped, so opening takes the
/// same time for any size. Truncating an open file kills the process. The sample origin
/// (`origin_of`) contains the file index. Movable, not copyable. Reading is thread-safe. Reading
/// throws `element_type_mismatch` with the token's file position if a token does not fit into
/// `Token`.
template <std::integral Token = std::int32_t>
class token_shards : public detail::concat_dataset<detail::part_list<detail::token_shard<Token>>> {
 public:
  /// Opens the files `paths`. Throws
  ///
  /// - `file_unreadable`;
  /// - `file_truncated` if a file ends within its header or a token, or contains no whole step;
  /// - `file_format_error` for an unexpected header, or a file of another known format
  ///   (`check_format`);
  /// - `length_mismatch` if the token count in a header differs from the file;
  /// - `option_error` for an empty list, and for options of 0.
  explicit token_shards(const std::vector<std::string>& paths,
                        const token_shards_options& options = {})
      : detail::concat_dataset<detail::part_list<detail::token_shard<Token>>>(
            detail::opened_shards<Token>(paths, options), "token_shards") {}
};

static_assert(dataset<token_shards<>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
