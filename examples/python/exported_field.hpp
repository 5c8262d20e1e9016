// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <penstock_ext/interop/to_dlpack.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace nb = nanobind;
namespace ps = penstock;

/// Wraps a DLPack tensor in the capsule that Python passes around. The consumer renames the
/// capsule, so a capsule with the original name still owns its tensor.
template <class Managed>
nb::object capsule_of(std::unique_ptr<Managed, ps::dlpack::delete_managed> tensor) {
  static constexpr const char* name =
      std::same_as<Managed, ps::dlpack::managed_tensor> ? "dltensor_versioned" : "dltensor";
  PyObject* capsule = PyCapsule_New(tensor.get(), name, [](PyObject* self) {
    if (PyCapsule_IsValid(self, name) == 0) return;
    ps::dlpack::delete_managed{}(static_cast<Managed*>(PyCapsule_GetPointer(self, name)));
  });
  if (capsule == nullptr) throw nb::python_error();
  (void)tensor.release();
  return nb::steal(capsule);
}

/// A lease of GPU memory.
template <class Batch>
concept gpu_lease = requires(const Batch& batch) {
  batch.stream();
  batch.device().ordinal();
};

/// A field of a batch for Python. `numpy.from_dlpack` and similar functions accept the object any
/// number of times and do not copy. The object and all arrays made from it share the lease of the
/// batch. Any thread may destroy the last of these objects, with or without the GIL.
///
/// The class is necessary because the array types of the binding library leave stream ordering to
/// the user.
template <class Batch>
class exported_field {
  using place = std::pair<int, int>;  // device type and device index

 public:
  /// Returns the field `Name` of `batch`.
  template <ps::name Name>
  static exported_field of(const ps::shared_batch<Batch>& batch) {
    exported_field made;
    made.batch_ = batch;
    made.current_ = [](const auto& shared) { return ps::to_dlpack<Name>(shared); };
    made.older_ = [](const auto& shared) { return ps::to_dlpack_unversioned<Name>(shared); };
    return made;
  }

  /// Implements `__dlpack_device__()`.
  [[nodiscard]] place device() const {
    const auto where = current_(batch_)->array.where;
    return {static_cast<int>(where.kind), static_cast<int>(where.index)};
  }

  /// Implements `__dlpack__(stream, max_version, dl_device, copy)` of the Python array API. Makes
  /// the consumer's stream wait for the copy of the batch. The slot is reused only after the work
  /// on this stream.
  [[nodiscard]] nb::object dlpack(const nb::object& stream, std::optional<place> max_version,
                                  std::optional<place> dl_device, std::optional<bool> copy) const {
    if (copy.value_or(false)) {
      throw nb::buffer_error("__dlpack__: makes no copy: copy what from_dlpack gives");
    }
    if (dl_device && *dl_device != device()) {
      throw nb::buffer_error("__dlpack__: copies to no other device: copy what from_dlpack gives");
    }
    order(stream);
    if (max_version && max_version->first >= 1) return capsule_of(current_(batch_));
    return capsule_of(older_(batch_));
  }

  /// Defines the Python class.
  static void bind(nb::module_& module, const char* name) {
    nb::class_<exported_field>(module, name)
        .def("__dlpack__", &exported_field::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
             nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
             nb::arg("copy") = nb::none())
        .def("__dlpack_device__", &exported_field::device);
  }

 private:
  void order(const nb::object& stream) const {
    if constexpr (gpu_lease<Batch>) {
      using native = decltype(batch_.stream().get());
      // None is the legacy default stream, 1 and 2 are CUDA's two default streams, -1 requests no
      // wait, and 0 is ambiguous.
      const auto number = stream.is_none() ? std::intptr_t{1} : nb::cast<std::intptr_t>(stream);
      if (number == 0) throw nb::value_error("__dlpack__: stream 0 is ambiguous: 1, 2 or a stream");
      if (number > 0) batch_.also_used_on(reinterpret_cast<native>(number));
    } else if (!stream.is_none()) {
      throw nb::value_error("__dlpack__: memory of the host has no stream: leave it None");
    }
  }

  using batch_type = ps::shared_batch<Batch>;
  batch_type batch_;
  ps::dlpack::managed_ptr (*current_)(const batch_type&) = nullptr;
  ps::dlpack::unversioned_ptr (*older_)(const batch_type&) = nullptr;
};
