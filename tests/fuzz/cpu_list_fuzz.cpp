// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary text as a list of cores. The text must be rejected, or the list must survive a
// round trip through text.
#include <penstock/threads/cpu_list.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto read = ps::cpu_list::parse(text);
  if (!read) return 0;
  fuzz::require(!read->empty(), "a list has cores");
  fuzz::require(read->size() <= ps::cpu_list::limit, "no more than any kernel has");
  for (std::size_t i = 0; i < read->size(); ++i) {
    const unsigned core = read->numbers()[i];
    fuzz::require(core < ps::cpu_list::limit, "below the limit");
    fuzz::require(i == 0 || read->numbers()[i - 1] < core, "ascending");
  }
  fuzz::require(ps::cpu_list::parse(to_text(*read)) == read, "the text gives the list back");
  fuzz::require(ps::common_cores(*read, *read) == *read, "a list has all of itself");
  return 0;
}
