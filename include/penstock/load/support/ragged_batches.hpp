// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the batch extents of a loader: the dataset extents with the ragged capacity specified by
/// the options. Throws `option_error` if the options do not suit the record.
template <record_type Record>
[[nodiscard]] record_extents<Record> extents_for(const record_extents<Record>& lengths,
                                                 const loader_options& options) {
  if constexpr (Record::ragged_fields == 0) {
    if (options.memory.max_values_per_batch != 0) {
      throw_option_error(
          "memory.max_values_per_batch",
          {"sets the room for the values of ragged fields, but the dataset's record has "
           "no ragged field: omit it"});
    }
    return lengths;
  } else {
    if (options.faults.on_error.action == error_action::replace) {
      throw_option_error(
          "faults.on_error.action",
          {"error_action::replace cannot be used with ragged fields, because another sample has "
           "another length and does not fit into the batch: choose error_action::skip"});
    }
    if (options.memory.max_values_per_batch == 0) return lengths;
    const auto bounded = [&]<std::size_t Index>() {
      auto one = lengths.template at<Index>();
      if constexpr (Record::template field_at<Index>::is_ragged) {
        one.max_values_per_batch = options.memory.max_values_per_batch;
      }
      return one;
    };
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return record_extents<Record> { bounded.template operator()<Is>()... };
    }(std::make_index_sequence<Record::size>{});
  }
}

/// Returns the error for a sample that does not fit, because it is too long or the batch is full.
template <std::size_t Index, record_type Record>
[[nodiscard]] ragged_overflow overflow_of(const batch_view<Record>& all, const batch_info& batch,
                                          std::size_t position, std::uint64_t sample,
                                          std::uint64_t length) {
  using field = typename Record::template field_at<Index>;
  const batch_position at{batch.epoch, batch.batch};
  const auto bounds = all.layout().extents().template at<Index>();
  if (length > bounds.longest) {
    return {field::key.str(),
            at,
            position,
            sample,
            length,
            bounds.longest,
            str_cat({"it has ", length,
                     " values, but according to the dataset's extents() the longest sample has ",
                     bounds.longest})};
  }
  const std::size_t before =
      position == 0 ? 0
                    : static_cast<std::size_t>(
                          all.layout().template value_begin<Index>(all.slab(), position));
  const std::uint64_t needed = before + length;
  const std::size_t capacity = all.layout().template capacity<Index>();
  return {field::key.str(),
          at,
          position,
          sample,
          needed,
          capacity,
          str_cat({"the batch has ", needed, " values up to this sample, but room for ", capacity,
                   ": raise memory.max_values_per_batch, or lower batch_size"})};
}

/// Reserves the values of the sample at `position`. Throws `ragged_overflow` if the values do not
/// fit.
template <record_type Record>
void place_or_throw(const batch_view<Record>& all, const batch_info& batch, std::size_t position,
                    std::uint64_t sample, const sample_lengths<Record>& lengths) {
  for_each_ragged<Record>([&]<std::size_t Index>() {
    const std::uint64_t length = lengths[Record::template ragged_index<Index>()];
    if (length > all.layout().extents().template at<Index>().longest)
      throw overflow_of<Index>(all, batch, position, sample, length);
  });
  const std::size_t rejected = place_sample(all, position, lengths);
  for_each_ragged<Record>([&]<std::size_t Index>() {
    if (rejected != Index) return;
    throw overflow_of<Index>(all, batch, position, sample,
                             lengths[Record::template ragged_index<Index>()]);
  });
}

/// Reserves the ragged values of all samples in a batch, using the lengths returned by the dataset,
/// before any sample is read. Therefore the workers write without synchronization. An exception is
/// stored with the batch, in which case its samples are not read. Called by the opener.
template <dataset D, epoch_order Order>
void place_samples(const D& data, const Order& order, const epoch_plan& plan, batch_work& batch,
                   const batch_view<typename D::record_type>& all) noexcept {
  if (!batch.has_order) return;
  std::array<std::uint64_t, 64> some;
  failure at{"length", batch.info.epoch, batch.info.batch};
  try {
    for (std::size_t begin = 0; begin < all.size(); begin += some.size()) {
      const auto samples =
          std::span<std::uint64_t>{some}.first((std::min)(some.size(), all.size() - begin));
      pick_samples(order, plan, batch.info, begin, samples);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        at.position = begin + i;
        at.sample = samples[i];
        prefetch_ahead(data, samples, i);
        place_or_throw(all, batch.info, begin + i, samples[i], lengths_of(data, samples[i]));
      }
    }
  } catch (...) {
    batch.record_failed({std::current_exception(), at});
    batch.has_order = false;
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
