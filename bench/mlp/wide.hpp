// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/core/batch.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

#include "kernels.hpp"

namespace mlp {

/// A digit as the input of the network: 3 KiB per sample, and 12.8 MB per batch of 4096. Batches of
/// this size keep the bus busy.
using wide_record = penstock::record<penstock::field<"image", float, 28, 28>,
                                     penstock::field<"label", std::uint8_t>>;

/// Converts the bytes of a digit to floats on the workers. The class is a function for
/// `penstock::map`.
struct widen {
  void operator()(penstock::const_sample<penstock::digit_record> in,
                  penstock::sample<wide_record> out) const {
    penstock::get<"label">(out) = penstock::get<"label">(in);
    const auto from = penstock::get<"image">(in);
    const auto to = penstock::get<"image">(out);
    for (std::size_t i = 0; i < from.size(); ++i) {
      to.data()[i] = kernel::normalised(from.data()[i]);
    }
  }
};

}  // namespace mlp
