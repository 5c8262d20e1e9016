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

// A sampler determines the sample at position k of epoch e as a pure function, without state or an
// index list. A user-defined sampler has this form:
//
//     struct every_other {
//       std::uint64_t size(std::uint64_t n) const { return (n + 1) / 2; }  // draws in an epoch
//       struct order_type {                                                // the order of an epoch
//         void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
//           for (auto& index : out) index = 2 * first++;
//         }
//       };
//       order_type order(std::uint64_t n, std::uint64_t epoch) const { return {}; }
//     };

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The sample order of an epoch. `order.fill(first, out)` writes the sample indices at the
/// positions first, first + 1, ... first + out.size() - 1.
///
/// Several threads may call `fill` concurrently, for any positions, in any order and repeatedly.
/// Equal arguments must give equal indices. The loader requests only positions less than the
/// sampler's `size(n)`, and expects indices less than n. An order must be trivially copyable, so it
/// cannot own memory.
template <class Order>
concept epoch_order =
    std::is_trivially_copyable_v<Order> &&
    requires(const Order& order, std::uint64_t first, std::span<std::uint64_t> out) {
      { order.fill(first, out) } noexcept;
    };

/// Selects the samples of each epoch. `sampler.size(n)` returns the number of samples that an epoch
/// draws from a dataset of n >= 1 samples. The number may exceed n, because samples may be drawn
/// repeatedly. `sampler.order(n, epoch)` returns the order of an epoch. Both functions are const
/// and pure. PyTorch: `torch.utils.data.Sampler`.
///
/// If `order` throws, the exception is rethrown with the first batch that needs the order.
/// `loader_options::faults.stall_warning` and `timeout` also apply to `order`. If an order
/// references memory that the sampler does not own, the sampler declares
/// `static constexpr bool borrows = true`, and a loader's destructor waits for the order. If draws
/// have side effects, as in `prioritized`, the sampler declares
/// `static constexpr bool counts_draws = true`. A loader then rejects `lookahead_bytes`, because
/// its hints would count as draws.
///
/// States contain a hash of some indices in two orders, so that resuming with a different sampler
/// is detected. If the sampler has `std::uint64_t fingerprint() const`, a hash of everything that
/// its orders depend on, states contain this hash instead.
template <class Sampler>
concept sampler = std::copyable<Sampler> &&
                  requires(const Sampler& sampler, std::uint64_t n, std::uint64_t epoch) {
                    { sampler.size(n) } -> std::same_as<std::uint64_t>;
                    { sampler.order(n, epoch) } -> epoch_order;
                  };

/// A position in a training run: step `step` of epoch `epoch`, both counted from 0. A step is a
/// batch over all ranks. The position {e, number of steps in an epoch} equals {e + 1, 0}.
struct training_position {
  /// Epoch of the training.
  std::uint64_t epoch = 0;
  /// Step in the epoch.
  std::uint64_t step = 0;
  /// Returns true if all members are equal.
  friend bool operator==(const training_position&, const training_position&) = default;
  /// Compares by epoch, then by step.
  friend auto operator<=>(const training_position&, const training_position&) = default;  // NOLINT
};

/// An order with batches of variable size, such as the order of `by_tokens`. The positions form
/// rows of `sampler.batch_size()` positions, one row for each batch. A batch consists of the first
/// `order.batch_size(batch)` positions of its row, from 1 to `sampler.batch_size()`. `size(n)`
/// counts all positions in all rows. For positions without a sample, `fill` writes any index less
/// than n. Several threads may call these functions concurrently. `sampler.batches_per_step()`
/// returns the number of batches in a step over all ranks. The number of batches in an epoch is a
/// multiple of that value.
template <class Order>
concept variable_batch_order =
    epoch_order<Order> && requires(const Order& order, std::uint64_t batch) {
      { order.batch_size(batch) } noexcept -> std::same_as<std::size_t>;
    };

namespace detail {

/// A sampler for a specific batch size, such as `sharded`. A loader with a different batch size
/// rejects it.
template <class Sampler>
concept sampler_of_batches = sampler<Sampler> && requires(const Sampler& sampler) {
  { sampler.batch_size() } -> std::same_as<std::size_t>;
};

/// A sampler that counts steps and specifies the number of samples in a step over all ranks. 0
/// means that it does not count steps. A loader or `sharded` with a different step size rejects it.
template <class Sampler>
concept sampler_of_steps = sampler<Sampler> && requires(const Sampler& sampler) {
  { sampler.step_size() } -> std::same_as<std::size_t>;
};

/// The type of a sampler's order.
template <sampler Sampler>
using order_of = std::remove_cvref_t<decltype(std::declval<const Sampler&>().order(
    std::uint64_t{}, std::uint64_t{}))>;

/// A sampler with batches of variable size.
template <class Sampler>
concept cuts_batches = sampler_of_batches<Sampler> && variable_batch_order<order_of<Sampler>> &&
                       requires(const Sampler& sampler) {
                         { sampler.batches_per_step() } -> std::same_as<std::uint64_t>;
                       };

/// Throws `option_error` unless an option with `found` entries has one entry for each of `n`
/// samples.
inline void require_one_each(std::string_view option, std::uint64_t n, std::uint64_t found) {
  if (found == n) return;
  throw_option_error(
      option, {"expected one weight for each of the dataset's ", n, " samples, found ", found});
}

/// Splits `out`, which represents consecutive positions starting at `first`, at the boundaries of
/// rows of `size` positions. Calls `fill_row(row, at, part)` for each part. `at` is the position in
/// `row` at which the part begins.
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

/// The order of `sequential`: 0, 1, 2, ...
struct identity_order {
  /// Writes the sample indices starting at position `first`.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + i;
  }
};

}  // namespace detail

/// Draws each sample once, in dataset order. PyTorch: `SequentialSampler` (`shuffle=False`).
struct sequential {
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const noexcept { return n; }
  [[nodiscard]] detail::identity_order order(std::uint64_t, std::uint64_t) const noexcept {
    return {};
  }
};

/// Draws each sample once, in a random order that depends on `seed` and differs in each epoch.
/// PyTorch: `RandomSampler` (`shuffle=True`) with `generator.manual_seed(seed)`. `order` throws
/// std::invalid_argument unless 1 <= n <= 2^63.
struct shuffled {
  /// Seed that determines the order, together with the epoch.
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

/// A sampler with a hash of everything that its order depends on, such as a schedule.
template <class Sampler>
concept hashed_sampler = sampler<Sampler> && requires(const Sampler& sampler) {
  { sampler.fingerprint() } -> std::same_as<std::uint64_t>;
};

/// Returns the sampler's own hash, if any. Otherwise returns a hash of the first and middle indices
/// of two epochs. Samplers whose orders differ there collide with a probability of 2^-64.
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

/// Returns the sampler of the global order, or the sampler itself if it does not distribute an
/// order.
template <sampler Sampler>
[[nodiscard]] const auto& global_sampler(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.global();
  } else {
    return of;
  }
}

/// Returns the number of ranks over which a sampler distributes its order, which is 1 for most
/// samplers.
template <sampler Sampler>
[[nodiscard]] std::uint64_t world_size(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.world();
  } else {
    return 1;
  }
}

/// Returns the number of samples that all ranks together draw in an epoch.
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
