// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/interop/dlpack_abi.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

#include "support/catch.hpp"

namespace ps = penstock;
namespace dl = penstock::dlpack;

namespace {

/// A type for which the test has declared a DLPack type of the wrong size.
struct half_reported {
  std::uint32_t bits;
};
struct unknown_number {};

static_assert(dl::element<bool> && dl::element<std::byte> && dl::element<double>);
static_assert(dl::element<long> && dl::element<unsigned long long>);
static_assert(!dl::element<unknown_number> && !dl::element<long double>);

}  // namespace

template <>
struct penstock::dlpack::type_of<half_reported> {
  static constexpr data_type value{type_code::floating, 16, 1};
};
static_assert(!dl::element<half_reported>, "a word for 16 bits of a type that has 32");

TEST_CASE("element types have the names that array libraries use", "[interop]") {
  CHECK(dl::to_string(dl::type_of<bool>::value) == "bool");
  CHECK(dl::to_string(dl::type_of<std::byte>::value) == "uint8");
  CHECK(dl::to_string(dl::type_of<std::int16_t>::value) == "int16");
  CHECK(dl::to_string(dl::type_of<std::uint64_t>::value) == "uint64");
  CHECK(dl::to_string(dl::type_of<float>::value) == "float32");
  CHECK(dl::to_string(dl::type_of<double>::value) == "float64");
  CHECK(dl::to_string({dl::type_code::bfloat, 16, 1}) == "bfloat16");
  CHECK(dl::to_string({dl::type_code::boolean, 1, 1}) == "bool of 1 bits");
  CHECK(dl::to_string({dl::type_code::signed_integer, 32, 4}) == "int32 x 4 lanes");
  CHECK(dl::to_string(dl::data_type{dl::type_code{5}, 64, 1}) == "code 5 of 64 bits");
}

TEST_CASE("device names include an index if there are several devices", "[interop]") {
  using kind = dl::device_kind;
  CHECK(dl::to_string(dl::place{kind::cpu, 0}) == "host memory");
  CHECK(dl::to_string(dl::place{kind::cuda, 3}) == "CUDA device 3");
  CHECK(dl::to_string(dl::place{kind::cuda_host, 0}) == "page-locked memory (CUDA)");
  CHECK(dl::to_string(dl::place{kind::cuda_managed, 0}) == "managed memory (CUDA)");
  CHECK(dl::to_string(dl::place{kind::rocm, 1}) == "ROCm device 1");
  CHECK(dl::to_string(dl::place{kind::rocm_host, 0}) == "page-locked memory (ROCm)");
  CHECK(dl::to_string(dl::place{kind{7}, 2}) == "device kind 7, device 2");
}

TEST_CASE("a tensor error reports the place, the expected and found values, and a remedy",
          "[interop]") {
  const ps::dlpack_error problem{"from_dlpack: field \"x\"", "type", "float32", "int64",
                                 "convert the tensor"};
  CHECK(std::string{problem.what()} ==
        "from_dlpack: field \"x\": type: expected float32, found int64: convert the tensor");
  CHECK(problem.part() == "type");
  CHECK(problem.expected() == "float32");
  CHECK(problem.found() == "int64");
}
