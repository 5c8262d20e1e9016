// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/interop/tensor_dataset.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/interop/to_dlpack.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;
namespace dl = penstock::dlpack;

namespace {

/// A tensor that owns its values. The tensor has strides unless it is dense.
template <class T>
struct made_tensor {
  std::vector<T> numbers;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::shared_ptr<int> freed;
  dl::managed_tensor managed{};

  static dl::managed_ptr make(std::vector<T> numbers, std::vector<std::int64_t> shape,
                              std::vector<std::int64_t> strides, std::shared_ptr<int> freed = {}) {
    auto* own =
        new made_tensor{std::move(numbers), std::move(shape), std::move(strides), std::move(freed)};
    own->managed = {{1, 0}, own, &destroy, 0, {}};
    own->managed.array = {own->numbers.data(),
                          {dl::device_kind::cpu, 0},
                          static_cast<std::int32_t>(own->shape.size()),
                          dl::type_of<T>::value,
                          own->shape.data(),
                          own->strides.empty() ? nullptr : own->strides.data(),
                          0};
    return dl::managed_ptr{&own->managed};
  }
  static void destroy(dl::managed_tensor* managed) {
    const std::unique_ptr<made_tensor> own{static_cast<made_tensor*>(managed->context)};
    if (own->freed != nullptr) ++*own->freed;
  }
};

using points = ps::record<ps::field<"x", float, ps::dyn>, ps::field<"y", std::int64_t>>;

/// Returns ten points. In x, every second pair of consecutive values is a sample; y is the sample
/// number.
ps::tensor_dataset<points> ten_points(const std::shared_ptr<int>& freed = {}) {
  std::vector<float> x(40);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  std::vector<std::int64_t> y(10);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int64_t>(i);
  return ps::tensor_dataset<points>{made_tensor<float>::make(std::move(x), {10, 2}, {4, 1}, freed),
                                    ps::from_dlpack<std::int64_t>(made_tensor<std::int64_t>::make(
                                        std::move(y), {10}, {}, freed))};
}

}  // namespace

TEST_CASE("a tensor dataset provides samples in place, even with strides", "[interop]") {
  const auto data = ten_points();
  CHECK(data.size() == 10);
  CHECK(data.extents().at<0>()[0] == 2);
  const auto seventh = data.view(7);
  CHECK(ps::get<"x">(seventh)(1) == 29.0F);
  CHECK(ps::get<"y">(seventh) == 7);
  auto batch = test::read_batch(data, {9, 0, 3});
  CHECK(test::values<"x">(std::move(batch)) == std::vector<float>{36, 37, 0, 1, 12, 13});
  CHECK_THROWS_AS(data.view(10), ps::index_error);
  data.prefetch(10);  // out of range, so nothing happens
}

TEST_CASE("a loader over a tensor dataset owns the tensors, with every copy", "[interop]") {
  const auto freed = std::make_shared<int>(0);
  {
    auto data = std::make_unique<ps::tensor_dataset<points>>(ten_points(freed));
    ps::loader loader{ps::tensor_dataset{*data}, ps::sequential{}, {.batch_size = 5, .workers = 2}};
    data.reset();
    CHECK(*freed == 0);
    std::int64_t next = 0;
    for (auto& batch : loader.epochs(0, 2)) {
      for (std::size_t i = 0; i < batch.size(); ++i, ++next) {
        CHECK(ps::get<"y">(batch)(i) == next % 10);
        CHECK(ps::get<"x">(batch)(i, 1) == static_cast<float>(next % 10 * 4 + 1));
      }
    }
    CHECK(next == 20);
  }
  CHECK(*freed == 2);
}

TEST_CASE("a batch exported as tensors can be imported as a dataset in the same memory",
          "[interop]") {
  ps::loader loader{numbered{10}, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  for (auto& lease : loader.epoch(0)) {
    const auto batch = ps::share(std::move(lease));
    const ps::tensor_dataset<numbered::record_type> data{ps::to_dlpack<"values">(batch),
                                                         ps::to_dlpack_unversioned<"label">(batch)};
    CHECK(data.size() == 10);
    CHECK(ps::get<"values">(data.view(6)).data() == ps::get<"values">(batch)[6].data());
    CHECK(ps::get<"label">(data.view(6)) == 6);
    // A non-owning memory dataset can use the values of a tensor.
    const auto labels = ps::from_dlpack<std::uint64_t>(ps::to_dlpack<"label">(batch));
    using label_alone = ps::record<ps::field<"label", std::uint64_t>>;
    const ps::memory_dataset<label_alone> borrowed{labels.flat()};
    CHECK(&ps::get<"label">(borrowed.view(9)) == &ps::get<"label">(batch)(9));
  }
}

TEST_CASE("tensors that do not fit their fields are rejected by the field's name, and freed",
          "[interop][fault:files-15]") {
  const auto freed = std::make_shared<int>(0);
  const auto x = [&] { return made_tensor<float>::make(std::vector<float>(8), {4, 2}, {}, freed); };
  const auto y = [&](std::size_t size) {
    return made_tensor<std::int64_t>::make(std::vector<std::int64_t>(size),
                                           {static_cast<std::int64_t>(size)}, {}, freed);
  };
  const auto short_one =
      test::error_of<ps::dlpack_error>([&] { (void)ps::tensor_dataset<points>{x(), y(3)}; });
  CHECK(std::string{short_one.what()}.find(
            "tensor_dataset: field \"y\": shape: expected 4 samples, found 3: ") == 0);
  CHECK(*freed == 2);
  const auto wrong_type =
      test::error_of<ps::dlpack_error>([&] { (void)ps::tensor_dataset<points>{x(), x()}; });
  CHECK(wrong_type.part() == "rank");
  CHECK(std::string{wrong_type.what()}.find("tensor_dataset: field \"y\": ") == 0);
  CHECK(*freed == 4);
  {
    const ps::tensor_dataset<points> empty{made_tensor<float>::make({}, {0, 2}, {}, freed), y(0)};
    CHECK(empty.size() == 0);
  }
  CHECK(*freed == 6);
}
