// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <penstock/order/random.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/image/geometry.hpp>

namespace test {

/// A blob source in memory. The label of each blob is its index.
struct blobs {
  std::vector<std::vector<std::byte>> all;
  [[nodiscard]] std::uint64_t size() const { return all.size(); }
  std::span<const std::byte> bytes(std::uint64_t index, penstock::blob_buffer&) const {
    return all[index];
  }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    return 1000 + static_cast<std::int64_t>(index);
  }
  [[nodiscard]] std::string key(std::uint64_t index) const {
    return "folder/" + std::to_string(index) + ".any";
  }
};

/// A random crop, another random crop to 12 x 10, and a horizontal flip with probability 0.5.
struct some_crop {
  [[nodiscard]] penstock::image_size size() const { return {12, 10}; }
  [[nodiscard]] penstock::image_plan plan(const penstock::image_size& image,
                                          penstock::sample_generator& random) const {
    namespace ps = penstock;
    const auto draw = [&random](std::size_t low, std::size_t high) {
      return ps::uniform(random, low, high);
    };
    ps::image_plan plan;
    plan.crop.size = {draw(1, image.width), draw(1, image.height)};
    plan.crop.left = draw(0, image.width - plan.crop.size.width);
    plan.crop.top = draw(0, image.height - plan.crop.size.height);
    plan.scaled = {draw(12, 40), draw(10, 40)};
    if (draw(0, 3) == 0 && plan.crop.size.width >= 12 && plan.crop.size.height >= 10) {
      plan.scaled = plan.crop.size;
    }
    plan.kept = {draw(0, plan.scaled.width - 12), draw(0, plan.scaled.height - 10), {12, 10}};
    plan.mirrored = draw(0, 1) == 1;
    return plan;
  }
};

}  // namespace test
