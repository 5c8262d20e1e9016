// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary text as trials and options. The result must survive a round trip through JSON,
// or the text must be rejected with an error that points into it.
#include <penstock_ext/search/tuned_text.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const auto trials = ps::read_trials(text);
    for (const ps::trial& one : trials) fuzz::require(one.cost > 0, "a cost is above 0");
    fuzz::require(ps::read_trials(ps::to_json(trials)) == trials, "the JSON gives trials back");
  } catch (const ps::text_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the text");
  }
  try {
    const auto options = ps::read_tuned_options(text);
    fuzz::require(ps::read_tuned_options(ps::to_json(options)) == options,
                  "the JSON gives options back");
  } catch (const ps::text_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the text");
  }
  return 0;
}
