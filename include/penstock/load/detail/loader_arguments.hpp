// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/options.hpp>
#include <penstock/order/sampler.hpp>

/// @file
/// What `loader{...}` says when its arguments are not those of a loader. A deduction guide that
/// names `loaded` checks them before the class's own constraints do, so that a sentence comes
/// first, ahead of the compiler's account of why no guide fits. Right arguments cost the
/// instantiation of one empty class.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The arguments of a loader, each of which must be what its place asks for.
template <class Data, class Sampler, class Device>
struct loaded {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  static_assert(sampler<Sampler>,
                "penstock::loader: a sampler comes after the dataset, as in loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}");
  static_assert(device<Device>,
                "penstock::loader: a device comes after the sampler, as in loader{data, "
                "ps::sequential{}, ps::cpu_device{}, {.batch_size = 64}}");
  using dataset_type = stored_dataset_t<Data>;
};

/// Arguments that miss a sampler.
template <class Data>
struct loaded_without_sampler {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  static_assert(!dataset<std::remove_cvref_t<Data>>,
                "penstock::loader: a sampler is missing, which says the order: loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}, or ps::sequential{}");
  using dataset_type = stored_dataset_t<Data>;
};

/// Arguments that miss the options: the last one is none.
template <class Data, class Last>
struct loaded_without_options {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  // Options: clang 14 looks in here before it looks at what a guide requires.
  static_assert(!dataset<std::remove_cvref_t<Data>> || std::convertible_to<Last, loader_options>,
                "penstock::loader: options are missing, which come last: loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}");
  using dataset_type = stored_dataset_t<Data>;
};

/// Arguments whose options do not come last.
template <class Data>
struct loaded_with_early_options {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  static_assert(!dataset<std::remove_cvref_t<Data>>,
                "penstock::loader: options come last: loader{data, ps::shuffled{.seed = 1}, "
                "{.batch_size = 64}}");
  using dataset_type = stored_dataset_t<Data>;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
