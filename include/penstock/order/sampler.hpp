// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>

// A sampler determines which sample comes k-th in epoch e. A sampler is a pure function: it has no
// state and stores no list. Your own sampler is a type like this:
//
//     struct every_other {
//       std::uint64_t size(std::uint64_t n) const { return (n + 1) / 2; }  // drawn in an epoch
//       struct order_type {                                                // the order of an epoch
//         void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
//           for (auto& index : out) index = 2 * first++;
//         }
//       };
//       order_type order(std::uint64_t n, std::uint64_t epoch) const { return {}; }
//     };

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The order of an epoch. `order.fill(first, out)` writes the indices of the samples at the
/// positions first, first + 1, ... first + out.size() - 1.
///
/// Several threads may call `fill` at once, for any range of positions, in any order and
/// repeatedly. Equal arguments must give equal indices. The loader only requests positions below
/// the sampler's `size(n)` and expects indices below n. Must be trivially copyable, so it owns
/// nothing.
template <class Order>
concept epoch_order =
    std::is_trivially_copyable_v<Order> &&
    requires(const Order& order, std::uint64_t first, std::span<std::uint64_t> out) {
      { order.fill(first, out) } noexcept;
    };

/// Chooses the samples of an epoch. `sampler.size(n)` is the number of samples that an epoch draws
/// from a dataset of n >= 1 samples. The number may be larger than n, because a sample may be drawn
/// more than once. `sampler.order(n, epoch)` is the order of that epoch. Both are const and pure.
/// PyTorch: `torch.utils.data.Sampler`.
///
/// If `order` throws, the exception is rethrown with the first batch that needs the order.
/// `loader_options::faults.stall_warning` and `timeout` also apply to `order`. If an order refers
/// to memory that something else owns, the sampler has `static constexpr bool borrows = true`, and
/// a loader's destructor waits for the order. If the sampler needs to know how far its orders are
/// drawn, as `prioritized` does, it has `static constexpr bool counts_draws = true`, and a loader
/// refuses `lookahead_bytes`, because its hints would count as draws.
///
/// To detect a different sampler on resume, states compare some indices of two orders. If the
/// sampler has `std::uint64_t fingerprint() const`, a hash of everything that its orders depend on,
/// states compare the hashes instead.
template <class Sampler>
concept sampler = std::copyable<Sampler> &&
                  requires(const Sampler& sampler, std::uint64_t n, std::uint64_t epoch) {
                    { sampler.size(n) } -> std::same_as<std::uint64_t>;
                    { sampler.order(n, epoch) } -> epoch_order;
                  };

/// A position in a training: step `step` of epoch `epoch`, both counted from 0. A step is a batch,
/// over all ranks. The position {e, steps of an epoch} is the same as {e + 1, 0}.
struct training_position {
  /// The epoch.
  std::uint64_t epoch = 0;
  /// The step within the epoch.
  std::uint64_t step = 0;
  /// Returns true if all members are equal.
  friend bool operator==(const training_position&, const training_position&) = default;
  /// Orders by epoch, and then by step.
  friend auto operator<=>(const training_position&, const training_position&) = default;  // NOLINT
};

/// An order whose batches have different numbers of samples, such as the order of `by_tokens`. The
/// positions of the order form rows of `sampler.batch_size()` positions, one row per batch. A batch
/// consists of the first `order.batch_size(batch)` positions of its row, from 1 to
/// `sampler.batch_size()`. `size(n)` counts all positions of all rows, and for positions without a
/// sample `fill` writes any index below n. Several threads may call these functions at once. The
/// sampler's `batches_per_step()` is the number of batches that all ranks take in a step. The
/// number of batches of an epoch is a multiple of it.
template <class Order>
concept variable_batch_order =
    epoch_order<Order> && requires(const Order& order, std::uint64_t batch) {
      { order.batch_size(batch) } noexcept -> std::same_as<std::size_t>;
    };

namespace detail {

/// A sampler for one batch size, such as `sharded`. A loader with another batch size refuses it.
template <class Sampler>
concept sampler_of_batches = sampler<Sampler> && requires(const Sampler& sampler) {
  { sampler.batch_size() } -> std::same_as<std::size_t>;
};

/// A sampler that counts steps, and needs to know the number of samples in a step over all ranks. 0
/// means that it counts no steps. A loader and a `sharded` with another number refuse it.
template <class Sampler>
concept sampler_of_steps = sampler<Sampler> && requires(const Sampler& sampler) {
  { sampler.step_size() } -> std::same_as<std::size_t>;
};

/// The order of an epoch of a sampler.
template <sampler Sampler>
using order_of = std::remove_cvref_t<decltype(std::declval<const Sampler&>().order(
    std::uint64_t{}, std::uint64_t{}))>;

/// A sampler whose batches have different numbers of samples.
template <class Sampler>
concept cuts_batches = sampler_of_batches<Sampler> && variable_batch_order<order_of<Sampler>> &&
                       requires(const Sampler& sampler) {
                         { sampler.batches_per_step() } -> std::same_as<std::uint64_t>;
                       };

/// Throws `option_error` unless `found`, the number of entries of an option, is `n`: one for each
/// sample.
inline void require_one_each(std::string_view option, std::uint64_t n, std::uint64_t found) {
  if (found == n) return;
  refuse_option(option,
                {"expected one weight for each of the dataset's ", n, " samples, found ", found});
}

/// `out` holds consecutive positions of an order, starting at position `first`. Splits `out` at the
/// boundaries of rows of `size` positions. Calls `fill_row(row, at, part)` for each part, where
/// `at` is the position in `row` at which the part begins.
template <class FillRow>
void fill_by_rows(std::uint64_t size, std::uint64_t first, std::span<std::uint64_t> out,
                  const FillRow& fill_row) noexcept {
  while (!out.empty()) {
    const std::uint64_t at = first % size;
    const auto count = static_cast<std::size_t>((std::min)(std::uint64_t{out.size()}, size - at));
    fill_row(first / size, static_cast<std::size_t>(at), out.first(count));
    out = out.subspan(count);
    first += count;
  }
}

/// The order 0, 1, 2, ... of `sequential`.
struct identity_order {
  /// Writes the indices of the samples at position `first` and after.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + i;
  }
};

}  // namespace detail

/// Every sample once, in the order of the dataset. PyTorch: `SequentialSampler` (`shuffle=False`).
struct sequential {
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const noexcept { return n; }
  [[nodiscard]] detail::identity_order order(std::uint64_t, std::uint64_t) const noexcept {
    return {};
  }
};

/// Every sample once, in a random order that depends on `seed` and differs in every epoch. PyTorch:
/// `RandomSampler` (`shuffle=True`) with `generator.manual_seed(seed)`. `order` throws
/// std::invalid_argument unless 1 <= n <= 2^63.
struct shuffled {
  /// Determines the order, together with the epoch.
  std::uint64_t seed = 0;

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const noexcept { return n; }
  [[nodiscard]] detail::permutation order(std::uint64_t n, std::uint64_t epoch) const {
    return {n, seed, epoch};
  }
};

static_assert(epoch_order<detail::identity_order>);
static_assert(epoch_order<detail::permutation>);
static_assert(sampler<sequential>);
static_assert(sampler<shuffled>);

namespace detail {

/// A sampler that provides a hash of everything that its order depends on, such as a schedule.
template <class Sampler>
concept hashed_sampler = sampler<Sampler> && requires(const Sampler& sampler) {
  { sampler.fingerprint() } -> std::same_as<std::uint64_t>;
};

/// Returns the sampler's own hash, if it has one. Otherwise returns a hash of the first and the
/// middle indices of two epochs; samplers whose orders differ there collide with a probability of
/// 2^-64.
template <sampler Sampler>
[[nodiscard]] std::uint64_t order_fingerprint(const Sampler& order, std::uint64_t dataset_size) {
  if constexpr (hashed_sampler<Sampler>) return order.fingerprint();
  word_hash hash;
  const std::uint64_t samples = order.size(dataset_size);
  std::array<std::uint64_t, 16> indices{};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    const auto of_epoch = order.order(dataset_size, epoch);
    for (const std::uint64_t first : {std::uint64_t{0}, samples / 2}) {
      const std::span some{indices.data(), static_cast<std::size_t>((std::min)(
                                               samples - first, std::uint64_t{indices.size()}))};
      of_epoch.fill(first, some);
      hash.add_all(some);
    }
  }
  return hash.value();
}

/// A sampler that distributes the order of `global()` over `world()` ranks.
template <class S>
concept dealing_sampler = sampler<S> && requires(const S& deals) {
  requires sampler<std::remove_cvref_t<decltype(deals.global())>>;
  { deals.world() } -> std::convertible_to<std::uint64_t>;
};

/// Returns the sampler of the global order, or the sampler itself if it does not distribute one.
template <sampler Sampler>
[[nodiscard]] const auto& global_sampler(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.global();
  } else {
    return of;
  }
}

/// Returns the number of ranks that a sampler distributes its order over, which is 1 for most
/// samplers.
template <sampler Sampler>
[[nodiscard]] std::uint64_t world_size(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.world();
  } else {
    return 1;
  }
}

/// Returns the number of samples that all ranks of a sampler together draw in an epoch.
template <sampler Sampler>
[[nodiscard]] std::uint64_t total_size(const Sampler& of, std::uint64_t n) {
  if constexpr (requires {
                  { of.total_size(n) } -> std::same_as<std::uint64_t>;
                }) {
    return of.total_size(n);
  } else {
    return of.size(n) * world_size(of);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
