// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Device.h>

#include <concepts>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

/// @file
/// libtorch tensors that reference batches in host memory. For GPU tensors, include
/// `penstock_ext/interop/torch/torch_cuda.hpp`. Requires libtorch 1.13 or newer (CMake target
/// `penstock::torch`).

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

template <class>
inline constexpr bool is_shared_batch = false;
template <class Batch>
inline constexpr bool is_shared_batch<shared_batch<Batch>> = true;

/// A lease of GPU memory whose device has an ordinal.
template <class Batch>
concept gpu_lease = requires(const Batch& batch) {
  batch.stream();
  batch.device().ordinal();
};

/// Determines the device of a batch's tensors and the order of work on them. The primary template
/// is for host memory, for which libtorch computes on the calling thread.
/// `penstock_ext/interop/torch/torch_cuda.hpp` specializes it for GPUs.
template <class Batch>
struct torch_side {
  /// Waits for the batch copy, and returns the device of its tensors. Ending the lease needs no
  /// such wait, because libtorch's work has finished when the last tensor is destroyed.
  static at::Device order([[maybe_unused]] const shared_batch<Batch>& batch) {
    static_assert(!gpu_lease<Batch>,
                  "penstock::torch_tensors: the batch is in GPU memory: include "
                  "<penstock_ext/interop/torch/torch_cuda.hpp>, which needs a libtorch with CUDA");
    wait_on_host(batch);
    return at::kCPU;
  }
};

template <class T>
[[nodiscard]] consteval at::ScalarType torch_type_of() {
  if constexpr (std::same_as<T, long long>) {
    return at::ScalarType::Long;  // a different type from std::int64_t on most systems
  } else if constexpr (requires { c10::CppTypeToScalarType<T>::value; }) {
    return c10::CppTypeToScalarType<T>::value;
  } else {
    return at::ScalarType::Undefined;
  }
}

}  // namespace detail

/// The libtorch type of `T`. Defined for `bool`, the integers, `float`, `double`, `c10::Half`,
/// `c10::BFloat16`, all other types of `c10::CppTypeToScalarType`, and since libtorch 2.3 wider
/// unsigned integers. `Undefined` for other types. Specialize it for a type with the same
/// representation:
///
///     template <> inline constexpr auto penstock::torch_type<__half> = at::ScalarType::Half;
template <class T>
inline constexpr at::ScalarType torch_type = detail::torch_type_of<T>();

namespace detail {

/// Returns the field as a tensor that holds a handle of the batch. Stream order must already be
/// established. Propagates errors from libtorch. Throws `std::bad_alloc`. After an exception, no
/// handle of the batch remains.
template <name Field, class Batch>
[[nodiscard]] at::Tensor tensor_of(const shared_batch<Batch>& batch, const at::Device& where) {
  using handle = shared_batch<Batch>;
  auto own = std::make_unique<handle>(batch);
  const auto view = own->template get<Field>();
  using view_type = std::remove_const_t<decltype(view)>;
  using element = typename view_type::value_type;
  static_assert(
      requires { view_type::rank; },
      "penstock::torch_tensors: a ragged field is not a tensor, because libtorch has one shape for "
      "all samples; use get<name>(batch).values() and .offsets() in place");
  static_assert(torch_type<element> != at::ScalarType::Undefined,
                "penstock::torch_tensors: libtorch has no element type for this field: unsigned "
                "integers of 16 or more bits need libtorch 2.3; for a type with the same "
                "representation specialize penstock::torch_type");
  const auto sizes = view.shape();
  void* const data = view.data();
  return at::for_blob(data, sizes)
      .context(own.release(), [](void* held) { delete static_cast<handle*>(held); })
      .target_device(where)
      .options(at::TensorOptions{torch_type<element>}.device(where))
      .make_tensor();
}

/// Returns the handle for a batch passed to `torch_tensors`: a copy of a shared batch, or a new
/// handle for a lease.
template <class Batch>
[[nodiscard]] auto handle_for_torch(Batch&& batch) {
  if constexpr (is_shared_batch<std::remove_cvref_t<Batch>>) {
    return std::forward<Batch>(batch);
  } else {
    static_assert(!std::is_lvalue_reference_v<Batch>,
                  "penstock::torch_tensors: the tensors own the batch: pass std::move(batch), or "
                  "the result of penstock::share(std::move(batch))");
    if constexpr (!std::is_lvalue_reference_v<Batch>) return penstock::share(std::move(batch));
  }
}

}  // namespace detail

/// Returns batch fields as libtorch tensors without copying, as a `std::tuple` of `at::Tensor` with
/// one element for each field. The samples are the outermost dimension.
///
///     for (auto& batch : feed.epochs(0, 5)) {
///       auto [image, label] = ps::torch_tensors<"image", "label">(std::move(batch));
///       torch::cross_entropy_loss(net(image), label).backward();
///     }
///
/// `batch` is a lease, which is moved in, or a `shared_batch`, which is copied. The tensors share
/// the lease. The lease ends, and the slot can be refilled, when the last tensor, view or variable
/// saved by autograd is destroyed, on any thread. If a program holds more batches than there are
/// slots, `leases_exhausted` is thrown or the loop waits, depending on `on_slots_exhausted`. The
/// result of `tensor.clone()` does not hold a slot. Tensors may outlive the feed and the loader.
///
/// The tensors have the shape and element type of the record, contiguous strides, and writable slot
/// memory. On the CPU device, the call waits for the copy if the feed has a stream. For GPUs,
/// `penstock_ext/interop/torch/torch_cuda.hpp` establishes stream order.
///
/// In addition to libtorch's own allocations, allocates once for the batch and once for each field.
/// Throws `std::bad_alloc`, errors from libtorch, and exceptions of the stream's work.
template <name... Fields, class Batch>
  requires(sizeof...(Fields) > 0)
[[nodiscard]] auto torch_tensors(Batch&& batch) {
  const auto shared = detail::handle_for_torch(std::forward<Batch>(batch));
  using side = detail::torch_side<typename std::remove_const_t<decltype(shared)>::batch_type>;
  const at::Device where = side::order(shared);
  return std::tuple{detail::tensor_of<Fields>(shared, where)...};
}

/// Returns a batch field as a libtorch tensor (see `torch_tensors`).
template <name Field, class Batch>
[[nodiscard]] at::Tensor torch_tensor(Batch&& batch) {
  return std::get<0>(torch_tensors<Field>(std::forward<Batch>(batch)));
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
