// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <penstock/core/version.hpp>

/// @file
/// The structures of DLPack 1 (https://dmlc.github.io/dlpack/latest/). Array libraries such
/// as NumPy, PyTorch, JAX, CuPy, ONNX Runtime and TVM use them to exchange tensors without copying.
/// The structures are declared here, so that the DLPack header is not required. The layout is the
/// same, so a pointer to a `dlpack::managed_tensor` can be converted through `void*` to a pointer
/// to a `DLManagedTensorVersioned`.

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if an imported tensor does not have the expected properties. The tensor's deleter has
/// been called, or is called while the exception propagates.
class [[gnu::visibility("default")]] dlpack_error : public error {
 public:
  /// `where` is the function, followed by the field if there are several.
  dlpack_error(std::string_view where, std::string_view part, std::string expected,
               std::string found, std::string_view advice)
      : error(std::string{where} + ": " + std::string{part} + ": expected " + expected +
              ", found " + found + ": " + std::string{advice}),
        part_(part),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// Returns the mismatched property: "tensor" (missing), "version", "rank", "type", "device",
  /// "shape", "strides", "data" or "alignment".
  [[nodiscard]] const std::string& part() const noexcept { return part_; }
  /// Returns the expected value of the property.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// Returns the actual value of the property.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string part_;
  std::string expected_;
  std::string found_;
};

/// The DLPack structures under this library's names.
namespace dlpack {

/// Supported major version, which changes with the layout. The minor version changes with the
/// permitted values. Since 1.2, strides are always present.
inline constexpr std::uint32_t layout_version = 1;
/// Supported minor version.
inline constexpr std::uint32_t feature_version = 2;

/// A DLPack version.
struct version_numbers {
  std::uint32_t layout;   ///< major version; if unknown, only the deleter may be used
  std::uint32_t feature;  ///< minor version; may add device kinds and element types
};

/// Kinds of memory (incomplete).
enum class device_kind : std::int32_t {
  cpu = 1,           ///< ordinary host memory
  cuda = 2,          ///< CUDA device memory
  cuda_host = 3,     ///< host memory page-locked by CUDA
  rocm = 10,         ///< ROCm device memory
  rocm_host = 11,    ///< host memory page-locked by ROCm
  cuda_managed = 13  ///< CUDA managed memory
};

/// A memory location.
struct place {
  device_kind kind;    ///< kind of memory
  std::int32_t index;  ///< device ordinal in its runtime; 0 for host memory
  friend bool operator==(const place&, const place&) = default;
};

/// Kinds of numbers (incomplete).
enum class type_code : std::uint8_t {
  signed_integer = 0,    ///< int8_t to int64_t
  unsigned_integer = 1,  ///< uint8_t to uint64_t
  floating = 2,          ///< IEEE 754: half, float, double
  bfloat = 4,            ///< upper half of a float
  boolean = 6            ///< a byte that is 0 or 1
};

/// Element type.
struct data_type {
  type_code code;       ///< kind of number
  std::uint8_t bits;    ///< number of bits in a lane
  std::uint16_t lanes;  ///< number of lanes, 1 except for vector types
  friend bool operator==(const data_type&, const data_type&) = default;
};

/// A non-owning tensor of `rank` dimensions, outermost first.
struct tensor {
  void* data;                 ///< null if the tensor has no elements
  place where;                ///< memory location
  std::int32_t rank;          ///< number of dimensions
  data_type type;             ///< element type
  std::int64_t* shape;        ///< dimensions
  std::int64_t* strides;      ///< strides in elements; before 1.2, null means row-major
  std::uint64_t byte_offset;  ///< byte offset of the first element from `data`
};

/// A tensor with its owner. The owner calls the deleter exactly once, on any thread.
struct managed_tensor {
  version_numbers version;           ///< must be checked before other members are read
  void* context;                     ///< private data of the producer
  void (*deleter)(managed_tensor*);  ///< frees the tensor and this structure; may be null
  std::uint64_t flags;               ///< `flag_read_only` and others
  tensor array;                      ///< the tensor
};
/// A bit in `managed_tensor::flags`: the consumer must not write.
inline constexpr std::uint64_t flag_read_only = 1;
/// A bit in `managed_tensor::flags`: the tensor is a copy without other users.
inline constexpr std::uint64_t flag_copied = 2;

/// The structure before version 1, without version and flags. Many consumers support only this
/// structure.
struct unversioned_tensor {
  tensor array;                          ///< the tensor
  void* context;                         ///< private data of the producer
  void (*deleter)(unversioned_tensor*);  ///< frees the tensor and this structure; may be null
};

/// A deleter that calls the tensor's own deleter, if any.
struct delete_managed {
  /// Deletes `managed`, which must not be null.
  template <class Managed>
  void operator()(Managed* managed) const noexcept {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};
/// Owns a managed tensor. `release()` transfers ownership to a capsule or C interface:
/// `static_cast<DLManagedTensorVersioned*>(static_cast<void*>(tensor.release()))`.
using managed_ptr = std::unique_ptr<managed_tensor, delete_managed>;
/// Owns a managed tensor of the unversioned layout.
using unversioned_ptr = std::unique_ptr<unversioned_tensor, delete_managed>;

// Checks that the structures have the C layout of dlpack.h.
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

/// The DLPack type of `T`, defined for bool, integers, float, double and `std::byte`. Programs may
/// specialize it for other types:
///
///     template <>
///     struct ps::dlpack::type_of<__half> {
///       static constexpr data_type value{type_code::floating, 16, 1};
///     };
template <class T>
struct type_of {};

/// Specialization for `std::int8_t` to `std::uint64_t`, and other integers of the same sizes.
template <std::integral T>
struct type_of<T> {
  /// The DLPack type.
  static constexpr data_type value{
      std::signed_integral<T> ? type_code::signed_integer : type_code::unsigned_integer,
      8 * sizeof(T), 1};
};
/// Specialization for bool, a byte of 0 or 1.
template <>
struct type_of<bool> {
  /// The DLPack type.
  static constexpr data_type value{type_code::boolean, 8, 1};
};
/// Specialization for float and double.
template <class T>
  requires std::same_as<T, float> || std::same_as<T, double>
struct type_of<T> {
  /// The DLPack type.
  static constexpr data_type value{type_code::floating, 8 * sizeof(T), 1};
};
/// Specialization for std::byte, an unsigned 8-bit integer.
template <>
struct type_of<std::byte> {
  /// The DLPack type.
  static constexpr data_type value{type_code::unsigned_integer, 8, 1};
};

/// A type that has a corresponding DLPack data type (see `type_of`).
template <class T>
concept element = requires {
  { type_of<T>::value } -> std::convertible_to<data_type>;
  requires std::size_t { type_of<T>::value.bits }
  *type_of<T>::value.lanes == 8 * sizeof(T);
};

/// Formats a type in the notation of array libraries, such as "float32", "uint8", "bool",
/// "bfloat16" or "int32 x 4 lanes". Formats an unknown code as "code 9 of 8 bits".
[[nodiscard]] inline std::string to_string(const data_type& type) {
  const std::string bits = std::to_string(type.bits);
  const std::string lanes =
      type.lanes == 1 ? std::string{} : " x " + std::to_string(type.lanes) + " lanes";
  switch (type.code) {
    case type_code::signed_integer:
      return "int" + bits + lanes;
    case type_code::unsigned_integer:
      return "uint" + bits + lanes;
    case type_code::floating:
      return "float" + bits + lanes;
    case type_code::bfloat:
      return "bfloat" + bits + lanes;
    case type_code::boolean:
      return (type.bits == 8 ? "bool" : "bool of " + bits + " bits") + lanes;
  }
  return "code " + std::to_string(static_cast<int>(type.code)) + " of " + bits + " bits" + lanes;
}

/// Formats a location, such as "host memory", "CUDA device 1" or "page-locked memory (CUDA)".
/// Formats an unknown kind as "device kind 15, device 0".
[[nodiscard]] inline std::string to_string(const place& where) {
  const std::string index = std::to_string(where.index);
  switch (where.kind) {
    case device_kind::cpu:
      return "host memory";
    case device_kind::cuda:
      return "CUDA device " + index;
    case device_kind::cuda_host:
      return "page-locked memory (CUDA)";
    case device_kind::rocm:
      return "ROCm device " + index;
    case device_kind::rocm_host:
      return "page-locked memory (ROCm)";
    case device_kind::cuda_managed:
      return "managed memory (CUDA)";
  }
  return "device kind " + std::to_string(static_cast<int>(where.kind)) + ", device " + index;
}

}  // namespace dlpack
}  // namespace PENSTOCK_ABI
}  // namespace penstock
