// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/npy_dataset.hpp>
#include <penstock_ext/files/raw_records.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A window of tokens. `x` contains all tokens except the last, and `y` contains all except the
/// first.
template <class Token>
using window_record = record<field<"x", Token, dyn>, field<"y", Token, dyn>>;

/// The format of a token file.
enum class token_format : std::uint8_t {
  /// Recognizes llm.c and npy files by their first bytes, and treats other files as `raw`. Rejects
  /// other known formats, such as gzip and Parquet.
  detect,
  /// The format of llm.c and modded-nanogpt. A header of 1024 bytes contains a magic number, a
  /// version and the token count. The tokens of GPT-2 are `uint16` (magic number 20240520, version
  /// 1), and those of Llama 3 are `uint32` (20240801, version 7).
  llmc,
  /// An array of integers with one dimension, as written by `numpy.save`.
  npy,
  /// Tokens without a description, such as nanoGPT files and Megatron .bin files.
  raw,
};

/// Options of `token_windows`.
struct token_windows_options {
  /// Number of tokens in `x` and in `y`, at least 1.
  std::size_t length = 1024;
  /// Distance between the starts of consecutive windows in tokens. 0 means `length`, so that each
  /// token is in one `x`. With 1, a window starts at each token.
  std::uint64_t stride = 0;
  /// If true, the files are one sequence of tokens, and a window may span several files. If false,
  /// each file has its own windows, and tokens after its last window are ignored.
  bool cross_files = false;
  /// Number of windows in a step: the batch size times the number of ranks. As in llm.c, a file
  /// contains only whole steps. The remaining windows are skipped, so that no step spans two
  /// files. With 1, no window is skipped. With `cross_files`, all files together contain only
  /// whole steps.
  std::uint64_t whole_steps = 1;
  /// Format of all files.
  token_format format = token_format::detect;
  /// Number of bytes before the first token of a raw file.
  std::uint64_t header = 0;
  /// Token size in bytes: 1, 2, 4 or 8. Headers of llm.c and npy files contain the size, and must
  /// not contradict this option. For raw files, 0 means the size of `Token`, which must be unsigned
  /// in that case. Most raw files have 2-byte tokens.
  std::size_t token_bytes = 0;
};

namespace detail {

/// The tokens in a file.
struct stored_tokens {
  std::span<const std::byte> bytes;
  std::size_t width = 0;      ///< token size: 1, 2, 4 or 8
  bool is_signed = false;     ///< true if the type is signed. Negative tokens are invalid.
  token_format format = {};   ///< never `detect`
  std::uint64_t type_at = 0;  ///< position of the token type in the file

  /// Returns the largest token that the type can represent.
  [[nodiscard]] std::uint64_t max_value() const noexcept {
    return ~std::uint64_t{0} >> (64 - 8 * width + (is_signed ? 1 : 0));
  }
  /// Returns the type and the format for a message, such as "uint16 tokens of an npy file".
  [[nodiscard]] std::string text() const {
    const char* const of = format == token_format::llmc  ? " tokens of an llm.c file"
                           : format == token_format::npy ? " tokens of an npy file"
                                                         : " tokens without a header";
    return (is_signed ? "int" : "uint") + std::to_string(8 * width) + of;
  }
};

[[nodiscard]] constexpr bool is_token_width(std::size_t bytes) noexcept {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

inline constexpr std::uint64_t gpt2_magic = 20240520;
inline constexpr std::uint64_t llama3_magic = 20240801;
inline constexpr std::uint64_t llmc_header_bytes = 1024;

/// Parses a file in llm.c format. Throws the same errors as `stored_tokens_of`.
[[nodiscard]] inline stored_tokens llmc_tokens_of(std::span<const std::byte> bytes,
                                                  const std::string& path) {
  const auto tokens = bytes_after(llmc_header_bytes, bytes, path);
  const auto number = [&](std::size_t at) { return little_endian<4>(bytes.data() + at); };
  const bool is_gpt2 = number(0) == gpt2_magic;
  if (!is_gpt2 && number(0) != llama3_magic) {
    const std::string format = foreign_text(bytes);
    throw file_format_error(path, 0, "the magic number of llm.c, 20240520 or 20240801",
                            std::to_string(number(0)) + (format.empty() ? "" : ", " + format));
  }
  const std::uint64_t version = is_gpt2 ? 1 : 7;
  if (number(4) != version) {
    throw file_format_error(path, 4, "version " + std::to_string(version),
                            std::to_string(number(4)) +
                                ": write the file again, or skip its header with .header = 1024 "
                                "and .format = penstock::token_format::raw");
  }
  const std::size_t width = is_gpt2 ? 2 : 4;
  if (number(8) * width != tokens.size()) {
    throw length_mismatch(path, 8,
                          std::to_string(tokens.size() / width) + " tokens of " +
                              std::to_string(width) + " bytes, according to the file's length",
                          std::to_string(number(8)) +
                              ": the file was truncated or written to: copy or write it again");
  }
  return {.bytes = tokens, .width = width, .format = token_format::llmc};
}

/// Parses an npy file. Throws the same errors as `stored_tokens_of`.
[[nodiscard]] inline stored_tokens npy_tokens_of(std::span<const std::byte> bytes,
                                                 const std::string& path) {
  const npy_header header = npy_header_of(bytes, path);
  const std::string_view type = std::string_view{header.descr}.substr(1);
  const auto width = static_cast<std::size_t>(type.size() == 2 ? type[1] - '0' : 0);
  if ((type[0] != 'u' && type[0] != 'i') || !is_token_width(width) || header.is_swapped()) {
    throw element_type_mismatch(
        path, header.descr_at, "integers in native byte order",
        '\'' + header.descr + "': save the tokens with .astype(numpy.uint16)");
  }
  if (header.lengths.size() != 1) {
    throw dimension_mismatch(
        path, header.shape_at, "1 dimension",
        std::to_string(header.lengths.size()) + ": save the tokens with .reshape(-1)");
  }
  return {bytes.subspan(static_cast<std::size_t>(header.data)), width, type[0] == 'i',
          token_format::npy, header.descr_at};
}

/// Finds the tokens in `bytes`, the content of the file `path`. `options.token_bytes` is the size
/// of tokens without a header. Throws
///
/// - `file_truncated` if the file ends within its header or within a token;
/// - `file_format_error` if the file has another format, or an unexpected version;
/// - `element_type_mismatch` and `dimension_mismatch` for an npy file of other elements;
/// - `length_mismatch` if the token count in a header differs from the file;
/// - `option_error` if the token size is invalid.
[[nodiscard]] inline stored_tokens stored_tokens_of(std::span<const std::byte> bytes,
                                                    const std::string& path,
                                                    const token_windows_options& options) {
  const bool detects = options.format == token_format::detect;
  const std::uint64_t start = detects && bytes.size() >= 4 ? little_endian<4>(bytes.data()) : 0;
  const bool may_be_llmc = options.header == 0 || options.header == llmc_header_bytes;
  if (options.format == token_format::llmc ||
      (may_be_llmc && (start == gpt2_magic || start == llama3_magic))) {
    return llmc_tokens_of(bytes, path);
  }
  constexpr std::uint64_t npy_start = 0x4d554e93;  // 0x93, "NUM"
  if (options.format == token_format::npy || (options.header == 0 && start == npy_start)) {
    return npy_tokens_of(bytes, path);
  }
  if (detects) {
    throw_foreign_format(bytes, path, "raw tokens", options.header,
                         "; if this detection is wrong, set .format = penstock::token_format::raw");
  }
  const std::size_t width = options.token_bytes;
  if (!is_token_width(width)) {
    throw_option_error("token_bytes",
                       {"expected 1, 2, 4 or 8 for the tokens without a header in ", path,
                        ", found ", width, ": most such files have 2-byte tokens"});
  }
  const auto tokens = bytes_after(options.header, bytes, path);
  if (tokens.size() % width != 0) {
    throw file_truncated(path, bytes.size(), "tokens of " + std::to_string(width) + " bytes",
                         "the end of the file within a token: check the size of the tokens");
  }
  return {.bytes = tokens, .width = width, .format = token_format::raw};
}

}  // namespace detail

/// A dataset of windows over a token file, or over a list of token files that is known at run time.
/// Recognizes files of llm.c, modded-nanogpt and `numpy.save`, and reads files without a header,
/// such as those of nanoGPT and Megatron. Batches contain tokens of any integer type:
///
///     ps::token_windows text{"train.bin", {.length = 1024}};  // 16-bit tokens
///     ps::token_windows<int> train{ps::glob("fineweb/train_*.bin"),
///                                  {.length = 1024, .whole_steps = 512}};
///     ps::sharded order{ps::sequential{}, {.rank = r, .world = 8, .global_batch = 512}};
///
/// The fields `x` and `y` have `length` tokens each, and `y` starts one token after `x`. Windows
/// start at every `stride`-th token of a file, or of all files together (`cross_files`). If
/// `whole_steps` equals the global batch size, `sequential` and `sharded` assign the same windows
/// to each rank and step as the llm.c data loader without shuffling. `shuffled` mixes the windows
/// of all files.
///
/// All files are opened and checked at construction. Files are memory-mapped, so opening takes the
/// same time for any size. Memory is proportional to the number of files, and a window is found in
/// O(log files) time. The files must not change while they are open. Truncating an open file kills
/// the process. The sample origin (`origin_of`) contains the index of the file in which the window
/// starts. Movable, not copyable. Reading is thread-safe. Reading throws `element_type_mismatch`
/// with the token's file position if a token is negative or does not fit into `Token`.
template <std::integral Token = std::uint16_t>
class token_windows {
 public:
  using record_type = window_record<Token>;

  /// Opens the files at `paths`. Throws
  ///
  /// - `file_unreadable`;
  /// - `file_truncated` if a file ends within its header or a token, or contains no whole step;
  /// - `file_format_error` for an unexpected header, or a file of another known format;
  /// - `element_type_mismatch` if the files differ in token type or format, if a header contradicts
  ///   `token_bytes`, or if an npy file contains no integers;
  /// - `dimension_mismatch` if an npy file has several dimensions;
  /// - `length_mismatch` if the token count in a header differs from the file;
  /// - `option_error` for an empty list, options of 0, and an invalid or missing `token_bytes`.
  explicit token_windows(const std::vector<std::string>& paths,
                         const token_windows_options& options = {})
      : length_(options.length), stride_(options.stride == 0 ? options.length : options.stride) {
    if (paths.empty())
      detail::throw_option_error("paths", {"expected at least one file, found none"});
    if (length_ == 0) detail::throw_option_error("length", {"must be at least 1, but is 0"});
    if (options.whole_steps == 0) {
      detail::throw_option_error("whole_steps", {"must be at least 1, but is 0"});
    }
    files_.reserve(paths.size());
    for (const std::string& path : paths) open(path, options);
    limit_ = (std::min)(static_cast<std::uint64_t>((std::numeric_limits<Token>::max)()),
                        files_.front().tokens.max_value());
    if (options.cross_files) {
      find_joint_windows(options);
    } else {
      for (const file& one : files_) {
        begins_.push_back(begins_.back() + windows_in(one.count, one, options));
      }
    }
  }

  /// Opens the file `path`. Throws the same errors as the constructor above.
  template <std::convertible_to<std::string> Path>
  explicit token_windows(const Path& path, const token_windows_options& options = {})
      : token_windows(std::vector<std::string>{path}, options) {}

  /// Returns the number of windows.
  [[nodiscard]] std::uint64_t size() const noexcept { return begins_.back(); }
  /// Returns the length of `x` and `y`.
  [[nodiscard]] record_extents<record_type> extents() const noexcept {
    return {{length_}, {length_}};
  }

  /// Writes the windows `indices` to `out`. Throws `index_error` if an index is out of range, and
  /// `element_type_mismatch` if a token does not fit.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    const auto copy = width() == 1   ? &token_windows::copy_window<1>
                      : width() == 2 ? &token_windows::copy_window<2>
                      : width() == 4 ? &token_windows::copy_window<4>
                                     : &token_windows::copy_window<8>;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      detail::prefetch_ahead(*this, indices, i);
      if (indices[i] >= size()) throw index_error("token_windows", indices[i], size());
      (this->*copy)(indices[i], get<"x">(out[i]).flat(), get<"y">(out[i]).flat());
    }
  }

  /// Prefetches window `index` into the CPU cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    each_part(index, [&](const file&, const std::byte* first, std::size_t count) {
      detail::prefetch_row(first, count * width());
    });
  }
  /// Starts background reads of windows that are not in memory. Ignores indices out of range.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    detail::read_soon pages;
    for (const std::uint64_t index : indices) {
      each_part(index, [&](const file&, const std::byte* first, std::size_t count) {
        pages.add(first, count * width());
      });
    }
  }
  /// Returns the size of a window in the files in bytes.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t) const noexcept {
    return (length_ + 1) * width();
  }

  /// Returns the file in which window `index` starts, and the position of the window among the
  /// windows that start in this file.
  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    if (index >= size()) return {index, 0};
    const std::size_t part = file_of(index);
    return {index - begins_[part], part};
  }
  /// Returns the number of windows that start in each file.
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const {
    std::vector<std::uint64_t> sizes(files_.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = begins_[i + 1] - begins_[i];
    return sizes;
  }

 private:
  struct file {
    mapped_file map;
    detail::stored_tokens tokens;
    std::uint64_t count = 0;  // number of tokens
    std::uint64_t first = 0;  // first token of the first window that starts in the file
  };

  [[nodiscard]] std::size_t width() const noexcept { return files_.front().tokens.width; }

  void open(const std::string& path, token_windows_options options) {
    const std::size_t expected = options.token_bytes;
    if (expected == 0 && std::is_unsigned_v<Token>) options.token_bytes = sizeof(Token);
    mapped_file map{path};
    const detail::stored_tokens found = detail::stored_tokens_of(map.bytes(), path, options);
    if (expected != 0 && found.width != expected) {
      throw element_type_mismatch(
          path, found.type_at, "tokens of " + std::to_string(expected) + " bytes (.token_bytes)",
          found.text() + ": omit .token_bytes, which files with a header do not need");
    }
    if (!files_.empty()) {
      const detail::stored_tokens& first = files_.front().tokens;
      if (found.text() != first.text()) {
        throw element_type_mismatch(
            path, found.type_at, first.text() + ", as in " + files_.front().map.path(),
            found.text() + ": the file is damaged, or needs its own dataset, see concat");
      }
    }
    files_.push_back({std::move(map), found, found.bytes.size() / found.width});
  }

  // Returns the number of windows in `tokens` consecutive tokens that end in the file `last`.
  [[nodiscard]] std::uint64_t windows_in(std::uint64_t tokens, const file& last,
                                         const token_windows_options& options) const {
    // A window spans `length` + 1 tokens, because its targets are its inputs shifted by one token.
    const std::uint64_t windows = tokens <= length_ ? 0 : (tokens - length_ - 1) / stride_ + 1;
    const std::uint64_t steps = options.whole_steps;
    if (windows >= steps) return windows / steps * steps;
    throw file_truncated(
        last.map.path(), last.map.bytes().size(),
        (steps == 1 ? "" : std::to_string(steps) + " windows of ") + std::to_string(length_) +
            (steps == 1 ? " tokens of a window" : " tokens") + " and the next token",
        "the end of the " + std::string{options.cross_files ? "last " : ""} + "file after " +
            std::to_string(tokens) + " tokens: set a shorter .length" +
            (options.cross_files ? "" : ", omit the file, or set .cross_files = true"));
  }
  void find_joint_windows(const token_windows_options& options) {
    std::uint64_t tokens = 0;
    for (const file& one : files_) tokens += one.count;
    const std::uint64_t windows = windows_in(tokens, files_.back(), options);
    tokens = 0;
    for (file& one : files_) {
      if (begins_.back() < windows) one.first = begins_.back() * stride_ - tokens;
      tokens += one.count;
      const std::uint64_t end = tokens / stride_ + (tokens % stride_ == 0 ? 0 : 1);
      begins_.push_back((std::min)(end, windows));
    }
  }

  // Returns the index of the file in which window `index` starts.
  [[nodiscard]] std::size_t file_of(std::uint64_t index) const noexcept {
    const auto ends = begins_.begin() + 1;
    return static_cast<std::size_t>(std::upper_bound(ends, begins_.end(), index) - ends);
  }

  // Calls `use(file, first, count)` for the parts of a window, in order. `first` is the address of
  // the part, which contains `count` tokens. Does nothing if the index is out of range.
  template <class Use>
  void each_part(std::uint64_t index, const Use& use) const {
    if (index >= size()) return;
    std::size_t at = file_of(index);
    std::uint64_t begin = files_[at].first + (index - begins_[at]) * stride_;
    for (std::size_t left = length_ + 1; left > 0; ++at, begin = 0) {
      const file& one = files_[at];
      const auto count =
          static_cast<std::size_t>((std::min)(std::uint64_t{left}, one.count - begin));
      if (count != 0) use(one, one.tokens.bytes.data() + begin * width(), count);
      left -= count;
    }
  }

  template <std::size_t Width>
  void copy_window(std::uint64_t index, std::span<Token> x, std::span<Token> y) const {
    std::size_t done = 0;
    each_part(index, [&](const file& from, const std::byte* first, std::size_t count) {
      const std::size_t in_x = (std::min)(count, length_ - done);
      convert<Width>(from, first, x.subspan(done, in_x));
      if (in_x != count) convert<Width>(from, first + in_x * Width, y.last(1));
      done += count;
    });
    std::copy(x.begin() + 1, x.end(), y.begin());
  }

  // Converts the tokens at `first`, as many as `to` has.
  template <std::size_t Width>
  void convert(const file& from, const std::byte* first, std::span<Token> to) const {
    constexpr std::uint64_t all = ~std::uint64_t{0} >> (64 - 8 * Width);
    if (Width == sizeof(Token) && limit_ == all && std::endian::native == std::endian::little) {
      std::memcpy(to.data(), first, to.size_bytes());
      return;
    }
    // The bitwise OR of all tokens, compared with a limit whose bits are all set. 32 bits make the
    // loop faster than 64 bits.
    using word = std::conditional_t<Width == 8, std::uint64_t, std::uint32_t>;
    word bits = 0;
    for (std::size_t i = 0; i < to.size(); ++i) {
      const auto token = static_cast<word>(detail::little_endian<Width>(first + i * Width));
      bits |= token;
      to[i] = static_cast<Token>(token);
    }
    if (bits > limit_) reject<Width>(from, first);
  }
  template <std::size_t Width>
  [[noreturn]] void reject(const file& from, const std::byte* at) const {
    while (detail::little_endian<Width>(at) <= limit_) at += Width;
    const std::uint64_t token = detail::little_endian<Width>(at);
    throw element_type_mismatch(
        from.map.path(), static_cast<std::uint64_t>(at - from.map.bytes().data()),
        "a token of at most " + std::to_string(limit_),
        token > from.tokens.max_value()
            ? "a negative token: replace it"
            : std::to_string(token) + ": read the tokens with a larger type");
  }

  std::size_t length_;
  std::uint64_t stride_;
  std::uint64_t limit_ = 0;  // largest valid token. All bits below its highest bit are set.
  std::vector<file> files_;
  // begins_[f] is the index of the first window that starts in file f. The last element is the
  // total number of windows.
  std::vector<std::uint64_t> begins_{0};
};

static_assert(dataset<token_windows<>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
