// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <penstock/resume/loader_state.hpp>
#include <penstock_ext/ranks/run_mismatch.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a rank says of its run: all that its batches depend on, and who it takes itself for. The
/// bytes travel as they lie.
struct run_record {
  loader_state state;
  std::uint64_t rank = 0;
  std::uint64_t size = 1;
  /// The samples of this rank's batches; 0 where that is not known.
  std::uint64_t share = 0;
};

static_assert(std::is_trivially_copyable_v<run_record> && sizeof(run_record) == 88,
              "no byte of it is padding, which would differ");

/// Ranks as text, ascending: "rank 3", "ranks 0-2, 4-7 and 9", of long lists the start.
[[nodiscard]] inline std::string ranks_text(std::span<const std::size_t> ranks) {
  constexpr std::size_t most = 8;  // runs of neighbours
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    runs.push_back(std::to_string(ranks[i]));
    if (last != i) runs.back() += (last == i + 1 ? " and " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < runs.size() && i < most; ++i) {
    if (i != 0) text += ", ";
    text += runs[i];
  }
  if (runs.size() > most) text += ", ... (" + std::to_string(ranks.size()) + " of them)";
  return text;
}

/// "64 on ranks 0-6, 32 on rank 7", each value with the ranks that have it, in the order of their
/// first ranks; "" where all have the same.
[[nodiscard]] inline std::string differences(const std::vector<std::string>& values) {
  constexpr std::size_t most = 4;
  std::vector<std::string> kinds;
  std::vector<std::vector<std::size_t>> ranks;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const auto known = std::find(kinds.begin(), kinds.end(), values[rank]);
    const auto kind = static_cast<std::size_t>(known - kinds.begin());
    if (known == kinds.end()) {
      if (kinds.size() > most) continue;  // one more than is shown: enough to say so
      kinds.push_back(values[rank]);
      ranks.emplace_back();
    }
    ranks[kind].push_back(rank);
  }
  if (kinds.size() < 2) return "";
  std::string text;
  for (std::size_t kind = 0; kind < kinds.size() && kind < most; ++kind) {
    if (kind != 0) text += ", ";
    text += kinds[kind] + " on " + ranks_text(ranks[kind]);
  }
  if (kinds.size() > most) text += ", and others";
  return text;
}

/// Throws `run_mismatch` unless all ranks make the same global batches, and each of them its own
/// part of a world of `records.size()`.
inline void require_equal(std::span<const run_record> records) {
  std::string problem;
  const auto compare = [&](std::string_view name, const auto& value_of) {
    std::vector<std::string> values;
    values.reserve(records.size());
    for (const run_record& record : records) values.push_back(value_of(record));
    const std::string found = differences(values);
    if (!found.empty()) ((problem += problem.empty() ? "" : "; ") += name) += ": " + found;
  };
  compare("version", [](const run_record& r) { return std::to_string(r.state.version); });
  for (const state_member& member : state_members) {
    compare(member.name == "order" ? "the order (the sampler's kind, seed or options, the lists of "
                                     "the dataset's adaptors) as a fingerprint"
                                   : member.name,
            [&](const run_record& r) { return std::to_string(r.state.*member.place); });
  }
  compare("last", [](const run_record& r) {
    return r.state.last < partial_batch_names.size()
               ? std::string{partial_batch_names[r.state.last]}
               : std::to_string(r.state.last);
  });
  compare("the size of the world", [](const run_record& r) { return std::to_string(r.size); });
  if (!problem.empty()) {
    throw run_mismatch("run_mismatch: the ranks would train on different batches: " + problem +
                       ": give all of them the same data, sampler, seed, batch sizes and "
                       "checkpoint");
  }
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const run_record& r = records[rank];
    if (r.rank != rank) {
      throw run_mismatch("run_mismatch: place " + std::to_string(rank) +
                         " of the exchange holds rank " + std::to_string(r.rank) +
                         ": two processes have one rank, or the exchange "
                         "numbers them in another way than the launcher");
    }
    // A world of one of each rank's own, or a shard of another world.
    if (r.share != 0 && r.state.batch_size != r.share * records.size()) {
      throw run_mismatch(
          "run_mismatch: rank " + std::to_string(rank) + " reads batches of " +
          std::to_string(r.share) + " and takes " + std::to_string(r.state.batch_size) +
          " for the global batch, in a world "
          "of " +
          std::to_string(records.size()) + ": give its loader a ps::sharded with .world = " +
          std::to_string(records.size()) + ", or all ranks read the same samples");
    }
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
