// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include <penstock/core/batch_info.hpp>

namespace mlp {

/// The mean in the order of the samples.
[[nodiscard]] inline double mean_of(std::span<const float> losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum / static_cast<double>(losses.size());
}

/// FNV-1a, 64 bits, over `values` after what `before` stands for; 0 for nothing.
[[nodiscard]] inline std::uint64_t hash_of(std::span<const std::uint64_t> values,
                                           std::uint64_t before = 0) {
  std::uint64_t hash = before == 0 ? 0xcbf29ce484222325 : before;
  for (std::uint64_t value : values) {
    for (int byte = 0; byte < 8; ++byte, value >>= 8U)
      hash = (hash ^ (value & 255)) * 0x100000001b3;
  }
  return hash;
}

/// A file with a line a step: "EPOCH BATCH LOSS: SAMPLE SAMPLE ...", the loss in hexadecimal, so
/// that no bit is lost. A line is there as soon as `add` returns, whatever happens to the process.
class step_log {
 public:
  /// Appends to `file`, where one is named.
  explicit step_log(const std::optional<std::filesystem::path>& file) {
    if (!file) return;
    out_ = std::fopen(file->c_str(), "ab");
    if (out_ == nullptr) throw std::runtime_error(file->string() + " can't be written");
  }
  step_log(const step_log&) = delete;
  step_log& operator=(const step_log&) = delete;
  ~step_log() {
    if (out_ != nullptr) std::fclose(out_);
  }

  void add(const penstock::batch_position& where, double loss,
           std::span<const std::uint64_t> samples) {
    if (out_ == nullptr) return;
    char number[40];
    std::snprintf(number, sizeof number, " %a:", loss);
    std::string line = std::to_string(where.epoch) + " " + std::to_string(where.batch) + number;
    for (const std::uint64_t sample : samples) line += " " + std::to_string(sample);
    line += '\n';
    if (std::fwrite(line.data(), 1, line.size(), out_) != line.size() || std::fflush(out_) != 0) {
      throw std::runtime_error("the log can't be written");
    }
  }

 private:
  std::FILE* out_ = nullptr;
};

}  // namespace mlp
