// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

/// The exception that `numbered` throws for its bad sample.
class bad_sample : public std::runtime_error {
 public:
  explicit bad_sample(std::uint64_t which)
      : std::runtime_error("sample " + std::to_string(which) + " is bad"), index(which) {}
  std::uint64_t index;
};

/// A dataset whose values identify the sample: a float of eight times the index, and the index. The
/// dataset counts reads, and can hold back all reads or fail on one sample. Copies share one state.
struct numbered {
  using record_type = penstock::record<penstock::field<"values", float, 8>,
                                       penstock::field<"label", std::uint64_t>>;
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  std::uint64_t count = 1000;

  struct shared {
    std::atomic<std::uint64_t> bad{none};
    std::atomic<std::uint64_t> reads{0};
    std::atomic<std::uint64_t> running{0};
    penstock::detail::waitable_counter arrived;  // incremented when a read starts
    penstock::detail::waitable_counter gate;     // holds back all reads while 1
  };
  std::shared_ptr<shared> state = std::make_shared<shared>();

  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, penstock::sample<record_type> out) const {
    ++state->running;
    state->arrived.advance();
    state->gate.wait([](std::uint32_t closed) { return closed == 0; });
    for (float& value : penstock::get<"values">(out).flat()) value = static_cast<float>(index);
    penstock::get<"label">(out) = index;
    --state->running;
    ++state->reads;
    if (index == state->bad.load()) throw bad_sample(index);
  }
};

/// Returns all labels of a batch in host memory.
template <class Batch>
std::vector<std::uint64_t> labels_of(const Batch& batch) {
  const auto view = penstock::get<"label">(batch).flat();
  return {view.begin(), view.end()};
}

/// Returns the labels of all batches of a range.
template <class Range>
std::vector<std::uint64_t> labels_in(Range&& range) {
  std::vector<std::uint64_t> all;
  for (auto& batch : range) {
    const auto labels = labels_of(batch);
    all.insert(all.end(), labels.begin(), labels.end());
  }
  return all;
}

/// Iterates over all batches of a range and returns their total number of samples.
template <class Range>
std::uint64_t samples_in(Range&& range) {
  std::uint64_t samples = 0;
  for (auto& batch : range) samples += batch.size();
  return samples;
}
