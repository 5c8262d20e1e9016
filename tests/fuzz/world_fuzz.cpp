// SPDX-License-Identifier: BSL-1.0
// Builds a world from an arbitrary environment with one variable per line. The result must be a
// valid world, or an error that describes the problem.
#include <penstock_ext/ranks/world.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::map<std::string, std::string> variables;
  std::string_view text{reinterpret_cast<const char*>(data), size};
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
    const std::size_t is = line.find('=');
    if (is == std::string_view::npos) continue;
    variables[std::string{line.substr(0, is)}] = line.substr(is + 1);
  }
  const auto read = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  try {
    const auto w = ps::world::from_environment(std::nullopt, read);
    fuzz::require(w.size >= 1 && w.rank >= 0 && w.rank < w.size, "a rank is one of the world's");
    fuzz::require(w.local_rank >= -1 && w.local_rank < w.size, "a local rank is -1 or a rank");
    fuzz::require(w.local_size >= 0 && w.local_size <= w.size, "no machine has more than all");
    fuzz::require(!w.str().empty(), "it has a text");
    fuzz::require(ps::world::from_environment(w.started_by, read).rank == w.rank,
                  "the launcher alone says the same");
  } catch (const ps::world_error& error) {
    fuzz::require(std::string_view{error.what()}.starts_with("world: "), "it says what it is of");
  }
  return 0;
}
