// SPDX-License-Identifier: BSL-1.0
// The common parts of penstock's programs that are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>

#include "peer.hpp"

namespace compare {

namespace ps = penstock;

inline constexpr std::size_t looked_at = 64;  // STEP in the Python peers

/// Adds every 64th byte of a batch, all labels and the number of samples.
template <ps::name Bytes>
void add_bytes(seen& sums, auto& batch) {
  const auto bytes = ps::get<Bytes>(batch).flat();
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += looked_at) sum += bytes[i];
  sums.values += static_cast<double>(sum);
  for (const std::int64_t label : ps::get<"label">(batch).flat()) sums.labels += label;
  sums.samples += batch.size();
}

/// Measures the loader that make() returns. add(seen&, batch) reads a whole batch.
template <class Make, class Add>
std::string load_batches(Make make, Add add) {
  return load(make, [&](auto& loader, std::uint64_t epoch, auto each) {
    for (auto& batch : loader.epoch(epoch)) each([&](seen& sums) { add(sums, batch); });
  });
}

/// The main function of penstock's programs.
inline int main_of(int argc, char** argv, const std::vector<row>& rows) {
  const std::string version = std::to_string(PENSTOCK_VERSION_MAJOR) + "." +
                              std::to_string(PENSTOCK_VERSION_MINOR) + "." +
                              std::to_string(PENSTOCK_VERSION_PATCH);
  return main_of(argc, argv, rows, "penstock", version);
}

}  // namespace compare
