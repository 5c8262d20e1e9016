// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as the header of a safetensors file. The first byte selects the number of
// data bytes that follow. The tensors must cover the whole file, or the file must be rejected with
// an error that points into it.
#include <penstock_ext/bulk/safetensors/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint64_t bytes = data[0];
  const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
  try {
    const auto header = ps::detail::safetensors_parser{text, "x.safetensors", bytes}.read();
    std::uint64_t end = 0;
    for (const ps::safetensor& one : header.tensors) {
      fuzz::require(one.offset == end, "tensors follow each other");
      end += one.bytes;
      fuzz::require(end <= bytes, "a tensor lies in the file");
      fuzz::require(ps::detail::safetensors_bytes(one.dtype, one.shape) == one.bytes,
                    "a tensor has the bytes of its shape");
    }
    fuzz::require(end == bytes, "tensors cover the file");
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= 8 + text.size() + bytes, "an error points into the file");
  }
  return 0;
}
