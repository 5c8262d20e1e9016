// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/detail/map_call.hpp>
#include <penstock/data/adaptors/detail/map_lengths.hpp>
#include <penstock/data/adaptors/detail/over_dataset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/run_context.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A dataset whose samples are changed in place after reading, see `map`.
template <dataset Base, class F>
class map_dataset : public over_dataset<Base> {
  using below = over_dataset<Base>;
  using below::base_;

 public:
  using typename below::record_type;
  /// What the function takes.
  static constexpr map_form form = map_form_of<F, sample<record_type>>;
  static constexpr bool borrows = detail::borrows<Base> || function_borrows<F>;

  static_assert(form != map_form::none || !maps_mutably<F, sample<record_type>>,
                "penstock::map: the function must be callable as const from many threads: is the "
                "lambda mutable?");
  static_assert(form != map_form::none || maps_mutably<F, sample<record_type>>,
                "penstock::map: the function must take (sample<Record>) of the dataset's own "
                "record, and may take the sample's index, a sample_generator&, or first the index "
                "and then the generator, after it");

  /// Reads from `base` and passes every sample through `function`.
  map_dataset(Base base, F function) : below(std::move(base)), function_(std::move(function)) {}

  [[nodiscard]] std::uint32_t stages() const { return stages_of(base_) + (draws(form) ? 1 : 0); }

  /// Reads the run from below, then calls the function sample by sample.
  void read_run(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                const run_context& context) const {
    penstock::read_run(base_, indices, out, context);
    const mapped_run run{indices, context, stages()};
    const transform_scope timed = context.transform();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      run.template call<form>(function_, i, out[i]);
    }
  }

 private:
  F function_;
};

/// A dataset whose samples are made from another one's, see `map`.
template <dataset Base, penstock::record_type Out, class F>
class map_into_dataset : public over_dataset<Base> {
  using below = over_dataset<Base>;
  using below::base_;

 public:
  using record_type = Out;
  /// The record of what is read.
  using base_record_type = typename Base::record_type;
  /// What the function takes.
  static constexpr map_form form = map_form_of<F, const_sample<base_record_type>, sample<Out>>;
  static constexpr bool borrows = detail::borrows<Base> || function_borrows<F>;

  static_assert(lengths_are_known<Out, base_record_type>,
                "penstock::map: each ragged field of the new record needs one of the same name in "
                "the dataset's: it has as many values, which are known before it is made");
  static_assert(form != map_form::none ||
                    !maps_mutably<F, const_sample<base_record_type>, sample<Out>>,
                "penstock::map: the function must be callable as const from many threads: is the "
                "lambda mutable?");
  static_assert(
      form != map_form::none || maps_mutably<F, const_sample<base_record_type>, sample<Out>>,
      "penstock::map: the function must take (const_sample<In>, sample<Out>), where In is the "
      "dataset's record, and may take the sample's index, a sample_generator&, or first the index "
      "and then the generator, after them");

  /// Reads from `base` and has `function` write every sample, with the extents `lengths`.
  map_into_dataset(Base base, F function, const record_extents<Out>& lengths)
      : below(std::move(base)),
        function_(std::move(function)),
        lengths_(lengths),
        base_layout_(extents_of(base_), 1) {}

  [[nodiscard]] const record_extents<Out>& extents() const noexcept { return lengths_; }
  [[nodiscard]] sample_lengths<Out> lengths(std::uint64_t index) const
      requires(Out::ragged_fields > 0 && tells_lengths<Base>) {
    return same_lengths<Out, base_record_type>(lengths_of(base_, index));
  }
  [[nodiscard]] std::uint32_t stages() const { return stages_of(base_) + (draws(form) ? 1 : 0); }

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
    const mapped_run run{indices, context, stages()};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      if constexpr (prefetches<Base>) {
        if (i + ahead < indices.size()) base_.prefetch(indices[i + ahead]);
      }
      if constexpr (views_samples<Base>) {
        const transform_scope timed = context.transform();
        run.template call<form>(function_, i,
                                const_sample<base_record_type>{base_.view(indices[i])}, out[i]);
      } else {
        const batch_view<base_record_type> one{context.scratch().data(), base_layout_, 0, 1};
        if constexpr (tells_lengths<Base>) place_alone(one, lengths_of(base_, indices[i]));
        penstock::read_run(base_, indices.subspan(i, 1), one,
                           context.subrun(i, 1).below(base_layout_.bytes()));
        const transform_scope timed = context.transform();
        run.template call<form>(function_, i, const_sample<base_record_type>{one[0]}, out[i]);
      }
    }
  }

 private:
  F function_;
  record_extents<Out> lengths_;
  batch_layout<base_record_type> base_layout_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
