// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <penstock/data/narrow/bfloat16.hpp>
#include <penstock/data/narrow/half.hpp>
#include <penstock/data/narrow/narrowed.hpp>

#include "options.hpp"
#include "resident.hpp"
#include "train.hpp"
#include "trainer.hpp"

namespace mlp {

/// The overlapped loop on images that travel as `chosen.travel` and are what they were on the
/// device. Bytes travel as they are.
template <class Data, class Backend>
double train_travelling(const Data& data, const typename Backend::device_type& device,
                        trainer<Backend>& trained, const options& chosen, observer& progress) {
  namespace ps = penstock;
  if constexpr (std::is_same_v<pixel_of<Data>, float>) {
    const auto narrow = [&](auto narrowed) {
      return train_overlapped(data | std::move(narrowed), device, trained, chosen, progress,
                              Backend::widening());
    };
    switch (chosen.travel) {
      case travel_choice::half:
        return narrow(ps::narrowed<"image", ps::half>());
      case travel_choice::bfloat16:
        return narrow(ps::narrowed<"image", ps::bfloat16>());
      case travel_choice::int8:
        return narrow(ps::narrowed<"image", std::int8_t>());
      case travel_choice::as_they_are:
        break;
    }
  }
  return train_overlapped(data, device, trained, chosen, progress);
}

}  // namespace mlp
