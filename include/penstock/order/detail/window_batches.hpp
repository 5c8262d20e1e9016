// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The numbers below `keys.size()` by their keys, which are below `bound`; equal ones in order.
struct numbers_by_key {
  std::vector<std::uint32_t> begins;  ///< of the numbers of each key in `numbers`, and the end
  std::vector<std::uint32_t> numbers;

  template <class Key>
  numbers_by_key(const std::vector<Key>& keys, std::size_t bound)
      : begins(bound + 2), numbers(keys.size()) {
    for (const std::size_t key : keys) ++begins[key + 2];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::uint32_t number = 0;
    for (const std::size_t key : keys) numbers[begins[key + 1]++] = number++;
    begins.pop_back();
  }
};

/// What bounds the batches of a window.
struct packing_bounds {
  std::uint64_t most;              ///< the budget
  std::uint64_t most_samples;      ///< of a batch; 0: as many as fit
  std::uint64_t batches_per_step;  ///< the batches are a multiple of it
  bool padded;                     ///< a batch costs samples times its longest
};

/// The batches of one window: which of its places each has. Place k holds a sample of at most
/// `bounds[k]` values, and the bounds never rise. Bounds of 0 count as 1.
class window_batches {
 public:
  /// As few batches as the budget needs, a multiple of `batches_per_step`, none above the budget,
  /// which no bound exceeds. Some have no place where there are fewer places than batches.
  window_batches(std::span<const std::uint32_t> bounds, const packing_bounds& options)
      : bounds_(bounds),
        most_(options.most),
        cap_(options.most_samples == 0 ? bounds.size() : options.most_samples),
        step_(options.batches_per_step) {
    begins_.push_back(0);
    if (options.padded) {
      pack_similar();
    } else {
      pack_equal();
    }
  }

  /// How many there are.
  [[nodiscard]] std::uint64_t count() const noexcept { return begins_.size() - 1; }
  /// The places of batch `which`.
  [[nodiscard]] std::span<const std::uint32_t> places(std::uint64_t which) const noexcept {
    const auto at = static_cast<std::size_t>(which);
    return std::span{places_}.subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }
  /// The places of the batch that has most.
  [[nodiscard]] std::size_t widest() const noexcept {
    std::size_t most = 1;
    for (std::size_t i = 0; i < count(); ++i) most = (std::max)(most, places(i).size());
    return most;
  }

 private:
  struct bin {
    std::uint64_t load;
    std::uint32_t places;
    std::uint32_t number;
    friend auto operator<=>(const bin&, const bin&) = default;
  };

  [[nodiscard]] std::uint64_t bound(std::size_t place) const noexcept {
    return std::max<std::uint64_t>(1, bounds_[place]);
  }
  [[nodiscard]] std::uint64_t whole_steps(std::uint64_t batches) const noexcept {
    return (std::max)(step_, (batches + step_ - 1) / step_ * step_);
  }

  // Batches of equal loads: from the longest bound down, each to the batch that has least so far
  // (Graham, "Bounds on multiprocessing timing anomalies", 1969).
  void pack_equal() {
    std::uint64_t sum = 0;
    for (std::size_t place = 0; place < bounds_.size(); ++place) sum += bound(place);
    const std::uint64_t least =
        (std::max)((sum + most_ - 1) / most_, (std::uint64_t{bounds_.size()} + cap_ - 1) / cap_);
    std::uint64_t batches = whole_steps(least);
    std::vector<std::uint32_t> owner(bounds_.size());
    // Ends: with a batch for each place all fit.
    const std::uint64_t enough = whole_steps(bounds_.size());
    while (!try_equal(batches, owner)) {
      batches = (std::min)(enough, whole_steps(batches + 1 + batches / 256));
    }
    numbers_by_key by_batch{owner, static_cast<std::size_t>(batches)};
    begins_ = std::move(by_batch.begins);
    places_ = std::move(by_batch.numbers);
  }
  bool try_equal(std::uint64_t batches, std::span<std::uint32_t> owner) const {
    std::priority_queue<bin, std::vector<bin>, std::greater<>> open;
    for (std::uint32_t i = 0; i < batches; ++i) open.push({0, 0, i});
    for (std::size_t place = 0; place < owner.size(); ++place) {
      if (open.empty()) return false;
      bin least = open.top();
      open.pop();
      least.load += bound(place);
      if (least.load > most_) return false;
      owner[place] = least.number;
      if (++least.places != cap_) open.push(least);
    }
    return true;
  }

  // Batches of consecutive places, cut at the lowest budget at which as many batches do as at the
  // whole one. By their costs, so that those of a step have nearly equal ones.
  void pack_similar() {
    const std::uint64_t batches = whole_steps(batches_at(most_));
    std::uint64_t low = bound(0);
    for (std::uint64_t high = most_; low < high;) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (batches_at(middle) <= batches) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    std::vector<bin> all;  // whose number is the first place
    for (std::size_t place = 0; place < bounds_.size(); place += all.back().places) {
      all.push_back(bin_of(place, places_within(place, low)));
    }
    // Batches that are left over take half of the costliest ones that have two places.
    const auto cost = [](const bin& one) { return std::pair{one.places > 1, one}; };
    std::ranges::make_heap(all, {}, cost);
    while (all.size() < batches && all.front().places > 1) {
      std::ranges::pop_heap(all, {}, cost);
      const bin whole = all.back();
      const std::size_t half = whole.places / 2;
      all.back() = bin_of(whole.number, half);
      std::ranges::push_heap(all, {}, cost);
      all.push_back(bin_of(whole.number + half, whole.places - half));
      std::ranges::push_heap(all, {}, cost);
    }
    // The last place may hold no sample: it is not alone while a batch has several places. The
    // last batch gets the place before, and so on down to the last one of several.
    std::ranges::sort(all, {}, &bin::number);
    std::size_t giving = all.back().places == 1 ? all.size() : 0;
    while (giving != 0 && all[giving - 1].places == 1) --giving;
    if (giving != 0) {
      bin& one = all[giving - 1];
      one = bin_of(one.number, one.places - 1);
      for (std::size_t i = giving; i < all.size(); ++i) all[i] = bin_of(all[i].number - 1, 1);
      all.back() = bin_of(all.back().number, 2);
    }
    std::sort(all.begin(), all.end(), std::greater<>{});
    for (const bin& one : all) {
      for (std::uint32_t i = 0; i < one.places; ++i) places_.push_back(one.number + i);
      begins_.push_back(static_cast<std::uint32_t>(places_.size()));
    }
    begins_.resize(static_cast<std::size_t>(batches) + 1, begins_.back());
  }
  // How many places from `place` on a batch has at this budget.
  [[nodiscard]] std::size_t places_within(std::size_t place, std::uint64_t budget) const noexcept {
    return static_cast<std::size_t>(
        (std::min)({budget / bound(place), cap_, std::uint64_t{bounds_.size() - place}}));
  }
  [[nodiscard]] std::uint64_t batches_at(std::uint64_t budget) const noexcept {
    std::uint64_t batches = 0;
    for (std::size_t at = 0; at < bounds_.size(); ++batches) at += places_within(at, budget);
    return batches;
  }
  [[nodiscard]] bin bin_of(std::size_t place, std::size_t places) const noexcept {
    return {bound(place) * places, static_cast<std::uint32_t>(places),
            static_cast<std::uint32_t>(place)};
  }

  std::span<const std::uint32_t> bounds_;  // until construction ends
  std::uint64_t most_;
  std::uint64_t cap_;
  std::uint64_t step_;
  std::vector<std::uint32_t> begins_;  // of the batches in `places_`, and the end
  std::vector<std::uint32_t> places_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
