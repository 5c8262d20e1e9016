// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/narrow/narrowed.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/transfer/transfer.hpp>

#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "transfer/ten_each.hpp"

namespace ps = penstock;

namespace {

using signal_record = ps::record<ps::field<"left", float, ps::dyn, 4>,
                                 ps::field<"label", std::uint16_t>, ps::field<"right", float, 8>>;

/// A dataset of noise that has a different magnitude in each sample.
struct signals {
  using record_type = signal_record;
  [[nodiscard]] static float at(std::uint64_t sample, std::size_t i) {
    const auto hash = static_cast<std::uint32_t>((sample * 16 + i + 1) * 2654435761U);
    return (static_cast<float>(hash >> 8U) / 16777216.0F - 0.3F) * static_cast<float>(sample + 1);
  }
  [[nodiscard]] std::uint64_t size() const { return 95; }
  [[nodiscard]] ps::record_extents<signal_record> extents() const { return {{2}, {}, {}}; }
  void read(std::uint64_t index, ps::sample<signal_record> out) const {
    for (std::size_t i = 0; i < 8; ++i) {
      ps::get<"left">(out).data()[i] = at(index, i);
      ps::get<"right">(out).data()[i] = at(index, 8 + i);
    }
    ps::get<"label">(out) = static_cast<std::uint16_t>(index * 3);
  }
};

/// The results of loading `signals` for an epoch in order.
struct arrived {
  std::vector<float> left;
  std::vector<float> right;
  std::size_t labels = 0;  // number of correct labels
  std::uint64_t bytes = 0;
  friend bool operator==(const arrived&, const arrived&) = default;
};

/// Feeds narrowed data and widens them on a stream with its own thread.
template <class Data, class Transform>
arrived fed(const gated_device& device, const Data& data, const Transform& transform,
            std::size_t workers, std::size_t depth) {
  auto stream = device.make_stream();
  ps::loader loader{data, ps::sequential{}, device, ten_each(workers)};
  ps::transfer feed{loader, stream, transform, {.depth = depth}};
  static_assert(std::is_same_v<typename decltype(feed)::record_type, signal_record>);
  arrived found;
  std::uint64_t first = 0;
  for (auto& batch : feed.epoch(0)) {
    stream.launch([&found, first, view = std::as_const(batch).view()] {
      const auto left = ps::get<"left">(view).flat();
      const auto right = ps::get<"right">(view).flat();
      found.left.insert(found.left.end(), left.begin(), left.end());
      found.right.insert(found.right.end(), right.begin(), right.end());
      for (std::size_t n = 0; n < view.size(); ++n) {
        found.labels += ps::get<"label">(view)(n) == (first + n) * 3 ? 1U : 0U;
      }
    });
    first += batch.size();
  }
  stream.synchronize();
  found.bytes = feed.stats().bytes;
  CHECK(device.copied_bytes() >= found.bytes);
  return found;
}

}  // namespace

TEST_CASE("floats copied as 16 bits arrive as the nearest 16-bit values",
          "[transfer][promise:exact-18]") {
  const gated_device device;
  const auto data =
      signals{} | ps::narrowed<"left", ps::half>() | ps::narrowed<"right", ps::bfloat16>();
  const auto found = fed(device, data, ps::widen<"left", "right">(), 1, 2);
  REQUIRE(found.left.size() == 95 * 8);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 95 * 8; ++i) {
    wrong += found.left[i] != ps::half{signals::at(i / 8, i % 8)} ? 1U : 0U;
    wrong += found.right[i] != ps::bfloat16{signals::at(i / 8, 8 + i % 8)} ? 1U : 0U;
  }
  CHECK(wrong == 0);
  CHECK(found.labels == 95);
  CHECK(found.bytes == 95 * (8 * 2 + 2 + 8 * 2));
}

TEST_CASE(
    "floats copied as bytes are rounded by at most half a step, without scales for the "
    "consumer",
    "[transfer]") {
  const gated_device device;
  const auto data = signals{} | ps::narrowed<"right", std::int8_t>();
  const auto found = fed(device, data, ps::widen<"right">(), 1, 3);
  REQUIRE(found.right.size() == 95 * 8);
  for (std::size_t n = 0; n < 95; ++n) {
    float min = 0;
    float max = 0;
    for (std::size_t i = 8; i < 16; ++i) {
      min = std::fmin(min, signals::at(n, i));
      max = std::fmax(max, signals::at(n, i));
    }
    const float half_a_step = (max - min) / 510.0F * 1.001F;
    float worst = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      worst = std::fmax(worst, std::abs(found.right[n * 8 + i] - signals::at(n, 8 + i)));
    }
    CHECK(worst <= half_a_step);
    CHECK(found.left[n * 8 + 7] == signals::at(n, 7));
  }
  CHECK(found.labels == 95);
  // A sample would have 66 bytes as floats.
  CHECK(found.bytes == 95 * (8 * 4 + 2 + 8 + 2 * 4));
}

TEST_CASE("fixed scales are passed to widen in the order of its fields", "[transfer]") {
  const gated_device device;
  const ps::affine_scale of_left{2.0F, 5.0F};
  const ps::affine_scale of_right{0.5F, -1.0F};
  const auto data = signals{} | ps::narrowed<"left", std::int8_t>(of_left) |
                    ps::narrowed<"right", std::int8_t>(of_right);
  const auto found = fed(device, data, ps::widen<"right", "left">(of_right, of_left), 1, 2);
  REQUIRE(found.left.size() == 95 * 8);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 95 * 8; ++i) {
    wrong += std::abs(found.left[i] - signals::at(i / 8, i % 8)) > 1.0F ? 1U : 0U;
    const float right = signals::at(i / 8, 8 + i % 8);
    if (right < of_right(-128) || right > of_right(127)) {
      wrong += found.right[i] != (right < 0 ? of_right(-128) : of_right(127)) ? 1U : 0U;
    } else {
      wrong += std::abs(found.right[i] - right) > 0.25F ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
  CHECK(found.labels == 95);
  CHECK(found.bytes == 95 * (8 + 2 + 8));
}

TEST_CASE("narrowed batches are the same bits for any number of workers and slots",
          "[transfer][promise:exact-18]") {
  const gated_device device;
  const auto data =
      signals{} | ps::narrowed<"left", std::int8_t>() | ps::narrowed<"right", ps::half>();
  const auto transform = ps::widen<"right", "left">();
  const auto expected = fed(device, data, transform, 0, 1);
  CHECK(expected.labels == 95);
  CHECK(fed(device, data, transform, 1, 3) == expected);
  CHECK(fed(device, data, transform, 3, 2) == expected);
}

TEST_CASE("a scalar copied as a byte is exact, and a state made without narrowing is accepted",
          "[transfer]") {
  struct numbers {
    using record_type = ps::record<ps::field<"y", float>>;
    [[nodiscard]] std::uint64_t size() const { return 7; }
    void read(std::uint64_t index, ps::sample<record_type> out) const {
      ps::get<"y">(out) = 0.1F * static_cast<float>(index);
    }
  };
  const ps::cpu_device device;
  const ps::loader_options three{.batch_size = 3, .workers = 0};
  ps::loader plain{numbers{}, ps::shuffled{.seed = 3}, device, three};
  ps::loader narrow{numbers{} | ps::narrowed<"y", std::int8_t>(), ps::shuffled{.seed = 3}, device,
                    three};
  ps::transfer feed{narrow, device.inline_stream(), ps::widen<"y">()};
  std::vector<float> expected;
  for (auto& batch : plain.epoch(1)) {
    for (const float y : ps::get<"y">(batch).flat()) expected.push_back(y);
  }
  std::vector<float> found;
  for (auto& batch : feed.resume(plain.state_at({1, 1}), 2)) {
    for (const float y : ps::get<"y">(batch).flat()) found.push_back(y);
  }
  CHECK(found == std::vector<float>(expected.begin() + 3, expected.end()));
}
