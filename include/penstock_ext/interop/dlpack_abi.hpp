// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <penstock/core/version.hpp>

/// @file
/// The structures of DLPack 1 (https://dmlc.github.io/dlpack/latest/), by which array libraries
/// hand each other tensors without a copy: numpy, PyTorch, JAX, CuPy, ONNX Runtime, TVM. Written
/// down here so that no header of DLPack's is needed. The layout is the C one: a pointer to a
/// `dlpack::managed_tensor` is a pointer to a `DLManagedTensorVersioned`, by way of `void*`.

namespace penstock {
inline namespace PENSTOCK_ABI {

/// DLPack's structures, under names of our own.
namespace dlpack {

/// The version that is written here: the first number changes with the layout, the second with
/// what may stand in it. From 1.2 on strides are never left out.
inline constexpr std::uint32_t layout_version = 1;
/// The second number.
inline constexpr std::uint32_t feature_version = 2;

/// A version of DLPack.
struct version_numbers {
  std::uint32_t layout;   ///< another one is another layout, of which only the deleter is known
  std::uint32_t feature;  ///< another one has other device kinds and element types
};

/// Kinds of memory. Others than these exist.
enum class device_kind : std::int32_t {
  cpu = 1,           ///< ordinary memory
  cuda = 2,          ///< of a GPU, by CUDA
  cuda_host = 3,     ///< page-locked by CUDA
  rocm = 10,         ///< of a GPU, by ROCm
  rocm_host = 11,    ///< page-locked by ROCm
  cuda_managed = 13  ///< CUDA's managed memory
};

/// Where memory is.
struct place {
  device_kind kind;    ///< of which kind
  std::int32_t index;  ///< which of the devices, as their library counts; 0 for host memory
  friend bool operator==(const place&, const place&) = default;
};

/// Kinds of numbers. Others than these exist.
enum class type_code : std::uint8_t {
  signed_integer = 0,    ///< int8_t to int64_t
  unsigned_integer = 1,  ///< uint8_t to uint64_t
  floating = 2,          ///< of IEEE 754: half, float, double
  bfloat = 4,            ///< a float's upper half
  boolean = 6            ///< a byte that is 0 or 1
};

/// What an element is.
struct data_type {
  type_code code;       ///< which kind of number
  std::uint8_t bits;    ///< of one lane
  std::uint16_t lanes;  ///< 1 but for vector types
  friend bool operator==(const data_type&, const data_type&) = default;
};

/// A tensor that someone else owns: `rank` dimensions, the outermost first.
struct tensor {
  void* data;                 ///< null where the tensor has no element
  place where;                ///< the memory
  std::int32_t rank;          ///< how many dimensions
  data_type type;             ///< of an element
  std::int64_t* shape;        ///< lengths
  std::int64_t* strides;      ///< in elements; null for row-major, before version 1.2
  std::uint64_t byte_offset;  ///< from `data` to the first element
};

/// A tensor with its owner: whoever holds it calls the deleter once, on any thread.
struct managed_tensor {
  version_numbers version;           ///< looked at before anything else
  void* context;                     ///< the producer's
  void (*deleter)(managed_tensor*);  ///< frees the structure too; may be null
  std::uint64_t flags;               ///< `flag_read_only` and the like
  tensor array;                      ///< what is owned
};
/// In `managed_tensor::flags`: the consumer must not write.
inline constexpr std::uint64_t flag_read_only = 1;
/// In `managed_tensor::flags`: a copy that is the consumer's alone.
inline constexpr std::uint64_t flag_copied = 2;

/// A tensor with its owner as it was before version 1: without version and flags. Many consumers
/// take this one only.
struct unversioned_tensor {
  tensor array;                          ///< what is owned
  void* context;                         ///< the producer's
  void (*deleter)(unversioned_tensor*);  ///< frees the structure too; may be null
};

/// Calls the deleter of a managed tensor, if it has one.
struct delete_managed {
  /// Frees a tensor that is not null.
  template <class Managed>
  void operator()(Managed* managed) const noexcept {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};
/// Owns a managed tensor. `release()` gives the pointer away, for a capsule or a C interface:
/// `static_cast<DLManagedTensorVersioned*>(static_cast<void*>(tensor.release()))`.
using managed_ptr = std::unique_ptr<managed_tensor, delete_managed>;
/// Owns a managed tensor of the older layout.
using unversioned_ptr = std::unique_ptr<unversioned_tensor, delete_managed>;

// What the C compiler makes of dlpack.h.
static_assert(sizeof(place) == 8 && sizeof(data_type) == 4 && sizeof(version_numbers) == 8);
static_assert(std::is_standard_layout_v<managed_tensor> &&
              std::is_trivially_copyable_v<managed_tensor>);
static_assert(sizeof(void*) != 8 ||
              (sizeof(tensor) == 48 && offsetof(tensor, where) == 8 &&
               offsetof(tensor, rank) == 16 && offsetof(tensor, type) == 20 &&
               offsetof(tensor, shape) == 24 && offsetof(tensor, strides) == 32 &&
               offsetof(tensor, byte_offset) == 40));
static_assert(sizeof(void*) != 8 ||
              (sizeof(managed_tensor) == 80 && offsetof(managed_tensor, context) == 8 &&
               offsetof(managed_tensor, deleter) == 16 && offsetof(managed_tensor, flags) == 24 &&
               offsetof(managed_tensor, array) == 32));
static_assert(sizeof(void*) != 8 ||
              (sizeof(unversioned_tensor) == 64 && offsetof(unversioned_tensor, context) == 48 &&
               offsetof(unversioned_tensor, deleter) == 56));

}  // namespace dlpack
}  // namespace PENSTOCK_ABI
}  // namespace penstock
