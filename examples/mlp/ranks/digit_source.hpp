// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/data/dataset.hpp>
#include <penstock/data/idx_dataset.hpp>

#include "digits.hpp"

namespace mlp {

/// The first digits of a set; without one, digits that are drawn when they are read, so that no
/// rank has more than its own.
struct digit_source {
  using record_type = penstock::idx_dataset<>::record_type;

  std::uint64_t count = 0;
  const penstock::idx_dataset<>* files = nullptr;  // outlives this

  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, penstock::sample<record_type> out) const {
    const auto pixels = penstock::get<"image">(out).flat();
    if (files != nullptr) {
      const auto sample = files->view(index);
      std::ranges::copy(penstock::get<"image">(sample).flat(), pixels.begin());
      penstock::get<"label">(out) = penstock::get<"label">(sample);
      return;
    }
    draw_digit(static_cast<unsigned>(index % 10), index,
               std::span<std::uint8_t, digit_side * digit_side>{pixels});
    penstock::get<"label">(out) = static_cast<std::uint8_t>(index % 10);
  }
};

}  // namespace mlp
