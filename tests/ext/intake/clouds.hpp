// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock_ext/intake/intake.hpp>

/// A camera frame: a frame number, and pixels that all have this value.
using frame_record = penstock::record<penstock::field<"number", std::uint64_t>,
                                      penstock::field<"pixels", std::uint32_t, 16>>;
/// A point cloud with a varying number of points. The value of every point is the index of the
/// cloud in the sequence.
using cloud_record = penstock::record<penstock::field<"number", std::uint64_t>,
                                      penstock::field<"points", std::uint64_t, penstock::ragged>>;

/// Writes frame `number` to sample `at` of a slot.
template <class Slot>
void write_frame(Slot&& slot, std::uint64_t number, std::size_t at = 0) {
  penstock::get<"number">(slot)[at] = number;
  const auto pixels = penstock::get<"pixels">(slot)[at];
  for (auto& pixel : pixels.flat()) pixel = static_cast<std::uint32_t>(number);
}
/// Returns true if the samples of a batch are consecutive frames, starting with frame `number`.
template <class Batch>
[[nodiscard]] bool has_frames(const Batch& batch, std::uint64_t number) {
  bool all = true;
  for (std::size_t at = 0; at < batch.size(); ++at, ++number) {
    all = all && penstock::get<"number">(batch)[at] == number;
    for (const auto pixel : penstock::get<"pixels">(batch)[at].flat()) {
      all = all && pixel == static_cast<std::uint32_t>(number);
    }
  }
  return all;
}

/// Commits frame `number`, which is also its tag. Returns false if no slot is free.
template <class Intake>
bool push_frame(Intake& in, std::uint64_t number) {
  auto slot = in.try_acquire();
  if (!slot) return false;
  write_frame(slot, number);
  return slot.commit({.tag = number});
}

/// Commits cloud `number` with `points` points.
template <class Intake>
bool push_cloud(Intake& in, std::uint64_t number, std::uint64_t points) {
  auto slot = in.acquire();
  if (!slot) return false;
  penstock::get<"number">(slot)[0] = number;
  for (std::uint64_t i = 0; i < points; ++i) penstock::get<"points">(slot)(i) = number;
  return slot.commit({.lengths = {points}, .tag = number});
}
