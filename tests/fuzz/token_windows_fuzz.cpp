// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as a token file. The tokens must lie within the bytes, or the file must be
// rejected with an error that points into it. The first byte selects the format and the options.
// For llm.c files, the header is extended to 1024 bytes, and an odd second byte adds a valid magic
// number and version, which no mutation would find.
#include <penstock_ext/text/token_windows.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::vector<std::uint8_t> bytes(data + 2, data + size);
  const auto format = static_cast<ps::token_format>(data[0] % 4);
  const ps::token_windows_options options{
      .format = format, .header = data[0] / 16U, .token_bytes = 1U << (data[0] / 4 % 4)};
  if (format == ps::token_format::llmc && bytes.size() >= 12) {
    bytes.insert(bytes.begin() + 12, 1012, 0);
    const bool is_gpt2 = data[1] % 4 == 1;
    if (data[1] % 2 == 1) {
      const std::uint32_t start[] = {is_gpt2 ? 20240520U : 20240801U, is_gpt2 ? 1U : 7U};
      std::memcpy(bytes.data(), start, sizeof start);
    }
  }
  const auto all = std::as_bytes(std::span{bytes});
  try {
    const auto found = ps::detail::stored_tokens_of(all, "x", options);
    const std::size_t width = found.width;
    fuzz::require(width == 1 || width == 2 || width == 4 || width == 8, "tokens of a known size");
    fuzz::require(found.bytes.size() % width == 0, "whole tokens");
    fuzz::require(found.bytes.data() + found.bytes.size() == all.data() + all.size(),
                  "all bytes after the header");
    fuzz::require(found.format != ps::token_format::detect, "a known format");
    fuzz::require(format == ps::token_format::detect || found.format == format, "the given format");
    fuzz::require(found.type_at < all.size() || all.empty(), "the position of the type");
    if (found.format == ps::token_format::llmc) {
      fuzz::require(ps::detail::little_endian<4>(all.data() + 8) * width == found.bytes.size(),
                    "as many as the header counts");
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= all.size(), "an error points into the file");
  }
  return 0;
}
