// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/run_context.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

// Whether a map function takes the arguments `Args`, and whether it wants a generator after them.
template <class F, class... Args>
inline constexpr bool maps_plainly = std::invocable<const F&, Args...>;
template <class F, class... Args>
inline constexpr bool maps_randomly = std::invocable<const F&, Args..., sample_generator&>;
template <class F, class... Args>
inline constexpr bool maps_mutably =
    std::invocable<F&, Args...> || std::invocable<F&, Args..., sample_generator&>;

template <class F, class... Args>
inline constexpr bool maps = maps_plainly<F, Args...> || maps_randomly<F, Args...>;

/// A dataset whose samples are changed in place after reading, see `map`.
template <dataset Base, class F>
class map_dataset {
 public:
  using record_type = typename Base::record_type;

  static_assert(maps<F, sample<record_type>> || !maps_mutably<F, sample<record_type>>,
                "penstock::map: the function must be callable as const from many threads: is the "
                "lambda mutable?");
  static_assert(maps<F, sample<record_type>> || maps_mutably<F, sample<record_type>>,
                "penstock::map: the function must take (sample<Record>) or (sample<Record>, "
                "sample_generator&) of the dataset's own record");
  /// Whether the function takes random bits.
  static constexpr bool is_random = maps_randomly<F, sample<record_type>>;
  static constexpr std::uint32_t stages = stages_of<Base> + (is_random ? 1 : 0);
  static constexpr bool borrows = detail::borrows<Base> || function_borrows<F>;

  /// Reads from `base` and passes every sample through `function`.
  map_dataset(Base base, F function) : base_(std::move(base)), function_(std::move(function)) {}

  [[nodiscard]] std::uint64_t size() const { return base_.size(); }
  [[nodiscard]] record_extents<record_type> extents() const { return extents_of(base_); }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of(base_); }

  /// Reads the run from below, then calls the function sample by sample.
  void read_run(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                const run_context& context) const {
    penstock::read_run(base_, indices, out, context);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      if constexpr (is_random) {
        auto generator = context.generator(i, stages);
        function_(out[i], generator);
      } else {
        function_(out[i]);
      }
    }
  }

  void prefetch(std::uint64_t index) const noexcept requires prefetches<Base> {
    base_.prefetch(index);
  }

  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    return origin_of(base_, index);
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const { return base_sizes_of(base_); }

 private:
  Base base_;
  F function_;
};

/// A dataset whose samples are made from another one's, see `map`.
template <dataset Base, penstock::record_type Out, class F>
class map_into_dataset {
 public:
  using record_type = Out;
  /// The record of what is read.
  using base_record_type = typename Base::record_type;

  static_assert(maps<F, const_sample<base_record_type>, sample<Out>> ||
                    !maps_mutably<F, const_sample<base_record_type>, sample<Out>>,
                "penstock::map: the function must be callable as const from many threads: is the "
                "lambda mutable?");
  static_assert(
      maps<F, const_sample<base_record_type>, sample<Out>> ||
          maps_mutably<F, const_sample<base_record_type>, sample<Out>>,
      "penstock::map: the function must take (const_sample<In>, sample<Out>) or (const_sample<In>, "
      "sample<Out>, sample_generator&), where In is the dataset's record");
  /// Whether the function takes random bits.
  static constexpr bool is_random = maps_randomly<F, const_sample<base_record_type>, sample<Out>>;
  static constexpr std::uint32_t stages = stages_of<Base> + (is_random ? 1 : 0);
  static constexpr bool borrows = detail::borrows<Base> || function_borrows<F>;

  /// Reads from `base` and has `function` write every sample, with the extents `lengths`.
  map_into_dataset(Base base, F function, const record_extents<Out>& lengths)
      : base_(std::move(base)),
        function_(std::move(function)),
        lengths_(lengths),
        base_layout_(extents_of(base_), 1) {}

  [[nodiscard]] std::uint64_t size() const { return base_.size(); }
  [[nodiscard]] const record_extents<Out>& extents() const noexcept { return lengths_; }

  /// One sample of the dataset below, where that can't be looked at in place.
  [[nodiscard]] std::size_t scratch_bytes() const {
    if constexpr (views_samples<Base>) {
      return 0;
    } else {
      return base_layout_.bytes() + scratch_bytes_of(base_);
    }
  }

  void read_run(std::span<const std::uint64_t> indices, batch_view<Out> out,
                const run_context& context) const {
    constexpr std::size_t ahead = prefetch_distance;
    if constexpr (prefetches<Base>) {
      for (std::size_t i = 0; i < (std::min)(ahead, indices.size()); ++i)
        base_.prefetch(indices[i]);
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      if constexpr (prefetches<Base>) {
        if (i + ahead < indices.size()) base_.prefetch(indices[i + ahead]);
      }
      if constexpr (views_samples<Base>) {
        apply(base_.view(indices[i]), out[i], context, i);
      } else {
        const batch_view<base_record_type> one{context.scratch().data(), base_layout_, 0, 1};
        penstock::read_run(base_, indices.subspan(i, 1), one,
                           context.subrun(i, 1).below(base_layout_.bytes()));
        apply(one[0], out[i], context, i);
      }
    }
  }

  void prefetch(std::uint64_t index) const noexcept requires prefetches<Base> {
    base_.prefetch(index);
  }

  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    return origin_of(base_, index);
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const { return base_sizes_of(base_); }

 private:
  void apply(const_sample<base_record_type> in, sample<Out> out, const run_context& context,
             std::size_t i) const {
    if constexpr (is_random) {
      auto generator = context.generator(i, stages);
      function_(in, out, generator);
    } else {
      function_(in, out);
    }
  }

  Base base_;
  F function_;
  record_extents<Out> lengths_;
  batch_layout<base_record_type> base_layout_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
