// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <penstock_ext/serve/batcher.hpp>

/// A request with two fields, both of which identify its tag.
using request =
    penstock::record<penstock::field<"number", std::uint64_t>, penstock::field<"values", float, 3>>;

/// Returns a function that writes the request with this tag.
inline auto written(std::uint64_t tag) {
  return [tag](penstock::sample<request> out) {
    penstock::get<"number">(out) = tag;
    for (float& value : penstock::get<"values">(out).flat()) value = static_cast<float>(tag);
  };
}

/// Returns true if each request of a batch has the contents written for its tag.
template <class Batch>
bool is_as_tagged(const Batch& batch) {
  bool all = batch.tags().size() == batch.size();
  for (std::size_t i = 0; i < batch.tags().size(); ++i) {
    const auto tag = batch.tags()[i];
    all = all && penstock::get<"number">(batch)[i] == tag;
    for (std::size_t k = 0; k < 3; ++k) {
      all = all && penstock::get<"values">(batch)(i, k) == static_cast<float>(tag);
    }
  }
  return all;
}

template <class Batch>
std::vector<std::uint64_t> tags_of(const Batch& batch) {
  return {batch.tags().begin(), batch.tags().end()};
}

/// Counts how often each tag was served and how often it was returned.
struct fates {
  explicit fates(std::size_t requests) : served(requests), returned(requests) {}

  std::vector<std::atomic<std::uint8_t>> served;
  std::vector<std::atomic<std::uint8_t>> returned;
  std::atomic<std::uint64_t> abandoned{0};
  std::atomic<std::uint64_t> wrong{0};  // number of requests with wrong contents

  template <class Batch>
  void record_served(const Batch& batch) {
    if (!is_as_tagged(batch)) ++wrong;
    for (const auto tag : batch.tags()) ++served[tag];
  }
  /// Returns a callback for `batcher_options::on_unserved`.
  std::function<void(std::span<const std::uint64_t>, penstock::unserved)> noting() {
    return [this](std::span<const std::uint64_t> tags, penstock::unserved why) {
      for (const auto tag : tags) ++returned[tag];
      if (why == penstock::unserved::abandoned) abandoned += tags.size();
    };
  }
  /// Returns the number of tags that have ended exactly once.
  [[nodiscard]] std::uint64_t ended_once() const {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < served.size(); ++i) count += served[i] + returned[i] == 1;
    return count;
  }
  [[nodiscard]] static std::uint64_t sum(const std::vector<std::atomic<std::uint8_t>>& of) {
    std::uint64_t count = 0;
    for (const auto& one : of) count += one;
    return count;
  }
};
