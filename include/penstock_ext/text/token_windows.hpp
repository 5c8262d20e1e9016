// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/raw_records.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A window of tokens. `x` contains all tokens except the last, and `y` contains all except the
/// first.
template <class Token>
using window_record = record<field<"x", Token, dyn>, field<"y", Token, dyn>>;

/// Options of `token_windows`.
struct token_windows_options {
  /// Number of tokens in `x` and in `y`, at least 1.
  std::size_t length = 1024;
  /// Distance between the starts of consecutive windows in tokens. 0 means `length`, so that each
  /// token is in one `x`. With 1, a window starts at each token.
  std::uint64_t stride = 0;
  /// Number of bytes to skip before the first token. Use 1024 for llm.c and modded-nanogpt files.
  std::uint64_t header = 0;
  /// If true, rejects a file that starts like a known format, such as npy, gzip or Parquet.
  bool check_format = true;
};

/// A dataset of windows over a flat file of tokens in native byte order, such as nanoGPT files and
/// Megatron .bin files:
///
///     token_windows text{"train.bin", {.length = 1024}};               // 16-bit tokens
///     token_windows<std::uint32_t> large{"train.bin", {.length = 4096}};
///
/// Tokens after the last whole window are ignored. The file is memory-mapped, so opening takes the
/// same time for any size. The file must not change while it is open. Truncating an open file kills
/// the process. Movable, not copyable. Reading is thread-safe.
template <std::unsigned_integral Token = std::uint16_t>
class token_windows : public detail::mapped_rows<window_record<Token>> {
  using rows = detail::mapped_rows<window_record<Token>>;

 public:
  using record_type = window_record<Token>;

  /// Opens the file `path`. Throws `file_unreadable`, `file_format_error` if `check_format` is true
  /// and the file has a known format, `file_truncated` if the file ends within a token or within
  /// the first window, `length_mismatch` if the token count in an llm.c header differs from the
  /// file, and `option_error` for a length of 0.
  explicit token_windows(const std::string& path, const token_windows_options& options = {})
      : token_windows(mapped_file{path}, options) {}

  token_windows(token_windows&&) = default;
  token_windows& operator=(token_windows&&) = delete;

  /// Returns the size of a window in the file in bytes.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t) const noexcept {
    return rows::storage_size() / 2;  // `x` and `y` share all but one token
  }

 private:
  token_windows(mapped_file file, const token_windows_options& options)
      : rows(rows_of(file, options)), file_(std::move(file)) {}

  [[nodiscard]] static rows rows_of(const mapped_file& file, const token_windows_options& options) {
    if (options.length == 0) detail::throw_option_error("length", {"must be at least 1, but is 0"});
    if (options.check_format)
      detail::throw_foreign_format(file.bytes(), file.path(), "raw tokens", options.header);
    const auto text = detail::bytes_after(options.header, file);
    const std::uint64_t left = text.size();
    if (left % sizeof(Token) != 0) {
      throw file_truncated(file.path(), file.bytes().size(),
                           "tokens of " + std::to_string(sizeof(Token)) + " bytes",
                           "the end of the file within a token: check the size of the tokens");
    }
    const std::uint64_t tokens = left / sizeof(Token);
    if (options.check_format) require_count(file, options.header, tokens);
    if (tokens <= options.length) {
      throw file_truncated(
          file.path(), file.bytes().size(),
          std::to_string(options.length) + " tokens of a window and the next token",
          "the end of the file after " + std::to_string(tokens) +
              ": set a shorter .length or omit the file");
    }
    const std::uint64_t stride = options.stride == 0 ? options.length : options.stride;
    // A window spans `length` + 1 tokens, because its targets are its inputs shifted by one token.
    const std::uint64_t windows = (tokens - options.length - 1) / stride + 1;
    const batch_layout<record_type> layout{{{options.length}, {options.length}}, 1};
    const std::byte* const first = text.data();
    // The stride has no effect if there is at most one window.
    const std::uint64_t bytes = windows < 2 ? 0 : stride * sizeof(Token);
    return {"token_windows", layout, windows,
            std::array{detail::mapped_field{first, bytes, false},
                       detail::mapped_field{first + sizeof(Token), bytes, false}}};
  }

  // Compares the token count in an llm.c header with the file.
  static void require_count(const mapped_file& file, std::uint64_t header, std::uint64_t tokens) {
    const bool is_of_llm_c =
        header == 1024 && detail::foreign_format_of(file.bytes()).name == detail::llm_c_format.name;
    const std::uint64_t counted =
        is_of_llm_c ? detail::little_endian<4>(file.bytes().data() + 8) : tokens;
    if (counted == tokens) return;
    throw length_mismatch(
        file.path(), 8,
        std::to_string(tokens) + " tokens of " + std::to_string(sizeof(Token)) +
            " bytes, according to the file's length",
        std::to_string(counted) + ": the file was truncated, or its tokens have another size");
  }

  mapped_file file_;
};

static_assert(dataset<token_windows<>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
