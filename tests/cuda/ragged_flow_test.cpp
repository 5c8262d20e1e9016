// SPDX-License-Identifier: BSL-1.0
// Tests ragged fields on the CUDA device. Samples of different lengths must arrive complete,
// whenever the copy runs, and a copy transfers only the bytes in use.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using ragged_pair =
    ps::record<ps::field<"tokens", std::uint16_t, ps::ragged>, ps::field<"label", std::uint32_t>,
               ps::field<"weights", float, ps::ragged>>;

/// A dataset in which sample i has i * 7 % 11 tokens and i % 4 weights. The values identify the
/// sample and the position.
struct ragged_pairs {
  using record_type = ragged_pair;
  std::uint64_t max_weights = 3;
  [[nodiscard]] std::uint64_t size() const { return 61; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{.longest = 10}, {}, {.longest = max_weights}};
  }
  [[nodiscard]] ps::sample_lengths<record_type> lengths(std::uint64_t index) const {
    return {index * 7 % 11, index % 4};
  }
  static std::uint16_t token(std::uint64_t index, std::size_t i) {
    return static_cast<std::uint16_t>(index * 100 + i);
  }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const auto tokens = ps::get<"tokens">(out).flat();
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = token(index, i);
    ps::get<"label">(out) = static_cast<std::uint32_t>(index);
    for (float& weight : ps::get<"weights">(out).flat()) weight = static_cast<float>(index) / 4;
  }
};

using seen_view = ps::const_batch_view<ragged_pair>;

/// The parts of a batch that are passed to a kernel.
struct ragged_batch {
  decltype(ps::get<"tokens">(std::declval<const seen_view&>())) tokens;
  decltype(ps::get<"label">(std::declval<const seen_view&>())) labels;
  decltype(ps::get<"weights">(std::declval<const seen_view&>())) weights;

  /// Returns true if the memory contains these samples contiguously.
  [[nodiscard]] bool holds(const std::vector<std::uint64_t>& samples) const {
    int first_token = 0;
    int first_weight = 0;
    for (std::size_t n = 0; n < samples.size(); ++n) {
      const std::uint64_t index = samples[n];
      const auto sample_tokens = tokens[n].flat();
      const auto sample_weights = weights[n].flat();
      if (labels(n) != index || sample_tokens.size() != index * 7 % 11 ||
          sample_weights.size() != index % 4 || tokens.offsets()(n) != first_token ||
          weights.offsets()(n) != first_weight) {
        return false;
      }
      for (std::size_t i = 0; i < sample_tokens.size(); ++i) {
        if (sample_tokens[i] != ragged_pairs::token(index, i)) return false;
      }
      for (const float weight : sample_weights) {
        if (weight != static_cast<float>(index) / 4) return false;
      }
      first_token += static_cast<int>(sample_tokens.size());
      first_weight += static_cast<int>(sample_weights.size());
    }
    return true;
  }
};

}  // namespace

TEST_CASE("ragged samples arrive whole in any random order of the device's work",
          "[cuda][promise:exact-12]") {
  const ps::shuffled order{.seed = 4};
  for (std::uint64_t seed = 0; seed < seed_count(); ++seed) {
    CAPTURE(seed);
    const clean_fake clean{{.policy = fake_cuda::policy::random, .seed = seed}};
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    ps::loader loader{
        ragged_pairs{},
        order,
        device,
        {.batch_size = 8, .workers = seed % 3, .prefetch = 1 + seed % 2, .tuning = {.chunk = 1}}};
    const auto zero_copy = seed % 2 == 1 ? ps::zero_copy_use::always : ps::zero_copy_use::never;
    ps::transfer feed{loader, stream, {.depth = 2, .tuning = {.zero_copy = zero_copy}}};
    std::size_t right = 0;
    std::size_t wrong = 0;
    for (auto& batch : feed.epochs(0, 2)) {
      std::vector<std::uint64_t> samples(batch.size());
      order.order(61, batch.epoch()).fill(batch.number() * 8, samples);
      const auto& lease = std::as_const(batch);
      const ragged_batch seen{ps::get<"tokens">(lease), ps::get<"label">(lease),
                              ps::get<"weights">(lease)};
      const auto look = [seen, samples, &right, &wrong] {
        ++(seen.holds(samples) ? right : wrong);
      };
      fake_cuda::launch(stream.get(), look, {batch.data()});
    }
    device.synchronize(ps::cuda_stream_ref{stream});
    CHECK(right == 16);
    CHECK(wrong == 0);
  }
}

TEST_CASE("only the used bytes of a ragged batch are copied", "[cuda][promise:exact-12]") {
  const auto bytes_copied = [](std::uint64_t room) {
    const clean_fake clean;
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    ps::loader loader{ragged_pairs{room}, ps::sequential{}, device, {.batch_size = 8}};
    ps::transfer feed{loader, stream};
    for (auto& batch : feed.epoch(0)) (void)batch.size();
    return fake_cuda::statistics().copied_bytes;
  };
  CHECK(bytes_copied(3) == bytes_copied(3000));
}
