// SPDX-License-Identifier: BSL-1.0
// Tests the guarantee "exact": batches are bit-identical for any number of workers, any prefetch,
// and with or without a transfer.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using small_digit =
    ps::record<ps::field<"image", std::uint8_t, 6, 5>, ps::field<"label", std::uint16_t>>;
using small_floats = ps::record<ps::field<"image", float, 6, 5>, ps::field<"label", std::int32_t>>;

constexpr std::size_t count = 203;  // not a multiple of the batch size

struct arrays {
  std::vector<std::uint8_t> images = std::vector<std::uint8_t>(count * 30);
  std::vector<std::uint16_t> labels = std::vector<std::uint16_t>(count);
  arrays() {
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<std::uint8_t>(i * 37 + i / 7);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint16_t>(i);
  }
};

// Rolls the image by a random number of pixels and adds noise, using the random generator of the
// sample.
void augment(ps::const_sample<small_digit> in, ps::sample<small_floats> out,
             ps::sample_generator& rng) {
  const auto from = ps::get<"image">(in).flat();
  const auto to = ps::get<"image">(out).flat();
  const auto shift = ps::uniform(rng, std::uint32_t{0}, std::uint32_t{29});
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<float>(from[(i + shift) % from.size()]) + ps::normal(rng, 0.0F, 0.1F);
  }
  ps::get<"label">(out) = ps::get<"label">(in);
}

void plain(ps::const_sample<small_digit> in, ps::sample<small_floats> out) {
  const auto from = ps::get<"image">(in).flat();
  const auto to = ps::get<"image">(out).flat();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[i]) / 255.0F;
  ps::get<"label">(out) = ps::get<"label">(in);
}

// Returns the bytes of all batches, each preceded by its sizes.
template <class Range>
std::vector<std::byte> bytes_of(Range range) {
  std::vector<std::byte> all;
  const auto append = [&](const auto values) {
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    all.insert(all.end(), begin, begin + values.size_bytes());
  };
  for (auto& batch : range) {
    const std::uint64_t header[] = {batch.epoch(), batch.number(), batch.size(), batch.valid()};
    append(std::span{header});
    append(ps::get<"image">(batch).flat());
    append(ps::get<"label">(batch).flat());
  }
  return all;
}

template <class Data>
void check_exact(const Data& data) {
  const auto options = [](std::size_t workers, std::size_t prefetch, std::size_t run) {
    return ps::loader_options{.batch_size = 16,
                              .workers = workers,
                              .prefetch = prefetch,
                              .seed = 5,
                              .tuning = {.chunk = run}};
  };
  ps::loader one{data, ps::shuffled{.seed = 3}, options(0, 1, 0)};
  const auto expected = bytes_of(one.epochs(0, 2));
  REQUIRE(expected.size() == 2 * (13 * 32 + count * (30 * 4 + 4)));

  for (const std::size_t workers : {0U, 1U, 2U, 4U, 8U}) {
    for (const std::size_t prefetch : {1U, 2U, 3U, 7U, 32U}) {
      for (const std::size_t run : {0U, 1U, 5U}) {
        INFO("workers " << workers << ", prefetch " << prefetch << ", run " << run);
        ps::loader loader{data, ps::shuffled{.seed = 3}, options(workers, prefetch, run)};
        CHECK((bytes_of(loader.epochs(0, 2)) == expected));
      }
    }
    for (const std::size_t depth : {1U, 2U, 3U, 5U}) {
      INFO("workers " << workers << ", through a transfer of depth " << depth);
      ps::loader loader{data, ps::shuffled{.seed = 3}, options(workers, 2, 0)};
      ps::transfer feed{loader, ps::cpu_device{}.inline_stream(), {.depth = depth}};
      CHECK((bytes_of(feed.epochs(0, 2)) == expected));
    }
  }
}

}  // namespace

TEST_CASE("batches are bit-identical for any number of workers, prefetch, chunk size and depth",
          "[flow][promise:exact-1]") {
  const arrays source;
  const ps::memory_dataset<small_digit> data{source.images, source.labels};
  const auto floats_of = data | ps::map<small_floats>(plain);
  check_exact(floats_of);
}

TEST_CASE(
    "augmented batches are the same bits too: random bits belong to the sample, not the thread",
    "[flow][promise:exact-2]") {
  const arrays source;
  const ps::memory_dataset<small_digit> data{source.images, source.labels};
  const auto warped = data | ps::map<small_floats>(augment);
  check_exact(warped);
}

TEST_CASE("another seed, another epoch and another sampler seed give other batches",
          "[flow][promise:exact-1]") {
  const arrays source;
  const ps::memory_dataset<small_digit> data{source.images, source.labels};
  const auto warped = data | ps::map<small_floats>(augment);
  const auto bytes = [&](std::uint64_t order_seed, std::uint64_t seed, std::uint64_t epoch) {
    ps::loader loader{warped, ps::shuffled{.seed = order_seed}, {.batch_size = 16, .seed = seed}};
    auto all = bytes_of(loader.epoch(epoch));
    // Only the samples are compared, because the headers contain the epoch.
    for (std::size_t i = 0; i < 8; ++i) all[i] = std::byte{0};
    return all;
  };
  const auto base = bytes(1, 1, 0);
  CHECK((bytes(1, 1, 0) == base));
  CHECK((bytes(2, 1, 0) != base));
  CHECK((bytes(1, 2, 0) != base));
  CHECK((bytes(1, 1, 1) != base));
}

TEST_CASE("a single epoch, or any tail of it, equals the same epoch in a longer range",
          "[flow][promise:exact-1]") {
  const arrays source;
  const ps::memory_dataset<small_digit> data{source.images, source.labels};
  const auto warped = data | ps::map<small_floats>(augment);
  ps::loader loader{warped, ps::shuffled{.seed = 9}, {.batch_size = 16, .workers = 2}};
  const auto both = bytes_of(loader.epochs(0, 2));
  const auto first = bytes_of(loader.epoch(0));
  const auto second = bytes_of(loader.epoch(1));
  auto joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  CHECK((joined == both));

  const std::size_t batch_bytes = 32 + 16 * (30 * 4 + 4);
  for (std::uint64_t at = 0; at < loader.batches_per_epoch(); ++at) {
    INFO("from batch " << at);
    const auto tail = bytes_of(loader.batches({0, at}, ps::until_epoch{2}));
    const std::vector<std::byte> rest(both.begin() + static_cast<std::ptrdiff_t>(at * batch_bytes),
                                      both.end());
    CHECK((tail == rest));
  }
}

namespace {

/// A sampler whose order and fingerprint depend on whether denormals are flushed to zero: the order
/// starts at either 0 or 2.
struct floating {
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const { return n; }
  [[nodiscard]] auto order(std::uint64_t n, std::uint64_t) const {
    struct shifted {
      std::uint64_t n;
      std::uint64_t by;
      void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
        for (auto& index : out) index = (first++ + by) % n;
      }
      // Workers share an order, so the loader must call only the const overload.
      void fill(std::uint64_t, std::span<std::uint64_t>) noexcept = delete;
    };
    volatile float small = 1e-38F;
    volatile float quarter = small * 0.25F;
    return shifted{n, quarter != 0.0F ? 2U : 0U};
  }
};

}  // namespace

TEST_CASE("a sampler that computes with denormals gives the same order on workers and inline",
          "[flow][promise:exact-1]") {
  std::vector<std::vector<std::uint64_t>> orders;
  std::vector<std::uint64_t> fingerprints;
  for (const std::size_t workers : {0U, 1U, 2U}) {
    ps::loader loader{numbered{16}, floating{}, {.batch_size = 16, .workers = workers}};
    for (auto& batch : loader.epoch(0)) orders.push_back(labels_of(batch));
    fingerprints.push_back(loader.state().order);
  }
  CHECK(orders[0].front() == 0);
  CHECK(orders[1] == orders[0]);
  CHECK(orders[2] == orders[0]);
  struct unmoved : ps::sequential {};
  ps::loader same{numbered{16}, unmoved{}, {.batch_size = 16, .workers = 0}};
  CHECK(fingerprints[0] == same.state().order);  // the fingerprint matches the actual order
}

TEST_CASE("denormal values are the same on workers and inline", "[flow][promise:exact-1]") {
  // User data may contain denormals, and arithmetic may produce them. The floating-point mode must
  // be the same on every thread.
  const std::vector<float> values(64, 1e-38F);
  using tiny = ps::record<ps::field<"x", float>>;
  const ps::memory_dataset<tiny> data{values};
  const auto halved = data | ps::map([](ps::sample<tiny> s) { ps::get<"x">(s) *= 0.25F; });
  const auto first_of = [&](std::size_t workers) {
    ps::loader loader{halved, ps::sequential{}, {.batch_size = 64, .workers = workers}};
    float first = -1.0F;
    for (auto& batch : loader.epoch(0)) first = ps::get<"x">(batch)(0);
    return first;
  };
  CHECK(first_of(0) == first_of(1));
  volatile float tiny_value = 1e-38F;
  CHECK(tiny_value * 0.25F != 0.0F);  // the floating-point mode of the consumer is unchanged
}
