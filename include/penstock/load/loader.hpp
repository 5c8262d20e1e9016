// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <penstock/core/layout.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/load/detail/plan.hpp>
#include <penstock/load/detail/source_ops.hpp>
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

/// What a loader of `Dataset` runs on: checks the options, takes all memory and starts the workers.
template <dataset Dataset, class Data, sampler Sampler, device Device>
[[nodiscard]] std::shared_ptr<loader_flow<typename Dataset::record_type, Device>> make_flow(
    Data&& data, const Sampler& order, const Device& device, const loader_options& asked) {
  const loader_options options = loader_core<Device>::checked(asked);
  require_options_of(order, asked);
  auto source =
      std::make_unique<source_of<Dataset, Sampler>>(std::forward<Data>(data), order, options);
  auto ring = loader_core<Device>::make_slots(device, source->layout(), options);
  ring->name_fields(source->layout());
  const epoch_plan plan = source->plan();
  return std::make_shared<loader_flow<typename Dataset::record_type, Device>>(
      std::move(source), plan, std::move(ring), asked, options);
}

}  // namespace detail

/// Reads batches of a dataset in the order of a sampler, on worker threads, into a fixed ring of
/// host slots. A loop over it gets leases of host memory; `transfer` carries them to a device.
///
///     ps::loader loader{digits | ps::map(augment), ps::shuffled{.seed = 1}, {.batch_size = 64}};
///     for (auto& batch : loader.epochs(0, 5)) use(ps::get<"image">(batch), batch.size());
///
/// An lvalue dataset is referred to and must outlive the loader; an rvalue is moved in. All memory
/// is taken, and all threads are started, at construction. The same dataset, sampler and seed give
/// the same batches, bit by bit, for any number of workers and any prefetch. Movable; one thread
/// consumes.
///
/// In a child made by fork() a loader with threads may only be destroyed, which returns at once and
/// keeps its memory; a range throws `std::logic_error` as soon as it would wait. One with `workers
/// = 0` and no watch has no threads, and works in both processes.
///
/// Its threads block no signals: a handler of the program's may run on them. To prevent that, block
/// the signals (pthread_sigmask) around the construction; threads start with the mask of their
/// creator. A wait may change errno.
///
/// Construction throws `option_error`, `empty_dataset`, `layout_error`, `pinned_budget_exceeded`,
/// `out_of_memory`, `std::system_error` (threads), what the device throws, and what the dataset's
/// size and extents do.
template <dataset Dataset, sampler Sampler, device Device = cpu_device>
class loader : public any_loader<typename Dataset::record_type, Device> {
  using base = any_loader<typename Dataset::record_type, Device>;

 public:
  /// Checks the options, takes all memory and starts the workers.
  template <class Data>
  loader(Data&& data, const Sampler& order, const Device& device, const loader_options& options)
      : base(detail::make_flow<Dataset>(std::forward<Data>(data), order, device, options)) {}

  /// Without a device: batches in host memory.
  template <class Data>
  loader(Data&& data, const Sampler& order, const loader_options& options)
      : loader(std::forward<Data>(data), order, Device{}, options) {}
};

namespace detail {

template <dataset Dataset, sampler Sampler, device Device>
struct fed<loader<Dataset, Sampler, Device>> {
  using type = any_loader<typename Dataset::record_type, Device>;
};

}  // namespace detail

/// An lvalue dataset is referred to, an rvalue is moved in.
template <class Data, class Sampler, class Device>
loader(Data&&, const Sampler&, const Device&, loader_options)
    -> loader<typename detail::loaded<Data, Sampler, Device>::dataset_type, Sampler, Device>;
/// Without a device: batches in host memory, by the CPU device.
template <class Data, class Sampler>
loader(Data&&, const Sampler&, loader_options)
    -> loader<typename detail::loaded<Data, Sampler, cpu_device>::dataset_type, Sampler>;

/// @cond misuse
// For what is no loader's arguments: each says in a sentence what is wrong.
template <class Data>
loader(Data&&, loader_options)
    -> loader<typename detail::loaded_without_sampler<Data>::dataset_type, sequential>;
template <class Data, class Sampler>
  requires(!std::convertible_to<Sampler, loader_options>)
loader(Data&&, const Sampler&)
    -> loader<typename detail::loaded_without_options<Data, Sampler>::dataset_type, sequential>;
template <class Data, class Sampler, class Device>
  requires(!std::convertible_to<Device, loader_options>)
loader(Data&&, const Sampler&, const Device&)
    -> loader<typename detail::loaded_without_options<Data, Device>::dataset_type, sequential>;
template <class Data, class Sampler>
loader(Data&&, loader_options, const Sampler&)
    -> loader<typename detail::loaded_with_early_options<Data>::dataset_type, sequential>;
template <class Data, class First, class Second>
loader(Data&&, loader_options, const First&, const Second&)
    -> loader<typename detail::loaded_with_early_options<Data>::dataset_type, sequential>;
template <class Data, class Sampler, class Device>
loader(Data&&, const Sampler&, loader_options, const Device&)
    -> loader<typename detail::loaded_with_early_options<Data>::dataset_type, sequential>;
/// @endcond

}  // namespace PENSTOCK_ABI
}  // namespace penstock
