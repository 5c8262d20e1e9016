// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock_ext/ranks/detail/run_record.hpp>
#include <penstock_ext/ranks/run_mismatch.hpp>
#include <penstock_ext/ranks/world.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// An all-gather, as `MPI_Allgather` and `ncclAllGather` are: `exchange(mine, all)` gives the bytes
/// `mine` to all ranks and puts those of rank i at `all[i * mine.size()]`. `mine` has the same size
/// on every rank, and `all` that times the world's. What it throws goes through.
template <class E>
concept rank_exchange = std::invocable<E&, std::span<const std::byte>, std::span<std::byte>>;

/// A loader, or a transfer from one: what can say where a loop stands.
template <class L>
concept stateful_loader = requires(const L& loader, const batch_position& next) {
  { loader.state_at(next) } -> std::same_as<loader_state>;
};

namespace detail {

template <class L>
concept has_batch_size = requires(const L& loader) {
  { loader.options().batch_size } -> std::convertible_to<std::uint64_t>;
};

/// The samples of a rank's own batches; 0 where a loader does not say.
template <class Loader>
[[nodiscard]] std::uint64_t share_of(const Loader& loader) {
  if constexpr (has_batch_size<Loader>) {
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
    throw option_error("world", here.str() + " can't be: ranks count from 0");
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

/// Throws `run_mismatch`, on all ranks alike, unless their loops go on at the same place of the
/// same global batches: for ranks that have read a checkpoint each, before they resume. Otherwise
/// as below.
template <rank_exchange Exchange>
void require_same_run(const world& here, const loader_state& state, Exchange&& exchange) {
  detail::compare_runs(here, state, 0, exchange);
}

/// Throws `run_mismatch`, on all ranks alike, unless the loaders of all ranks make the parts of the
/// same global batches: the same size of the dataset, order, seed, batch size, and treatment of the
/// last batch, and a `sharded` for this world. To be called once, on every rank, before the loop.
///
///     const auto exchange = [](std::span<const std::byte> mine, std::span<std::byte> all) {
///       const int count = static_cast<int>(mine.size());
///       MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, MPI_COMM_WORLD);
///     };
///     ps::require_same_run(w, loader, exchange);
///
/// Exchanges 88 bytes a rank, and holds those of all ranks; nothing is exchanged in a world of one.
/// Two orders that agree at the start and in the middle of two epochs have one fingerprint, and
/// nobody sees what the files hold. The bytes are those of the machine: all ranks need the same
/// byte order and the same version of this library. Throws `option_error` for a world that can't
/// be, and what `loader.state_at` does.
template <stateful_loader Loader, rank_exchange Exchange>
void require_same_run(const world& here, const Loader& loader, Exchange&& exchange) {
  detail::compare_runs(here, loader.state_at(batch_position{}), detail::share_of(loader), exchange);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
