// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <penstock_ext/image/geometry.hpp>

namespace test {

/// Returns the random generator of sample `index`.
inline penstock::sample_generator random_of(std::uint64_t index) {
  return penstock::sample_generator{{.seed = 17, .epoch = 2, .stage = 1}, index};
}

/// Returns the message of the std::invalid_argument that `act` throws, or "accepted".
template <class Act>
std::string rejection(Act act) {
  try {
    act();
  } catch (const std::invalid_argument& problem) {
    return problem.what();
  }
  return "accepted";
}

/// Returns true if `box` is not empty and lies inside an image of `size`.
inline bool inside(const penstock::image_box& box, const penstock::image_size& size) {
  return box.size.width > 0 && box.size.height > 0 && box.left + box.size.width <= size.width &&
         box.top + box.size.height <= size.height;
}

/// Returns true if a resizer accepts `plan` for an image of `size`, and the result has the size
/// that the geometry specifies.
template <class Geometry>
bool is_sound(const Geometry& geometry, const penstock::image_plan& plan,
              const penstock::image_size& size) {
  return inside(plan.crop, size) && inside(plan.kept, plan.scaled) &&
         plan.size() == geometry.size();
}

/// Returns a random size of at most `max`. Sizes are often small, and often have a side of length
/// 1.
inline penstock::image_size random_size(penstock::sample_generator& random, std::size_t max) {
  const auto side = [&] {
    const std::uint32_t kind = random() % 4;
    const std::size_t high = kind == 0 ? 1 : kind == 1 ? 12 : max;
    return penstock::uniform(random, std::size_t{1}, high);
  };
  const std::size_t width = side();
  return {width, side()};
}

/// A hash of a sequence of plans.
class plan_sum {
 public:
  void operator()(const penstock::image_plan& plan) {
    for (const std::size_t value :
         {plan.crop.left, plan.crop.top, plan.crop.size.width, plan.crop.size.height,
          plan.scaled.width, plan.scaled.height, plan.kept.left, plan.kept.top,
          plan.kept.size.width, plan.kept.size.height, plan.border.left, plan.border.top,
          plan.border.right, plan.border.bottom, std::size_t{plan.mirrored}}) {
      sum_ = (sum_ ^ value) * 0x100000001b3ull;
      sum_ ^= sum_ >> 29;
    }
  }
  std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325ull;
};

}  // namespace test
