// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as a Megatron index. Every document must lie within the token file, or the
// index must be rejected with an error that points into it. Format detection runs on the same
// bytes.
#include <penstock_ext/text/megatron_documents.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t total = 1000;
  static_cast<void>(ps::detail::foreign_text({reinterpret_cast<const std::byte*>(data), size}));
  try {
    const ps::detail::megatron_index index{{reinterpret_cast<const std::byte*>(data), size}, "x"};
    fuzz::require(index.documents() <= size / 8, "no more documents than there is room for");
    static_cast<void>(index.end());
    for (std::uint64_t i = 0; i < index.documents(); ++i) {
      index.prefetch(std::span{&i, 1}, std::identity{});
      static_cast<void>(index.begin_of(i));
      try {
        const auto place = index.document(i, total);
        fuzz::require(place.size <= total && place.begin <= total - place.size,
                      "a document lies in its file");
      } catch (const ps::file_corrupt& error) {
        fuzz::require(error.offset() < size, "an error points to a number");
      }
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the index");
  }
  return 0;
}
