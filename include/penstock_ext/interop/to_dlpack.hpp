// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <utility>

#include <penstock/core/name.hpp>
#include <penstock_ext/interop/detail/exported_tensor.hpp>
#include <penstock_ext/interop/dlpack_abi.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How a field is exported.
struct dlpack_options {
  /// The consumer must not write, see `dlpack::flag_read_only`.
  bool read_only = false;
  /// Page-locked memory is called ordinary memory: for consumers that know no
  /// `dlpack::device_kind::cuda_host`, as older versions of PyTorch and JAX.
  bool pinned_as_cpu = false;
};

/// The field called `Name` of a batch as a tensor of any array library's: the batch's own memory,
/// row-major, its shape the samples and then the field's extents, its strides always there, its
/// offset 0. The tensor is a copy of `batch`: its deleter ends that copy, on any thread, and so the
/// lease where it was the last. One allocation; throws `std::bad_alloc`.
///
///     auto batch = ps::share(std::move(lease));
///     auto images = ps::to_dlpack<"image">(batch);  // two tensors over one slot, which comes
///     auto labels = ps::to_dlpack<"label">(batch);  // back when both are deleted
///
/// A tensor in a GPU's memory is for work on the stream that the feed was given; for another one
/// that stream is named. A tensor in host memory may be used at once: where a stream of the CPU
/// device's fills it, this returns after what that stream has been given.
template <name Name, class Batch>
[[nodiscard]] dlpack::managed_ptr to_dlpack(shared_batch<Batch> batch,
                                            const dlpack_options& options = {}) {
  detail::wait_for_host_memory(batch);
  return detail::export_versioned<Name>(std::move(batch), options.read_only, options.pinned_as_cpu);
}

/// `to_dlpack` for work on `consumer`, as `__dlpack__(stream)` of Python's array interface has it:
/// that stream waits for the batch's copy, and the slot's next batch waits for what the stream has
/// been given by the end of the lease, see `shared_batch::also_used_on`. The stream must outlive
/// the lease. Throws what the device throws, and nothing is exported then.
///
/// Python's numbers 1 and 2 are `cudaStreamLegacy` and `cudaStreamPerThread`, of which the second
/// is refused; -1 asks for no wait, and is for the function above.
template <name Name, class Batch>
  requires detail::has_stream<Batch>
[[nodiscard]] dlpack::managed_ptr to_dlpack(shared_batch<Batch> batch,
                                            typename shared_batch<Batch>::stream_ref consumer,
                                            const dlpack_options& options = {}) {
  batch.also_used_on(consumer);
  return detail::export_versioned<Name>(std::move(batch), options.read_only, options.pinned_as_cpu);
}

/// `to_dlpack` for consumers of the older layout, which can't be told that a tensor is to be read
/// only. The other options are as there.
template <name Name, class Batch>
[[nodiscard]] dlpack::unversioned_ptr to_dlpack_unversioned(shared_batch<Batch> batch,
                                                            bool pinned_as_cpu = false) {
  detail::wait_for_host_memory(batch);
  return dlpack::unversioned_ptr{
      detail::export_field<dlpack::unversioned_tensor, Name>(std::move(batch), pinned_as_cpu)};
}

/// `to_dlpack_unversioned` for work on `consumer`, see `to_dlpack`.
template <name Name, class Batch>
  requires detail::has_stream<Batch>
[[nodiscard]] dlpack::unversioned_ptr to_dlpack_unversioned(
    shared_batch<Batch> batch, typename shared_batch<Batch>::stream_ref consumer) {
  batch.also_used_on(consumer);
  return dlpack::unversioned_ptr{
      detail::export_field<dlpack::unversioned_tensor, Name>(std::move(batch), false)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
