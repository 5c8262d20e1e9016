// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/interop/tensor_dataset.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/extents.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;
namespace dl = penstock::dlpack;

namespace {

/// A tensor of a producer: 24 consecutive numbers, as four samples of 2 x 3. Records the call of
/// the deleter.
struct produced {
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(24);
  std::array<std::int64_t, 3> shape{4, 2, 3};
  std::array<std::int64_t, 3> strides{6, 3, 1};
  int deleted = 0;
  dl::managed_tensor managed{};
  dl::unversioned_tensor unversioned{};

  produced() {
    std::iota(numbers.begin(), numbers.end(), 0);
    managed.version = {1, 0};
    managed.context = this;
    managed.deleter = [](dl::managed_tensor* own) noexcept {
      ++static_cast<produced*>(own->context)->deleted;
    };
    managed.array = {numbers.data(),
                     {dl::device_kind::cpu, 0},
                     3,
                     dl::type_of<std::int32_t>::value,
                     shape.data(),
                     strides.data(),
                     0};
  }
  produced(produced&&) = delete;

  dl::managed_ptr tensor() { return dl::managed_ptr{&managed}; }
  dl::unversioned_ptr old_tensor() {
    unversioned.array = managed.array;
    unversioned.context = this;
    unversioned.deleter = [](dl::unversioned_tensor* own) noexcept {
      ++static_cast<produced*>(own->context)->deleted;
    };
    return dl::unversioned_ptr{&unversioned};
  }
};

using sample_of_six = ps::imported_tensor<std::int32_t, 2, 3>;

std::string rejected(const std::function<void(produced&)>& change) {
  produced source;
  change(source);
  const auto problem =
      test::error_of<ps::dlpack_error>([&] { (void)sample_of_six{source.tensor()}; });
  CHECK(source.deleted == 1);
  const std::string said = problem.what();
  CHECK(said.find("from_dlpack: " + problem.part() + ": expected " + problem.expected() +
                  ", found " + problem.found() + ": ") == 0);
  return problem.part() + ": " + problem.expected() + " / " + problem.found();
}

}  // namespace

TEST_CASE("a tensor is read as samples in place and freed with the last copy", "[interop]") {
  produced source;
  {
    std::optional first{ps::from_dlpack<std::int32_t, 2, 3>(source.tensor())};
    const auto second = *first;
    first.reset();
    CHECK(second.size() == 4);
    CHECK(second.is_contiguous());
    CHECK(second[3].data() == source.numbers.data() + 18);
    CHECK(second[3](1, 2) == 23);
    CHECK(second.flat().data() == source.numbers.data());
    CHECK(second.flat().size() == 24);
    CHECK(source.deleted == 0);
  }
  CHECK(source.deleted == 1);
  { CHECK(ps::from_dlpack<std::int32_t, 2, 3>(source.old_tensor())[1](0, 0) == 6); }
  CHECK(source.deleted == 2);
}

TEST_CASE("dynamic extents come from the tensor", "[interop]") {
  produced source;
  const auto whole = ps::from_dlpack<std::int32_t, ps::dyn, 3>(source.tensor());
  CHECK(whole.extents() == ps::extents<ps::dyn, 3>{2});
  CHECK(whole[2](1, 1) == 16);
}

TEST_CASE("samples may have gaps, negative or zero strides, and an offset", "[interop]") {
  produced source;
  SECTION("every second sample") {
    source.shape[0] = 2;
    source.strides[0] = 12;
    const sample_of_six samples{source.tensor()};
    CHECK(samples[1](0, 0) == 12);
    CHECK(samples.stride_bytes() == 48);
    CHECK_FALSE(samples.is_contiguous());
    const auto problem = test::error_of<ps::dlpack_error>([&] { (void)samples.flat(); });
    CHECK(problem.part() == "strides");
  }
  SECTION("reversed") {
    source.managed.array.byte_offset = 18 * sizeof(std::int32_t);
    source.strides[0] = -6;
    const sample_of_six samples{source.tensor()};
    CHECK(samples[0](0, 0) == 18);
    CHECK(samples[3](1, 2) == 5);
  }
  SECTION("a stride of 0 repeats one sample") {
    source.strides[0] = 0;
    const sample_of_six samples{source.tensor()};
    CHECK(samples[3].data() == source.numbers.data());
  }
  SECTION("a tensor without strides is row-major") {
    source.managed.array.strides = nullptr;
    CHECK(sample_of_six{source.tensor()}[3](1, 2) == 23);
  }
  SECTION("strides of dimensions of length 1 are ignored") {
    source.shape = {1, 2, 3};
    source.strides = {std::numeric_limits<std::int64_t>::max(), 3, 1};
    CHECK(sample_of_six{source.tensor()}.stride_bytes() == 24);
    source.shape = {8, 1, 3};
    source.strides = {3, 77, 1};
    CHECK(ps::imported_tensor<std::int32_t, 1, 3>{source.tensor()}[7](0, 2) == 23);
  }
  SECTION("a tensor without samples may have no address") {
    source.shape[0] = 0;
    source.managed.array.data = nullptr;
    const sample_of_six samples{source.tensor()};
    CHECK(samples.size() == 0);
    CHECK(samples.flat().empty());
  }
  SECTION("pinned host memory is accepted") {
    source.managed.array.where = {dl::device_kind::cuda_host, 0};
    CHECK(sample_of_six{source.tensor()}.size() == 4);
  }
}

TEST_CASE("an unsuitable tensor is rejected with its properties and freed",
          "[interop][fault:files-15]") {
  CHECK(rejected([](auto& of) { of.managed.version = {2, 0}; }) == "version: 1.x / 2.0");
  CHECK(rejected([](auto& of) { of.managed.array.rank = 2; }) == "rank: 3 / 2");
  CHECK(rejected([](auto& of) { of.managed.array.shape = nullptr; }) == "rank: 3 / no shape");
  const auto type = [](dl::data_type of) {
    return rejected([of](auto& to) { to.managed.array.type = of; });
  };
  CHECK(type({dl::type_code::floating, 32, 1}) == "type: int32 / float32");
  CHECK(type({dl::type_code::signed_integer, 64, 1}) == "type: int32 / int64");
  CHECK(type({dl::type_code::signed_integer, 32, 4}) == "type: int32 / int32 x 4 lanes");
  CHECK(type({dl::type_code::boolean, 8, 1}) == "type: int32 / bool");
  CHECK(type({dl::type_code{9}, 8, 1}) == "type: int32 / code 9 of 8 bits");
  const auto place = [](dl::place of) {
    return rejected([of](auto& to) { to.managed.array.where = of; });
  };
  CHECK(place({dl::device_kind::cuda, 1}) == "device: host memory / CUDA device 1");
  CHECK(place({dl::device_kind{15}, 0}) == "device: host memory / device kind 15, device 0");
  const auto shape = [](std::array<std::int64_t, 3> of) {
    return rejected([of](auto& to) { to.shape = of; });
  };
  constexpr auto huge = std::numeric_limits<std::int64_t>::max();
  CHECK(shape({4, 3, 2}) == "shape: [samples, 2, 3] / [4, 3, 2]");
  CHECK(shape({-1, 2, 3}) == "shape: [samples, 2, 3] / [-1, 2, 3]");
  CHECK(shape({huge, 2, 3}).find("shape: ") == 0);
  const auto strides = [](std::array<std::int64_t, 3> of) {
    return rejected([of](auto& to) { to.strides = of; });
  };
  CHECK(strides({6, 1, 2}) == "strides: [any, 3, 1] / [6, 1, 2]");
  CHECK(strides({6, -3, 1}) == "strides: [any, 3, 1] / [6, -3, 1]");
  CHECK(strides({huge, 3, 1}).find("strides: ") == 0);
  CHECK(strides({huge / 8, 3, 1}).find("strides: ") == 0);
  CHECK(rejected([](auto& of) { of.managed.array.data = nullptr; }) ==
        "data: 4 samples / a null pointer");
  CHECK(rejected([](auto& of) {
          of.managed.array.byte_offset = ~std::uint64_t{0};
        }).find("data: ") == 0);
  CHECK(rejected([](auto& of) { of.strides[0] = -(huge / 32); }).find("data: ") == 0);
  CHECK(rejected([](auto& of) { of.managed.array.byte_offset = 2; }) ==
        "alignment: an address that 4 divides / 2 bytes past one");
}

TEST_CASE("a null tensor and a null deleter are handled", "[interop][fault:files-15]") {
  const auto problem =
      test::error_of<ps::dlpack_error>([] { (void)sample_of_six{dl::managed_ptr{}}; });
  CHECK(problem.part() == "tensor");
  CHECK_THROWS_AS(sample_of_six{dl::unversioned_ptr{}}, ps::dlpack_error);
  produced source;
  source.managed.deleter = nullptr;
  CHECK(sample_of_six{source.tensor()}.size() == 4);
}
