// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Where nvImageCodec decodes a picture. In the order in which an `nvimgcodec_batch` tries them.
enum class nvimgcodec_backend : std::uint8_t {
  any,     ///< the first of the others that can
  gpu,     ///< all of it on the GPU: the engine for JPEG of those that have one, or kernels
  hybrid,  ///< partly on the CPU, such as Huffman decoding, the rest on the GPU
  cpu,     ///< on the CPU; for pixels on a GPU nvImageCodec copies them there
};

/// What an `nvimgcodec_batch` decodes with, and what it refuses.
struct nvimgcodec_batch_options {
  /// The GPU that the pixels are written to, by CUDA's ordinal. None: they are written to host
  /// memory, by the CPU alone, and neither GPU nor driver is needed.
  std::optional<int> device = std::nullopt;
  /// Which back end has to decode; a picture that it can't decode fails. `any`: as many tries as it
  /// takes.
  nvimgcodec_backend backend = nvimgcodec_backend::any;
  /// How many threads of nvImageCodec's own decode beside the calling one; 0 for one less than
  /// there are cores, the most.
  int threads = 0;
  /// A picture of more pixels is refused before memory is taken.
  std::uint64_t most_pixels = std::uint64_t{1} << 27;
};

namespace detail {

/// The back end's name, for messages.
[[nodiscard]] inline std::string name_of(nvimgcodec_backend backend) {
  constexpr std::array<const char*, 4> names{"any", "gpu", "hybrid", "cpu"};
  return names[static_cast<std::size_t>(backend)];
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
