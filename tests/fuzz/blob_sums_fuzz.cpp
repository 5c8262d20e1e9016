// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary text as a list of checksums. The keys must be sorted, have one checksum each,
// and survive a round trip. Otherwise the list must be rejected with an error that points into it.
#include <penstock_ext/blob/verified_blobs.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const auto all = ps::detail::listed_checksums(text, "fuzzed");
    std::string again;
    for (std::size_t i = 0; i < all.size(); ++i) {
      fuzz::require(!all[i].first.empty(), "a key has a character");
      fuzz::require(i == 0 || all[i - 1] <= all[i], "keys come in order");
      fuzz::require(i == 0 || all[i - 1].first != all[i].first || all[i - 1] == all[i],
                    "a key has one sum");
      again += ps::detail::checksum_digits(all[i].second) + "  " + std::string{all[i].first} + '\n';
    }
    fuzz::require(ps::detail::listed_checksums(again, "again") == all, "the list comes back");
  } catch (const ps::file_format_error& error) {
    fuzz::require(error.offset() < size, "an error points into the list");
  }
  return 0;
}
