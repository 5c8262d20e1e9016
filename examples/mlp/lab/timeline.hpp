// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mlp {

/// What is done to a batch.
enum class stage { read, copy, compute };

/// One stage of one batch, in microseconds from the start of the loop.
struct span {
  std::size_t batch = 0;  ///< its number in the epoch
  double begin = 0.0;
  double end = 0.0;
};

/// What one thread or stream did, or some threads together, in any order. May be empty.
struct lane {
  std::string name;
  stage kind{};
  std::vector<span> spans;
  std::size_t threads = 1;
};

/// One loop.
struct panel {
  std::string name;
  std::string note;     ///< after the name: how the loop works
  std::string figures;  ///< at the right: what was measured
  std::vector<lane> lanes;
};

/// A picture of some loops, one below the other on one scale of time.
struct timeline {
  std::string title;
  std::string description;  ///< for readers without the picture, and how it was made
  std::vector<panel> panels;
  double bound = 0.0;  ///< microseconds that no loop can be faster than; 0: none is marked
  std::string bound_note;
  std::vector<std::string> notes;  ///< lines below the picture, in small print
  bool shows_shares = false;       ///< how busy each lane is over time, and not its spans
};

/// The time from 0 to the end of the last span; 0 without one.
[[nodiscard]] double end_of(const std::vector<lane>& lanes);

/// The share of the time from 0 to `end` in which a lane is busy, the mean of its threads.
[[nodiscard]] double busy_share(const lane& measured, double end);

/// The picture as an SVG document, 880 px wide, in the light or dark colours that the viewer
/// prefers. Lengths are to scale, but a bar is 1 px wide at least. Bars of one batch in one lane
/// with less than half a pixel between them are drawn as one. All text is escaped; it must be
/// UTF-8.
[[nodiscard]] std::string svg_of(const timeline& shown);

}  // namespace mlp
