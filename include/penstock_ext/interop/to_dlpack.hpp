// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock_ext/interop/dlpack_abi.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An exported tensor and its context in one allocation.
template <class Managed, class Batch, std::size_t Rank>
struct exported_tensor {
  shared_batch<Batch> batch;
  std::array<std::int64_t, Rank> shape;
  std::array<std::int64_t, Rank> strides;
  Managed managed{};

  static void destroy(Managed* managed) noexcept {
    delete static_cast<exported_tensor*>(managed->context);
  }
};

/// Returns the location of the batch memory: the device's `dlpack_kind`, or the
/// `dlpack_pinned_kind` for page-locked host memory, if defined.
template <class Batch>
[[nodiscard]] dlpack::place place_of(const shared_batch<Batch>& batch, bool pinned_as_cpu) {
  using device_type = typename Batch::device_type;
  if constexpr (has_stream<Batch>) {
    constexpr bool is_named = requires { device_type::dlpack_kind; };
    static_assert(is_named,
                  "penstock::to_dlpack: the device has no `static constexpr std::int32_t "
                  "dlpack_kind`, DLPack's number for its memory");
    if constexpr (is_named) {
      const dlpack::device_kind kind{device_type::dlpack_kind};
      if constexpr (requires { batch.device().ordinal(); }) {
        return {kind, batch.device().ordinal()};
      } else {
        return {kind, 0};
      }
    }
  } else if constexpr (requires {
                         device_type::dlpack_pinned_kind;
                         batch.pinned();
                       }) {
    if (!pinned_as_cpu && batch.pinned()) {
      return {dlpack::device_kind{device_type::dlpack_pinned_kind}, 0};
    }
  }
  return {dlpack::device_kind::cpu, 0};
}

/// Exports the field `Name` with `batch` as its owner. Leaves the version and the flags at 0.
template <class Managed, name Name, class Batch>
[[nodiscard]] Managed* export_field(shared_batch<Batch> batch, bool pinned_as_cpu) {
  const auto view = batch.template get<Name>();
  using view_type = std::remove_const_t<decltype(view)>;
  using value_type = typename view_type::value_type;
  static_assert(
      requires { view_type::rank; },
      "penstock::to_dlpack: a ragged field is not a tensor, because DLPack has one shape for all "
      "samples; use get<name>(batch).values() and .offsets() in place");
  static_assert(dlpack::element<value_type>,
                "penstock::to_dlpack: DLPack has no type code for the field's type, see "
                "penstock::dlpack::type_of");
  constexpr std::size_t rank = view_type::rank;
  using exported = exported_tensor<Managed, Batch, rank>;
  const dlpack::place where = place_of(batch, pinned_as_cpu);
  // DLPack requires a null pointer for a tensor without elements.
  void* const data = view.size() == 0 ? nullptr : const_cast<value_type*>(view.data());  // NOLINT
  auto* const made = new exported{std::move(batch), view.shape(), view.strides()};
  made->managed.context = made;
  made->managed.deleter = &exported::destroy;
  made->managed.array.data = data;
  made->managed.array.where = where;
  made->managed.array.rank = static_cast<std::int32_t>(rank);
  if constexpr (dlpack::element<value_type>) {
    made->managed.array.type = dlpack::type_of<value_type>::value;
  }
  made->managed.array.shape = made->shape.data();
  made->managed.array.strides = made->strides.data();
  return &made->managed;
}

/// Exports a field in the versioned layout.
template <name Name, class Batch>
[[nodiscard]] dlpack::managed_ptr export_versioned(shared_batch<Batch> batch, bool read_only,
                                                   bool pinned_as_cpu) {
  auto* made = export_field<dlpack::managed_tensor, Name>(std::move(batch), pinned_as_cpu);
  made->version = {dlpack::layout_version, dlpack::feature_version};
  made->flags = read_only ? dlpack::flag_read_only : 0;
  return dlpack::managed_ptr{made};
}

/// Blocks until the stream that fills a batch in host memory has finished, because the consumer
/// does not wait for that stream.
template <class Batch>
void wait_for_host_memory([[maybe_unused]] const shared_batch<Batch>& batch) {
  using device_type = typename Batch::device_type;
  if constexpr (has_stream<Batch> && requires { device_type::dlpack_kind; }) {
    if constexpr (dlpack::device_kind{device_type::dlpack_kind} == dlpack::device_kind::cpu) {
      wait_on_host(batch);
    }
  }
}

}  // namespace detail

/// Export options of a tensor.
struct dlpack_options {
  /// If true, the consumer must not write (see `dlpack::flag_read_only`).
  bool read_only = false;
  /// If true, page-locked memory is exported as ordinary host memory, for consumers that do not
  /// support `dlpack::device_kind::cuda_host`, such as older versions of PyTorch and JAX.
  bool pinned_as_cpu = false;
};

/// Exports the field `Name` as a tensor for any array library, without copying. The tensor is
/// row-major with the shape (samples, field extents...), explicit strides and offset 0. The tensor
/// holds a copy of `batch`, which its deleter releases on any thread. The lease ends when the last
/// copy is released. Allocates once. Throws `std::bad_alloc`.
///
///     auto batch = ps::share(std::move(lease));
///     // Two tensors share one slot, which is returned when both are deleted.
///     auto images = ps::to_dlpack<"image">(batch);
///     auto labels = ps::to_dlpack<"label">(batch);
///
/// A tensor in GPU memory may be used on the feed's stream. For another stream, use the overload
/// that takes a consumer stream. A tensor in host memory may be used immediately, because the call
/// waits for the stream that fills it, if any.
template <name Name, class Batch>
[[nodiscard]] dlpack::managed_ptr to_dlpack(shared_batch<Batch> batch,
                                            const dlpack_options& options = {}) {
  detail::wait_for_host_memory(batch);
  return detail::export_versioned<Name>(std::move(batch), options.read_only, options.pinned_as_cpu);
}

/// Exports a field for work on the stream `consumer`, like `__dlpack__(stream)` in Python. The
/// stream waits for the batch copy. The slot is reused only after all work that is queued on the
/// stream when the lease ends (see `shared_batch::also_used_on`). The stream must outlive the
/// lease. Propagates errors from the device without exporting anything.
///
/// In Python, stream 1 is `cudaStreamLegacy` and stream 2 is `cudaStreamPerThread`, which is
/// rejected. Stream -1 requests no wait and corresponds to the overload without a stream.
template <name Name, class Batch>
  requires detail::has_stream<Batch>
[[nodiscard]] dlpack::managed_ptr to_dlpack(shared_batch<Batch> batch,
                                            typename shared_batch<Batch>::stream_ref consumer,
                                            const dlpack_options& options = {}) {
  batch.also_used_on(consumer);
  return detail::export_versioned<Name>(std::move(batch), options.read_only, options.pinned_as_cpu);
}

/// Exports a field in the unversioned layout, which has no read-only flag. The other options apply.
template <name Name, class Batch>
[[nodiscard]] dlpack::unversioned_ptr to_dlpack_unversioned(shared_batch<Batch> batch,
                                                            bool pinned_as_cpu = false) {
  detail::wait_for_host_memory(batch);
  return dlpack::unversioned_ptr{
      detail::export_field<dlpack::unversioned_tensor, Name>(std::move(batch), pinned_as_cpu)};
}

/// Exports a field in the unversioned layout for work on the stream `consumer` (see `to_dlpack`).
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
