// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/interop/dlpack_abi.hpp>

#include <cstddef>
#include <cstdint>

#include "support/catch.hpp"

namespace dl = penstock::dlpack;

namespace {

/// The structures and constants of the DLPack specification (1.x), in the original order and with
/// the original names.
struct spec {
  struct DLPackVersion {
    std::uint32_t major_number, minor_number;
  };
  struct DLDevice {
    std::int32_t device_type, device_id;
  };
  struct DLDataType {
    std::uint8_t code, bits;
    std::uint16_t lanes;
  };
  struct DLTensor {
    void* data;
    DLDevice device;
    std::int32_t ndim;
    DLDataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
  };
  struct DLManagedTensor {
    DLTensor dl_tensor;
    void* manager_ctx;
    void (*deleter)(DLManagedTensor*);
  };
  struct DLManagedTensorVersioned {
    DLPackVersion version;
    void* manager_ctx;
    void (*deleter)(DLManagedTensorVersioned*);
    std::uint64_t flags;
    DLTensor dl_tensor;
  };
  enum devices { kDLCPU = 1, kDLCUDA, kDLCUDAHost, kDLROCM = 10, kDLROCMHost, kDLCUDAManaged = 13 };
  enum types { kDLInt, kDLUInt, kDLFloat, kDLOpaqueHandle, kDLBfloat, kDLComplex, kDLBool };
};

/// True if both types have equal size and alignment.
template <class Ours, class Theirs>
constexpr bool is_like = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

static_assert(is_like<dl::version_numbers, spec::DLPackVersion>);
static_assert(offsetof(dl::version_numbers, feature) ==
              offsetof(spec::DLPackVersion, minor_number));
static_assert(is_like<dl::place, spec::DLDevice>);
static_assert(offsetof(dl::place, index) == offsetof(spec::DLDevice, device_id));
static_assert(is_like<dl::data_type, spec::DLDataType>);
static_assert(offsetof(dl::data_type, bits) == offsetof(spec::DLDataType, bits));
static_assert(offsetof(dl::data_type, lanes) == offsetof(spec::DLDataType, lanes));
static_assert(is_like<dl::tensor, spec::DLTensor>);
static_assert(offsetof(dl::tensor, where) == offsetof(spec::DLTensor, device));
static_assert(offsetof(dl::tensor, rank) == offsetof(spec::DLTensor, ndim));
static_assert(offsetof(dl::tensor, type) == offsetof(spec::DLTensor, dtype));
static_assert(offsetof(dl::tensor, shape) == offsetof(spec::DLTensor, shape));
static_assert(offsetof(dl::tensor, strides) == offsetof(spec::DLTensor, strides));
static_assert(offsetof(dl::tensor, byte_offset) == offsetof(spec::DLTensor, byte_offset));
static_assert(is_like<dl::unversioned_tensor, spec::DLManagedTensor>);
static_assert(offsetof(dl::unversioned_tensor, context) ==
              offsetof(spec::DLManagedTensor, manager_ctx));
static_assert(offsetof(dl::unversioned_tensor, deleter) ==
              offsetof(spec::DLManagedTensor, deleter));
static_assert(is_like<dl::managed_tensor, spec::DLManagedTensorVersioned>);
static_assert(offsetof(dl::managed_tensor, context) ==
              offsetof(spec::DLManagedTensorVersioned, manager_ctx));
static_assert(offsetof(dl::managed_tensor, deleter) ==
              offsetof(spec::DLManagedTensorVersioned, deleter));
static_assert(offsetof(dl::managed_tensor, flags) ==
              offsetof(spec::DLManagedTensorVersioned, flags));
static_assert(offsetof(dl::managed_tensor, array) ==
              offsetof(spec::DLManagedTensorVersioned, dl_tensor));

static_assert(static_cast<int>(dl::device_kind::cpu) == spec::kDLCPU &&
              static_cast<int>(dl::device_kind::cuda) == spec::kDLCUDA &&
              static_cast<int>(dl::device_kind::cuda_host) == spec::kDLCUDAHost &&
              static_cast<int>(dl::device_kind::rocm) == spec::kDLROCM &&
              static_cast<int>(dl::device_kind::rocm_host) == spec::kDLROCMHost &&
              static_cast<int>(dl::device_kind::cuda_managed) == spec::kDLCUDAManaged);
static_assert(static_cast<int>(dl::type_code::signed_integer) == spec::kDLInt &&
              static_cast<int>(dl::type_code::unsigned_integer) == spec::kDLUInt &&
              static_cast<int>(dl::type_code::floating) == spec::kDLFloat &&
              static_cast<int>(dl::type_code::bfloat) == spec::kDLBfloat &&
              static_cast<int>(dl::type_code::boolean) == spec::kDLBool);
static_assert(dl::layout_version == 1 && dl::flag_read_only == 1U << 0 &&
              dl::flag_copied == 1U << 1);

}  // namespace

TEST_CASE("the owner of a managed tensor calls its deleter once, if it has one", "[interop]") {
  static int calls = 0;
  calls = 0;
  dl::managed_tensor versioned{};
  versioned.deleter = [](dl::managed_tensor*) { ++calls; };
  { const dl::managed_ptr owner{&versioned}; }
  CHECK(calls == 1);
  dl::unversioned_tensor older{};
  older.deleter = [](dl::unversioned_tensor*) { ++calls; };
  { const dl::unversioned_ptr owner{&older}; }
  CHECK(calls == 2);
  versioned.deleter = nullptr;
  { const dl::managed_ptr owner{&versioned}; }
  CHECK(calls == 2);
}
