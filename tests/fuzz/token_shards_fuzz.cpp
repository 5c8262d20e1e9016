// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as the header of a token file. The tokens must lie within the bytes, or
// the file must be rejected with an error that points into it. The first byte selects the header
// format. For the llm.c format, an odd second byte adds a valid magic number and version, which no
// mutation would find.
#include <penstock_ext/text/token_shards.hpp>

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
  const bool is_llmc = data[0] % 2 == 1;
  // Uses a shortened llm.c header, so that small inputs contain tokens.
  const ps::token_header header{.bytes = is_llmc ? 12U + data[0] / 32U : data[0] / 2U,
                                .token_bytes = data[0] % 4 == 0 ? 2U : 4U,
                                .is_llmc = is_llmc};
  const bool is_gpt2 = data[1] % 4 == 1;
  if (is_llmc && data[1] % 2 == 1 && bytes.size() >= 8) {
    const std::uint32_t start[] = {is_gpt2 ? 20240520U : 20240801U, is_gpt2 ? 1U : 7U};
    std::memcpy(bytes.data(), start, sizeof start);
  }
  const auto all = std::as_bytes(std::span{bytes});
  try {
    const auto found = ps::detail::stored_tokens_of(all, "x", header);
    fuzz::require(found.token_bytes == 2 || found.token_bytes == 4, "tokens of a known size");
    fuzz::require(found.bytes.size() % found.token_bytes == 0, "whole tokens");
    fuzz::require(found.bytes.size() == all.size() - header.bytes, "all bytes after the header");
    if (is_llmc) {
      fuzz::require(
          ps::detail::little_endian<4>(all.data() + 8) * found.token_bytes == found.bytes.size(),
          "as many as the header counts");
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= all.size(), "an error points into the file");
  }
  return 0;
}
