// SPDX-License-Identifier: BSL-1.0
// Tests libtorch tensors that own their batch. The values and the slot must remain valid as long as
// any tensor or view of the batch exists, and no longer.
#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

// Defines macros of system headers and Qt that must not break penstock's headers.
#define small \
  penstock:   \
  the macro small
#define major \
  penstock:   \
  the macro major
#define minor \
  penstock:   \
  the macro minor
#define min(a, b) \
  penstock:       \
  the macro min
#define max(a, b) \
  penstock:       \
  the macro max
#define slots \
  penstock:   \
  the macro slots
#define signals \
  penstock:     \
  the macro signals
#define emit \
  penstock:  \
  the macro emit
#include <penstock_ext/interop/torch/torch.hpp>
#undef small
#undef major
#undef minor
#undef min
#undef max
#undef slots
#undef signals
#undef emit

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/gated_device.hpp"

// libtorch defines a macro of this name that terminates the program. The next lines restore the
// macro of the tests.
#undef CHECK
#define CHECK(...) \
  INTERNAL_CATCH_TEST("CHECK", Catch::ResultDisposition::ContinueOnFailure, __VA_ARGS__)

namespace ps = penstock;

namespace {

/// A record with a field of every element type that libtorch supports since 1.13, and a run-time
/// extent.
struct every_type {
  using record_type = ps::record<ps::field<"bool", bool>, ps::field<"u8", std::uint8_t, 2, 3>,
                                 ps::field<"i8", std::int8_t>, ps::field<"i16", std::int16_t, 2>,
                                 ps::field<"i32", std::int32_t>, ps::field<"i64", std::int64_t>,
                                 ps::field<"long_long", long long>, ps::field<"f16", c10::Half>,
                                 ps::field<"bf16", c10::BFloat16>,
                                 ps::field<"f32", float, ps::dyn, 2>, ps::field<"f64", double>>;
  [[nodiscard]] std::uint64_t size() const { return 10; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{}, {}, {}, {}, {}, {}, {}, {}, {}, {4}, {}};
  }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const auto value = static_cast<float>(index);
    ps::get<"bool">(out) = index % 2 == 1;
    for (auto& x : ps::get<"u8">(out).flat()) x = static_cast<std::uint8_t>(index);
    ps::get<"u8">(out)(1, 2) = 200;
    ps::get<"i8">(out) = static_cast<std::int8_t>(-static_cast<int>(index));
    for (auto& x : ps::get<"i16">(out).flat()) x = static_cast<std::int16_t>(-300);
    ps::get<"i32">(out) = static_cast<std::int32_t>(index) - 100'000;
    ps::get<"i64">(out) = (std::int64_t{1} << 40) + static_cast<std::int64_t>(index);
    ps::get<"long_long">(out) = -(1LL << 40);
    ps::get<"f16">(out) = c10::Half{value / 4.0F};
    ps::get<"bf16">(out) = c10::BFloat16{value / 2.0F};
    for (float& x : ps::get<"f32">(out).flat()) x = value;
    ps::get<"f32">(out)(3, 1) = -value;
    ps::get<"f64">(out) = static_cast<double>(index) / 1024;
  }
};

/// A dataset of images and floats. Every byte of an image identifies the sample. A checked build
/// can mark released floats, but not released bytes.
struct reported {
  using record_type = ps::record<ps::field<"image", std::uint8_t, 8>, ps::field<"x", float, 4>>;
  std::uint64_t count = 100;
  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    for (auto& pixel : ps::get<"image">(out).flat()) pixel = static_cast<std::uint8_t>(index);
    for (float& x : ps::get<"x">(out).flat()) x = static_cast<float>(index);
  }
};

/// Returns a loader of two-sample batches, three of which the consumer may hold.
auto three_of_two(ps::exhausted_action on_slots_exhausted = ps::exhausted_action::fail) {
  return ps::loader{
      reported{},
      ps::sequential{},
      {.batch_size = 2, .workers = 1, .prefetch = 2, .on_slots_exhausted = on_slots_exhausted}};
}

/// Returns the first value in the tensor of batch `number`.
double first_of(std::uint64_t number) { return static_cast<double>(2 * number); }

double first_value(const at::Tensor& tensor) { return tensor.flatten()[0].item<double>(); }

/// Returns a leaf tensor for autograd with the size of the field, to multiply with batches.
at::Tensor weight() { return at::ones({4}).requires_grad_(true); }

}  // namespace

TEST_CASE("a tensor has the record's shape and element type and the batch's values", "[torch]") {
  static_assert(ps::torch_type<float> == at::kFloat && ps::torch_type<long long> == at::kLong);
  static_assert(ps::torch_type<void*> == at::ScalarType::Undefined);
  ps::loader loader{every_type{}, ps::sequential{}, {.batch_size = 4}};
  for (auto& batch : loader.epoch(0)) {
    const auto count = static_cast<std::int64_t>(batch.size());
    const auto first = 4 * batch.number();
    const void* const data = ps::get<"u8">(batch).data();
    const auto [flag, u8, i8, i16, i32, i64, long_long, f16, bf16, f32, f64] =
        ps::torch_tensors<"bool", "u8", "i8", "i16", "i32", "i64", "long_long", "f16", "bf16",
                          "f32", "f64">(std::move(batch));
    const auto has = [count](const at::Tensor& tensor, at::ScalarType type,
                             std::vector<std::int64_t> shape) {
      shape.insert(shape.begin(), count);
      CHECK(tensor.scalar_type() == type);
      CHECK(tensor.sizes() == at::IntArrayRef{shape});
      CHECK(tensor.is_contiguous());
      CHECK(tensor.device() == at::Device{at::kCPU});
    };
    has(flag, at::kBool, {});
    has(u8, at::kByte, {2, 3});
    has(i8, at::kChar, {});
    has(i16, at::kShort, {2});
    has(i32, at::kInt, {});
    has(i64, at::kLong, {});
    has(long_long, at::kLong, {});
    has(f16, at::kHalf, {});
    has(bf16, at::kBFloat16, {});
    has(f32, at::kFloat, {4, 2});
    has(f64, at::kDouble, {});
    CHECK(u8.data_ptr() == data);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<std::int64_t>(first) + i;
      CHECK(flag[i].item<bool>() == (index % 2 == 1));
      CHECK(u8[i][0][0].item<std::int64_t>() == index);
      CHECK(u8[i][1][2].item<std::int64_t>() == 200);
      CHECK(i8[i].item<std::int64_t>() == -index);
      CHECK(i16[i][1].item<std::int64_t>() == -300);
      CHECK(i32[i].item<std::int64_t>() == index - 100'000);
      CHECK(i64[i].item<std::int64_t>() == (std::int64_t{1} << 40) + index);
      CHECK(long_long[i].item<std::int64_t>() == -(std::int64_t{1} << 40));
      CHECK(f16[i].item<double>() == static_cast<double>(index) / 4);
      CHECK(bf16[i].item<double>() == static_cast<double>(index) / 2);
      CHECK(f32[i][3][0].item<double>() == static_cast<double>(index));
      CHECK(f32[i][3][1].item<double>() == -static_cast<double>(index));
      CHECK(f64[i].item<double>() == static_cast<double>(index) / 1024);
    }
  }
}

TEST_CASE("tensors keep their batch until the last of them and of their views is gone",
          "[torch][promise:race-free-3]") {
  auto loader = three_of_two();
  auto range = loader.epoch(0);
  auto it = range.begin();
  auto [image, x] = ps::torch_tensors<"image", "x">(std::move(*it));
  auto row = image[1];
  x.reset();
  ++it;
  auto kept = ps::torch_tensor<"image">(std::move(*it));
  image.reset();  // the row still holds the first batch
  for (int i = 0; i < 20; ++i) {
    ++it;  // every batch uses the only free slot
    REQUIRE(ps::get<"image">(*it)(0, 0) == static_cast<std::uint8_t>(first_of(it->number())));
  }
  CHECK(row.eq(1).all().item<bool>());
  CHECK(kept.eq(at::tensor({2, 3}, at::kByte).unsqueeze(1)).all().item<bool>());

  auto third = ps::torch_tensor<"x">(std::move(*it));
  CHECK_THROWS_AS(++it, ps::leases_exhausted);
  row.reset();  // the loop could continue now, but the test starts a new loop
  auto again = loader.epoch(1);
  CHECK(ps::get<"image">(*again.begin())(0, 0) == 0);
}

TEST_CASE("tensors saved by autograd keep the batch, and backward releases it",
          "[torch][promise:race-free-3]") {
  ps::loader loader{reported{}, ps::sequential{}, {.batch_size = 2, .workers = 1}};
  ps::transfer feed{loader, {.depth = 3}};
  const at::Tensor w = weight();
  std::vector<at::Tensor> losses;
  auto range = feed.epoch(0);
  auto it = range.begin();
  for (; losses.size() < 3; ++it) {
    const auto x = ps::torch_tensor<"x">(std::move(*it));
    losses.push_back((x * w).sum());  // the autograd graph of the loss keeps x alive
    if (losses.size() == 3) break;
  }
  SECTION("three graphs hold three slots") { CHECK_THROWS_AS(++it, ps::leases_exhausted); }
  SECTION("backward releases its slot, and the other tensors keep their values") {
    losses[0].backward();
    CHECK(w.grad().eq(1).all().item<bool>());  // the gradient of samples 0 and 1
    for (int i = 0; i < 20; ++i) ++it;
    losses[2].backward();
    CHECK(w.grad().eq(1 + 4 + 5).all().item<bool>());
    losses[1].backward();
    CHECK(w.grad().eq(1 + 4 + 5 + 2 + 3).all().item<bool>());
  }
}

TEST_CASE("a consumer waits for tensors dropped on another thread if configured", "[torch]") {
  auto loader = three_of_two(ps::exhausted_action::wait);
  std::vector<at::Tensor> held;
  std::uint64_t seen = 0;
  auto range = loader.epoch(0);
  auto it = range.begin();
  while (it != range.end()) {
    held.push_back(ps::torch_tensor<"image">(std::move(*it)));
    ++seen;
    if (held.size() < 3) {
      ++it;
      continue;
    }
    std::thread other{[&held, consumer = this_thread_number()] {
      wait_until_asleep(consumer);  // asleep in ++ or in the join below
      held.clear();
    }};
    ++it;
    other.join();
  }
  CHECK(seen == 50);
}

TEST_CASE("tensors of a batch wait for the stream of its feed", "[torch][promise:race-free-3]") {
  const gated_device device;
  const auto stream = device.make_stream();
  ps::loader loader{reported{}, ps::sequential{}, device, {.batch_size = 2, .workers = 1}};
  ps::transfer feed{loader, stream};
  device.hold_copies();
  auto range = feed.batches({0, 7}, ps::until_epoch{1});
  auto it = range.begin();
  std::thread opener{[&device, consumer = this_thread_number()] {
    // Waits until the consumer sleeps. A correct consumer sleeps while it waits for the copy, and
    // an incorrect consumer in the join.
    wait_until_asleep(consumer);
    device.open_copies();
  }};
  const auto image = ps::torch_tensor<"image">(std::move(*it));
  const double value = first_value(image);
  opener.join();
  CHECK(value == first_of(7));
}

TEST_CASE("work on the feed's own stream may make tensors", "[torch]") {
  const ps::cpu_device device;
  const auto stream = device.make_stream();
  ps::loader loader{reported{}, ps::sequential{}, device, {.batch_size = 2, .workers = 1}};
  ps::transfer feed{loader, stream, {.on_slots_exhausted = ps::exhausted_action::wait}};
  double sum = 0;
  for (auto& batch : feed.epoch(0)) {
    stream.launch([&sum, shared = ps::share(std::move(batch))] {
      sum += ps::torch_tensor<"x">(shared).sum().item<double>();
    });
  }
  stream.synchronize();
  CHECK(sum == 4.0 * (99 * 100 / 2));
}

TEST_CASE("tensors of a shared batch are made one by one and outlive feed and loader",
          "[torch][promise:race-free-3]") {
  at::Tensor image;
  at::Tensor x;
  {
    ps::loader loader{reported{}, ps::sequential{}, {.batch_size = 2, .workers = 1}};
    ps::transfer feed{loader};
    auto range = feed.batches({0, 7}, ps::until_epoch{1});
    const auto shared = ps::share(std::move(*range.begin()));
    image = ps::torch_tensor<"image">(shared);
    x = ps::torch_tensor<"x">(shared);
  }
  CHECK(first_value(image) == 14);
  x.mul_(2);  // a tensor may write to its memory
  CHECK(first_value(x) == 28);
}
