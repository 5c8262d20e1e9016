// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock_ext/ranks/world.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown on all ranks if the configurations of the ranks differ in their data, seeds, orders,
/// batch sizes or checkpoints, or if a loader is not sharded. The message lists the differences and
/// the ranks with each value.
class [[gnu::visibility("default")]] run_mismatch : public error {
 public:
  using error::error;
};

namespace detail {

/// The configuration of a rank as exchanged between ranks: all values that its batches depend on,
/// its rank, and the world size. Exchanged as raw bytes.
struct run_record {
  loader_state state;
  std::uint64_t rank = 0;
  std::uint64_t size = 1;
  /// Batch size of this rank, or 0 if unknown.
  std::uint64_t share = 0;
};

static_assert(std::is_trivially_copyable_v<run_record> && sizeof(run_record) == 88,
              "no byte of it is padding, which would differ");

/// Formats ranks in ascending order, for example "rank 3" or "ranks 0 and 1, 4-7, 9". Truncates
/// long lists.
[[nodiscard]] inline std::string ranks_text(std::span<const std::size_t> ranks) {
  constexpr std::size_t max = 8;  // maximum number of groups of consecutive ranks
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t groups = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    if (groups == max) return text + ", ... (" + std::to_string(ranks.size()) + " of them)";
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (groups++ != 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last != i) text += (last == i + 1 ? " and " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

/// Formats each value with its ranks, ordered by first rank, for example "64 on ranks 0-6; 32 on
/// rank 7". Returns "" if all values are equal.
[[nodiscard]] inline std::string differences(const std::vector<std::string>& values) {
  constexpr std::size_t max = 4;
  struct kind {
    std::string value;
    std::vector<std::size_t> ranks;
  };
  std::vector<kind> kinds;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    auto known = std::ranges::find(kinds, values[rank], &kind::value);
    if (known == kinds.end()) {
      if (kinds.size() > max) continue;  // one value beyond the limit is enough
      known = kinds.insert(known, {values[rank], {}});
    }
    known->ranks.push_back(rank);
  }
  if (kinds.size() < 2) return "";
  std::string text;
  for (const kind& one : std::span{kinds}.first((std::min)(kinds.size(), max))) {
    if (!text.empty()) text += "; ";  // not a comma, because rank lists contain commas
    text += one.value + " on " + ranks_text(one.ranks);
  }
  if (kinds.size() > max) text += "; and others";
  return text;
}

/// Throws `run_mismatch` unless all ranks read the same global batches, each its own part, in a
/// world of `records.size()` ranks.
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
    return r.state.last < last_batch_names.size() ? std::string{last_batch_names[r.state.last]}
                                                  : std::to_string(r.state.last);
  });
  compare("the size of the world", [](const run_record& r) { return std::to_string(r.size); });
  if (!problem.empty()) {
    throw run_mismatch("run_mismatch: the ranks would train on different batches: " + problem +
                       ": give all ranks the same data, sampler, seed, batch sizes and "
                       "checkpoint");
  }
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const run_record& r = records[rank];
    if (r.rank != rank) {
      throw run_mismatch("run_mismatch: position " + std::to_string(rank) +
                         " of the exchange holds rank " + std::to_string(r.rank) +
                         ": two processes have the same rank, or the exchange numbers the "
                         "processes differently from the launcher");
    }
    // If this check fails, the rank is in a world of one, or is a shard of a different world.
    if (r.share != 0 && r.state.batch_size != r.share * records.size()) {
      throw run_mismatch(
          "run_mismatch: rank " + std::to_string(rank) + " reads batches of " +
          std::to_string(r.share) + " and uses a global batch of " +
          std::to_string(r.state.batch_size) + ", in a world of " + std::to_string(records.size()) +
          ": give its loader a ps::sharded with .world = " + std::to_string(records.size()) +
          ", because otherwise all ranks read the same samples");
    }
  }
}

}  // namespace detail

/// An all-gather like `MPI_Allgather` and `ncclAllGather`: `exchange(mine, all)` sends the bytes
/// `mine` to all ranks and stores the bytes of rank i at `all[i * mine.size()]`. `mine` has the
/// same size on each rank. The size of `all` is that size times the number of ranks. Exceptions
/// propagate.
template <class E>
concept rank_exchange = std::invocable<E&, std::span<const std::byte>, std::span<std::byte>>;

/// A loader, or a transfer from a loader, that provides the state of a loop.
template <class L>
concept stateful_loader = requires(const L& loader, const batch_position& next) {
  { loader.state_at(next) } -> std::same_as<loader_state>;
};

namespace detail {

/// Returns the size of a rank's part of a global batch, or 0 if unknown.
template <class Loader>
[[nodiscard]] std::uint64_t share_of(const Loader& loader) {
  if constexpr (requires { loader.options().batch_size* loader.batches_per_step(); }) {
    return loader.options().batch_size * loader.batches_per_step();
  } else if constexpr (requires {
                         { loader.options().batch_size } -> std::convertible_to<std::uint64_t>;
                       }) {
    return loader.options().batch_size;
  } else if constexpr (requires { share_of(loader.source()); }) {
    return share_of(loader.source());
  } else {
    return 0;
  }
}

template <rank_exchange Exchange>
void compare_runs(const world& here, const loader_state& state, std::uint64_t share,
                  Exchange&& exchange) {
  if (here.size < 1 || here.rank < 0 || here.rank >= here.size) {
    throw option_error("world", here.str() + " is invalid: ranks count from 0");
  }
  const run_record mine{.state = state,
                        .rank = static_cast<std::uint64_t>(here.rank),
                        .size = static_cast<std::uint64_t>(here.size),
                        .share = share};
  std::vector<run_record> all(static_cast<std::size_t>(here.size));
  if (here.size == 1) {
    all.front() = mine;
  } else {
    exchange(std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}));
  }
  require_equal(all);
}

}  // namespace detail

/// Throws `run_mismatch` on all ranks unless their loops resume at the same position of the same
/// global batches. Call this on each rank after reading the checkpoint and before resuming.
/// Otherwise behaves like the overload for loaders.
template <rank_exchange Exchange>
void require_same_run(const world& here, const loader_state& state, Exchange&& exchange) {
  detail::compare_runs(here, state, 0, exchange);
}

/// Throws `run_mismatch` on all ranks unless the loaders of all ranks read parts of the same global
/// batches. The check requires equal dataset size, order, seed, batch size and last-batch policy,
/// and a `sharded` sampler for this world. Call this once on each rank before the loop.
///
///     const auto exchange = [](std::span<const std::byte> mine, std::span<std::byte> all) {
///       const int count = static_cast<int>(mine.size());
///       MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, MPI_COMM_WORLD);
///     };
///     ps::require_same_run(w, loader, exchange);
///
/// Exchanges 88 bytes for each rank, or nothing in a world of one. Compares orders only at the
/// start and the middle of two epochs, and does not compare file contents. All ranks must have the
/// same byte order and library version. Throws `option_error` for an invalid world, and errors from
/// `loader.state_at`.
template <stateful_loader Loader, rank_exchange Exchange>
void require_same_run(const world& here, const Loader& loader, Exchange&& exchange) {
  detail::compare_runs(here, loader.state_at(batch_position{}), detail::share_of(loader), exchange);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
