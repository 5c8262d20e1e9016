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
#include <penstock/load/detail/source_ops.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An error in the arguments of `loader{...}`.
enum class loader_misuse { none, no_sampler, no_options, early_options };

/// Checks the arguments of `loader{...}`. Used by the deduction guides, so that its messages
/// precede the compiler's explanation of why no guide matches. Clang 14 instantiates this class
/// before it checks the constraints of a guide.
template <class Data, class Sampler = sequential, class Device = cpu_device,
          loader_misuse Found = loader_misuse::none>
struct loader_args_check {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  static constexpr loader_misuse found =
      dataset<std::remove_cvref_t<Data>> ? Found : loader_misuse::none;
  static_assert(
      found != loader_misuse::no_sampler,
      "penstock::loader: the sampler is missing, which sets the order of samples: loader{data, "
      "ps::shuffled{.seed = 1}, {.batch_size = 64}}, or ps::sequential{}");
  static_assert(found != loader_misuse::no_options,
                "penstock::loader: the options are missing, which come last: loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}");
  static_assert(found != loader_misuse::early_options,
                "penstock::loader: options come last: loader{data, ps::shuffled{.seed = 1}, "
                "{.batch_size = 64}}");
  static_assert(sampler<Sampler>,
                "penstock::loader: a sampler comes after the dataset, as in loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}");
  static_assert(device<Device>,
                "penstock::loader: a device comes after the sampler, as in loader{data, "
                "ps::sequential{}, ps::cpu_device{}, {.batch_size = 64}}");
  using dataset_type = stored_dataset_t<Data>;
};

/// The error in arguments whose last argument has the type `Last` instead of `loader_options`.
template <class Last>
inline constexpr loader_misuse misuse_ending_in =
    std::convertible_to<Last, loader_options> ? loader_misuse::none : loader_misuse::no_options;

/// The dataset of a loader with invalid arguments.
template <class Data, loader_misuse Found>
using misused_dataset_t =
    typename loader_args_check<Data, sequential, cpu_device, Found>::dataset_type;

/// Creates the loop of a loader over `Dataset`. Checks the options, allocates all memory and starts
/// the workers.
template <dataset Dataset, class Data, sampler Sampler, device Device>
[[nodiscard]] std::shared_ptr<loader_loop<typename Dataset::record_type, Device>> make_flow(
    Data&& data, const Sampler& order, const Device& device, const loader_options& requested) {
  const loader_options options = loader_core<Device>::checked(requested);
  require_options_of(order, requested);
  auto source =
      std::make_unique<source_of<Dataset, Sampler>>(std::forward<Data>(data), order, options);
  auto ring = loader_core<Device>::make_slots(device, source->layout(), options);
  const epoch_plan plan = source->plan();
  return std::make_shared<loader_loop<typename Dataset::record_type, Device>>(
      std::move(source), plan, std::move(ring), requested, options);
}

}  // namespace detail

/// Reads batches from a dataset in sampler order, on worker threads, into a fixed ring of host
/// slots. A loop over a loader receives leases of host memory. A `transfer` copies the batches to a
/// device.
///
///     ps::loader loader{digits | ps::map(augment), ps::shuffled{.seed = 1}, {.batch_size = 64}};
///     for (auto& batch : loader.epochs(0, 5)) use(ps::get<"image">(batch), batch.size());
///
/// An lvalue dataset is referenced and must outlive the loader, and an rvalue dataset is moved in.
/// The constructor allocates all memory and starts all threads. The same dataset, sampler and seed
/// result in bitwise identical batches, for any number of workers and any prefetch. Movable. Only
/// one thread may consume.
///
/// In a child process created by fork(), a loader with threads supports only destruction, which
/// returns immediately and does not free the memory. A range throws `std::logic_error` when it
/// would wait. A loader with `workers = 0`, and without limits for stalled reads, has no threads
/// and works in both processes.
///
/// The threads of a loader do not block signals, so a signal handler of the program may run on
/// them. To prevent that, block the signals (pthread_sigmask) around the construction, because
/// threads inherit the signal mask of their creator. A wait may change errno.
///
/// The constructor throws `option_error`, `empty_dataset`, `layout_error`,
/// `pinned_budget_exceeded`, `out_of_memory`, `std::system_error` (threads), device errors, and
/// exceptions from the `size` and `extents` of the dataset.
template <dataset Dataset, sampler Sampler, device Device = cpu_device>
class loader : public any_loader<typename Dataset::record_type, Device> {
  using base = any_loader<typename Dataset::record_type, Device>;

 public:
  /// Checks the options, allocates all memory and starts the workers.
  template <class Data>
  loader(Data&& data, const Sampler& order, const Device& device, const loader_options& options)
      : base(detail::make_flow<Dataset>(std::forward<Data>(data), order, device, options)) {}

  /// Creates a loader without a device. Batches stay in host memory.
  template <class Data>
  loader(Data&& data, const Sampler& order, const loader_options& options)
      : loader(std::forward<Data>(data), order, Device{}, options) {}
};

namespace detail {

template <dataset Dataset, sampler Sampler, device Device>
struct erased_source<loader<Dataset, Sampler, Device>> {
  using type = any_loader<typename Dataset::record_type, Device>;
};

}  // namespace detail

/// Deduces a loader that references an lvalue dataset and owns an rvalue dataset.
template <class Data, class Sampler, class Device>
loader(Data&&, const Sampler&, const Device&, loader_options)
    -> loader<typename detail::loader_args_check<Data, Sampler, Device>::dataset_type, Sampler,
              Device>;
/// Deduces a loader without a device, which uses the CPU device. Batches stay in host memory.
template <class Data, class Sampler>
loader(Data&&, const Sampler&, loader_options)
    -> loader<typename detail::loader_args_check<Data, Sampler>::dataset_type, Sampler>;

/// @cond misuse
// Guides for invalid arguments, each with a message that explains the error.
template <class Data, class... Rest>
loader(Data&&, loader_options, const Rest&...)
    -> loader<detail::misused_dataset_t<Data, sizeof...(Rest) == 0
                                                  ? detail::loader_misuse::no_sampler
                                                  : detail::loader_misuse::early_options>,
              sequential>;
template <class Data, class Sampler, class Device>
loader(Data&&, const Sampler&, loader_options, const Device&)
    -> loader<detail::misused_dataset_t<Data, detail::loader_misuse::early_options>, sequential>;
template <class Data, class Sampler>
  requires(!std::convertible_to<Sampler, loader_options>)
loader(Data&&, const Sampler&)
    -> loader<detail::misused_dataset_t<Data, detail::misuse_ending_in<Sampler>>, sequential>;
template <class Data, class Sampler, class Device>
  requires(!std::convertible_to<Device, loader_options>)
loader(Data&&, const Sampler&, const Device&)
    -> loader<detail::misused_dataset_t<Data, detail::misuse_ending_in<Device>>, sequential>;
/// @endcond

}  // namespace PENSTOCK_ABI
}  // namespace penstock
