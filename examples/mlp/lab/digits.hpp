// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace mlp {

/// Drawn digits for machines without MNIST: strokes of the ten figures under random shifts, turns,
/// slants, sizes and pen widths, with noise. Equal on every machine: no library function whose last
/// bit may differ, and digits.cpp is compiled without contraction to fused operations.
inline constexpr std::size_t digit_side = 28;

/// Draws `digit` (0 to 9) into `out`, row by row, 0 background and 255 ink; `key` says which of its
/// 2^64 variants.
void draw_digit(unsigned digit, std::uint64_t key,
                std::span<std::uint8_t, digit_side * digit_side> out);

/// Writes the set into `directory` under MNIST's names, `train` and `test` digits, as IDX files.
/// Each appears under its name only when it is complete, so several processes may write at once.
/// Throws `std::filesystem::filesystem_error`, and `std::runtime_error` when the disk is full.
void write_digits(const std::filesystem::path& directory, std::uint32_t train = 60'000,
                  std::uint32_t test = 10'000);

}  // namespace mlp
