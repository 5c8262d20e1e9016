// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/interop/to_dlpack.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/lease.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/transfer.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
namespace dl = penstock::dlpack;

namespace {

/// A 16-bit type like CUDA's half.
struct half {
  std::uint16_t bits;
};
struct two_numbers {
  int first, second;
};

}  // namespace

template <>
struct ps::dlpack::type_of<half> {
  static constexpr data_type value{type_code::floating, 16, 1};
};

namespace {

using kinds = ps::record<ps::field<"image", float, 2, ps::dyn>, ps::field<"label", std::int64_t>,
                         ps::field<"mask", bool, 3>, ps::field<"byte", std::byte>,
                         ps::field<"h", half, 5>, ps::field<"pair", two_numbers>>;
const ps::batch_layout<kinds> four{{{7}, {}, {}, {}, {}, {}}, 4};

using kinds_ring = ps::detail::host_slots<ps::cpu_device>;
using kinds_lease = ps::host_batch<kinds, ps::cpu_device>;
using kinds_on_device = ps::detail::device_slots<ps::cpu_device>;

std::shared_ptr<kinds_ring> kinds_ring_of(std::size_t count) {
  return std::make_shared<kinds_ring>(ps::cpu_device{}, four, count,
                                      ps::detail::memory_kind::pinned);
}

kinds_lease kinds_batch(const std::shared_ptr<kinds_ring>& ring, std::size_t size = 3) {
  const auto slot = ring->acquire();
  REQUIRE(slot.has_value());
  return {ring, *slot, {.epoch = 0, .batch = 1, .size = size, .valid_size = size}};
}

std::vector<std::int64_t> lengths_of(const std::int64_t* first, const dl::tensor& of) {
  return {first, first + of.rank};
}

}  // namespace

TEST_CASE("a field is exported with its memory, shape, strides and type", "[interop]") {
  const auto ring = kinds_ring_of(1);
  const auto batch = ps::share(kinds_batch(ring));
  const auto made = ps::to_dlpack<"image">(batch);
  CHECK(made->version.layout == 1);
  CHECK(made->flags == 0);
  const dl::tensor& image = made->array;
  CHECK(image.data == ps::get<"image">(batch).data());
  CHECK(image.byte_offset == 0);
  CHECK(image.where == dl::place{dl::device_kind::cpu, 0});
  CHECK(image.type == dl::data_type{dl::type_code::floating, 32, 1});
  CHECK(lengths_of(image.shape, image) == std::vector<std::int64_t>{3, 2, 7});
  CHECK(lengths_of(image.strides, image) == std::vector<std::int64_t>{14, 7, 1});

  const auto label = ps::to_dlpack<"label">(batch, {.read_only = true});
  CHECK(label->flags == dl::flag_read_only);
  CHECK(label->array.type == dl::data_type{dl::type_code::signed_integer, 64, 1});
  CHECK(lengths_of(label->array.shape, label->array) == std::vector<std::int64_t>{3});
  CHECK(lengths_of(label->array.strides, label->array) == std::vector<std::int64_t>{1});

  CHECK(ps::to_dlpack<"mask">(batch)->array.type == dl::data_type{dl::type_code::boolean, 8, 1});
  CHECK(ps::to_dlpack<"byte">(batch)->array.type ==
        dl::data_type{dl::type_code::unsigned_integer, 8, 1});
  CHECK(ps::to_dlpack<"h">(batch)->array.type == dl::data_type{dl::type_code::floating, 16, 1});
  static_assert(!dl::element<two_numbers>, "there is no word for it");
  static_assert(dl::type_of<std::uint16_t>::value ==
                dl::data_type{dl::type_code::unsigned_integer, 16, 1});
  static_assert(dl::type_of<double>::value == dl::data_type{dl::type_code::floating, 64, 1});
}

TEST_CASE("an exported tensor of a batch without samples has no address", "[interop]") {
  const auto ring = kinds_ring_of(1);
  const auto made = ps::to_dlpack<"image">(ps::share(kinds_batch(ring, 0)));
  CHECK(made->array.data == nullptr);
  CHECK(made->array.shape[0] == 0);
}

TEST_CASE("the deleter of the last tensor of a batch releases its slot, on any thread",
          "[interop][promise:race-free-3]") {
  const auto ring = kinds_ring_of(1);
  auto images = [&] {
    const auto batch = ps::share(kinds_batch(ring));
    auto labels = ps::to_dlpack_unversioned<"label">(batch);
    CHECK(labels->array.data == ps::get<"label">(batch).data());
    CHECK(lengths_of(labels->array.strides, labels->array) == std::vector<std::int64_t>{1});
    auto made = ps::to_dlpack<"image">(batch);
    dl::unversioned_tensor* const raw = labels.release();
    raw->deleter(raw);  // called as a C consumer would
    return made;
  }();
  CHECK(ring->leased() == 1);
  static_cast<float*>(images->array.data)[41] = 1.0F;
  dl::managed_tensor* const raw = images.release();
  std::thread{[raw] { raw->deleter(raw); }}.join();
  CHECK(ring->leased() == 0);
}

TEST_CASE(
    "for a tensor on another stream, that stream waits for the copy and the release waits "
    "for it",
    "[interop][promise:race-free-3]") {
  const ps::cpu_device device;
  const auto ring = ps::detail::shared_by_leases<kinds_on_device, ps::cpu_stream_ref>(
      device, four, device.inline_stream(), std::size_t{1}, std::size_t{1});
  const auto host = kinds_ring_of(2);
  ps::detail::waitable_counter gate;
  auto own = device.make_stream();
  auto consumer = device.make_stream();
  const auto wait_for_gate = [&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); };
  std::vector<std::int64_t> seen;
  const auto copied = [&](std::int64_t value) {
    auto from = kinds_batch(host);
    for (auto& label : ps::get<"label">(from).flat()) label = value;
    ring->copy_in(0, std::move(from));
    ring->wait_for_copy(0, own);
    return ps::share(ps::device_batch<kinds, ps::cpu_device>{ring, 0, own});
  };
  {
    const auto labels = ps::to_dlpack<"label">(copied(1), consumer);
    CHECK(labels->array.where == dl::place{dl::device_kind::cpu, 0});
    consumer.launch([&, first = static_cast<const std::int64_t*>(labels->array.data)] {
      wait_for_gate();
      seen.push_back(first[2]);
    });
  }
  CHECK(ring->is_released(0));
  {
    const auto labels = ps::to_dlpack_unversioned<"label">(copied(2), consumer);
    consumer.launch([&, first = static_cast<const std::int64_t*>(labels->array.data)] {
      seen.push_back(first[2]);
    });
  }
  gate.store(1);
  consumer.synchronize();
  CHECK(seen == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("a tensor in host memory is complete when it is returned", "[interop]") {
  using counted = ps::record<ps::field<"x", float>>;
  struct numbers {
    using record_type = counted;
    [[nodiscard]] static std::uint64_t size() { return 4; }
    static void read(std::uint64_t i, ps::sample<counted> out) {
      ps::get<"x">(out) = static_cast<float>(i + 1);
    }
  };
  const ps::cpu_device device{{.launch_latency = std::chrono::milliseconds{20}}};
  auto stream = device.make_stream();
  ps::loader loader{numbers{}, ps::sequential{}, device, {.batch_size = 1, .workers = 1}};
  ps::transfer feed{loader, stream};
  float expected = 1;
  for (auto& lease : feed.epoch(0)) {
    const auto batch = ps::share(std::move(lease));
    const auto newest = ps::to_dlpack<"x">(batch);
    CHECK(*static_cast<const float*>(newest->array.data) == expected);
    const auto older = ps::to_dlpack_unversioned<"x">(batch);
    CHECK(*static_cast<const float*>(older->array.data) == expected);
    ++expected;
  }
  CHECK(expected == 5);
}
