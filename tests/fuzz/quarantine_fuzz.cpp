// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary text as a quarantine list. The indices must be unique and sorted, and survive a
// round trip. Otherwise the list must be rejected with an error that names a line of the text. A
// list written for one sample, with any reason, must contain exactly that sample.
#include <penstock_ext/quarantine/quarantine.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

std::vector<std::uint64_t> indices_in(const std::string& text) {
  std::istringstream in{text};
  return ps::read_quarantine(in);
}

std::uint64_t line_in(const ps::error& error) {
  const char* const line = std::strstr(error.what(), "line ");
  return line == nullptr ? 0 : std::strtoull(line + 5, nullptr, 10);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text{reinterpret_cast<const char*>(data), size};
  try {
    const auto indices = indices_in(text);
    fuzz::require(
        std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>{}) == indices.end(),
        "in order, each once");
    std::string written;
    for (const std::uint64_t index : indices) written += std::to_string(index) + '\n';
    fuzz::require(indices_in(written) == indices, "the indices come back");
  } catch (const ps::error& error) {
    const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    const std::uint64_t line = line_in(error);
    fuzz::require(line >= 1 && line <= lines, "an error names a line of the text");
  }
  // Uses only one input in sixteen as the reason of a failure, because a ledger is large.
  if (size % 16 == 0) {
    ps::detail::failure_ledger ledger;
    ledger.record_failure(7, std::make_exception_ptr(std::runtime_error(text)), {7, 0});
    ledger.record_outcome(7, ps::read_outcome::skipped);
    std::ostringstream out;
    ledger.report().write_quarantine(out);
    fuzz::require(indices_in(out.str()) == std::vector<std::uint64_t>{7}, "a reason is no index");
    // Parses the text with a header in front. If the text already has a header, both headers must
    // match, or the list is rejected.
    ps::failure_report report = ledger.report();
    report.base_sizes = {8};
    std::stringstream with_head;
    report.write_quarantine(with_head);
    fuzz::require(ps::read_quarantine(with_head, {.dataset = 8}) == std::vector<std::uint64_t>{7},
                  "a reason is no head");
    std::istringstream headed{"# penstock quarantine: dataset of 8 samples\n" + text};
    try {
      for (const std::uint64_t index : ps::read_quarantine(headed, {.dataset = 8})) {
        fuzz::require(index < 8, "no sample of another dataset");
      }
    } catch (const ps::error&) {
    }
  }
  return 0;
}
