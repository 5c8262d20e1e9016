// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary text as a loader state. The state must survive a round trip, or the text must be
// rejected with an error that points into it.
#include <penstock/resume/loader_state.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const ps::loader_state state = ps::from_text<ps::loader_state>(text);
    fuzz::require(state.version == 1 && state.last < 3, "only what there is");
    fuzz::require(ps::from_text<ps::loader_state>(ps::to_text(state)) == state,
                  "the text gives the state back");
  } catch (const ps::text_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the text");
  }
  return 0;
}
