// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as an S3 response. The result must be a listing, or an error that points
// into the text.
#include <penstock_ext/store/http/detail/s3/list_answer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const auto answer = ps::detail::list_answer::parse(text, "fuzzed");
    std::size_t all = answer.next.size();
    for (const auto& object : answer.objects) {
      fuzz::require(!object.key.empty(), "an object has a key");
      all += object.key.size();
    }
    fuzz::require(all <= size, "nothing expands");
  } catch (const ps::bad_response& error) {
    fuzz::require(error.offset() <= size, "an error points into the text");
  }
  const std::string word = ps::detail::error_word(text, "Code");
  fuzz::require(word.size() <= 64, "a word is short");
  fuzz::require(text.find(word) != std::string_view::npos || text.find('&') != text.npos ||
                    text.find('<') != text.npos,
                "a word stands in the text");
  return 0;
}
