// SPDX-License-Identifier: BSL-1.0
// Tests batches with a token budget, in which the number of samples varies. The batches do not
// depend on the number of workers, and a state can resume in a world of another size.
#include <penstock_ext/samplers/by_tokens.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/text/packed_documents.hpp>

#include "ext/text/token_lists.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "support/planned.hpp"

namespace ps = penstock;

namespace {

using text =
    ps::record<ps::field<"tokens", std::uint16_t, ps::ragged>, ps::field<"label", std::uint64_t>>;
constexpr std::uint64_t samples = 1009;

/// A dataset in which sample i has up to 40 tokens, each with the value i.
struct texts {
  using record_type = text;
  [[nodiscard]] std::uint64_t size() const { return samples; }
  [[nodiscard]] ps::record_extents<text> extents() const { return {{.longest = 40}, {}}; }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const {
    return index * 7919 % 41 * (index % 5) / 4;
  }
  void read(std::uint64_t index, ps::sample<text> out) const {
    for (auto& token : ps::get<"tokens">(out).flat()) token = static_cast<std::uint16_t>(index);
    ps::get<"label">(out) = index;
  }
};

using batch_labels = std::vector<std::uint64_t>;

ps::by_tokens budget(std::uint64_t step = 12) {
  return {samples,
          [](std::uint64_t index) { return texts{}.length(index); },
          {.seed = 3, .max_tokens = 160, .window = 400, .batches_per_step = step}};
}
ps::sharded<ps::by_tokens> share_of(int rank, int world) {
  return {budget(), {.rank = rank, .world = world}};
}
ps::loader<texts, ps::sharded<ps::by_tokens>> loader_of(int rank, int world, std::size_t workers,
                                                        std::size_t run = 0) {
  const auto share = share_of(rank, world);
  return {texts{}, share,
          ps::loader_options{.batch_size = share.batch_size(),
                             .workers = workers,
                             .memory = {.max_values_per_batch = 160},
                             .tuning = {.chunk = run}}};
}

/// Returns the samples of each batch. Checks that every sample is complete.
template <class Range>
std::vector<batch_labels> batches_in(Range&& range) {
  std::vector<batch_labels> all;
  for (auto& batch : range) {
    const auto tokens = ps::get<"tokens">(batch);
    const auto labels = ps::get<"label">(batch).flat();
    REQUIRE(labels.size() == batch.size());
    REQUIRE(batch.valid() == batch.size());
    REQUIRE(tokens.values().size() <= 160);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      REQUIRE(tokens.length(i) == texts{}.length(labels[i]));
      for (const auto token : tokens[i].flat()) REQUIRE(token == labels[i]);
    }
    all.emplace_back(labels.begin(), labels.end());
  }
  return all;
}

/// Returns the batches of an epoch, computed from the sampler alone.
std::vector<batch_labels> planned_batches(std::uint64_t epoch) {
  const auto sampler = budget();
  const auto order = sampler.order(samples, epoch);
  std::vector<batch_labels> all(sampler.batches());
  for (std::size_t b = 0; b < all.size(); ++b) {
    all[b].resize(order.batch_size(b));
    order.fill(b * sampler.batch_size(), all[b]);
  }
  return all;
}

}  // namespace

TEST_CASE("a loader delivers the token batches of its sampler for any number of workers",
          "[flow][promise:exact-22]") {
  auto expected = planned_batches(0);
  const auto second = planned_batches(1);
  expected.insert(expected.end(), second.begin(), second.end());
  for (const std::size_t workers : {0U, 1U, 4U}) {
    for (const std::size_t run : {0U, 1U, 5U}) {
      auto loader = loader_of(0, 1, workers, run);
      CHECK(batches_in(loader.epochs(0, 2)) == expected);
      CHECK(loader.batches_per_epoch() == budget().batches());
      CHECK(loader.batches_per_step() == 12);
      CHECK(loader.stats().read.samples == 2 * samples);
    }
  }
}

TEST_CASE("token batches reach a device with their actual number of samples",
          "[flow][promise:exact-22]") {
  auto loader = loader_of(0, 1, 2);
  ps::transfer feed{loader};
  CHECK(batches_in(feed.epoch(1)) == planned_batches(1));
  const auto expected = planned_batches(0);
  const ps::loader_state state = feed.state_at({0, 5});
  CHECK(batches_in(feed.resume(state, 1)) ==
        std::vector<batch_labels>(expected.begin() + 5, expected.end()));
}

TEST_CASE("token batches resume at any batch, and in another world after a step",
          "[flow][promise:exact-22][promise:exact-6]") {
  const auto expected = planned_batches(0);
  // A run that repeatedly stops after a step of all ranks and resumes in a world of another size.
  const std::vector<std::pair<int, std::size_t>> plan{
      {4, 24}, {2, 26}, {1, 33}, {3, 36}, {12, 48}, {6, 60}, {1, expected.size()}};
  std::vector<batch_labels> seen(expected.size());
  auto saved = to_text(loader_of(0, 1, 0).state_at({0, 0}));
  std::size_t begun = 0;
  for (const auto& [world, end] : plan) {
    std::string next;
    const auto ranks = static_cast<std::size_t>(world);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto loader = loader_of(static_cast<int>(rank), world, rank % 3);
      const auto state = ps::from_text<ps::loader_state>(saved);
      CHECK(state.batch == begun);
      CHECK(loader.position_of(state) == ps::batch_position{0, begun / ranks});
      std::size_t at = begun + rank;
      for (auto& batch : loader.resume(state, 1)) {
        const auto labels = ps::get<"label">(batch).flat();
        CHECK(seen.at(at).empty());
        seen.at(at).assign(labels.begin(), labels.end());
        at += ranks;
        if (at >= end) break;
      }
      CHECK(at == end + rank);
      const auto here = to_text(loader.state());
      CHECK((next.empty() || here == next));  // the state is equal on all ranks
      next = here;
    }
    saved = next;
    begun = end;
  }
  CHECK(seen == expected);
  CHECK(ps::from_text<ps::loader_state>(saved).batch == expected.size());
}

TEST_CASE("a hundred restarts in random worlds read each sample once an epoch",
          "[flow][promise:exact-22][promise:exact-6]") {
  constexpr std::uint64_t step = 12;
  const std::vector<int> worlds{1, 2, 3, 4, 6, 12};
  std::mt19937 draw{5};
  std::vector<std::size_t> read(samples);
  std::string saved = to_text(loader_of(0, 1, 0).state_at({0, 0}));
  for (int restart = 0; restart < 100; ++restart) {
    const auto state = ps::from_text<ps::loader_state>(saved);
    const int world = worlds[draw() % worlds.size()];
    const auto ranks = static_cast<std::size_t>(world);
    // Number of batches on all ranks until the checkpoint.
    const std::uint64_t done = step * (1 + draw() % 4);
    const std::uint64_t lost = step * (draw() % 2);  // number of batches lost after the checkpoint
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto loader = loader_of(static_cast<int>(rank), world, rank % 2);
      std::uint64_t at = 0;
      for (auto& batch : loader.resume(state, ~std::uint32_t{0})) {
        if (at == (done + lost) / ranks) break;
        if (at++ >= done / ranks) continue;
        for (const std::uint64_t index : ps::get<"label">(batch).flat()) ++read[index];
        if (at == done / ranks) saved = to_text(loader.state());
      }
    }
  }
  const auto end = ps::from_text<ps::loader_state>(saved);
  auto rest = loader_of(0, 1, 2);  // the rest of the current epoch
  for (auto& batch : rest.resume(end, end.epoch + 1)) {
    for (const std::uint64_t index : ps::get<"label">(batch).flat()) ++read[index];
  }
  CHECK(end.epoch > 5);
  CHECK(read == std::vector<std::size_t>(samples, end.epoch + 1));
}

TEST_CASE(
    "a state between steps resumes in worlds that divide the step, and other worlds reject it",
    "[flow][promise:exact-7]") {
  const auto state = loader_of(1, 3, 0).state_at({0, 5});  // 15 batches on all ranks together
  CHECK(loader_of(0, 1, 0).position_of(state) == ps::batch_position{0, 15});
  auto four = loader_of(0, 4, 0);
  CHECK_THROWS_MATCHES(
      four.resume(state, 1), ps::state_mismatch,
      Catch::Matchers::Message("resume: the state is at batch 15 of all ranks, which is not a "
                               "multiple of the world size 4: save states only after whole steps"));
  const auto other = budget(4);
  ps::loader steps_of_four{texts{}, other, {.batch_size = other.batch_size()}};
  CHECK_THROWS_AS(steps_of_four.resume(state, 1), ps::state_mismatch);
}

TEST_CASE("a loader with another batch size rejects token batches", "[flow][promise:honest-7]") {
  const auto order = budget();
  CHECK_THROWS_AS((ps::loader{texts{}, order, {.batch_size = order.batch_size() + 1}}),
                  ps::option_error);
}

TEST_CASE("skipped samples shorten token batches", "[flow][promise:exact-9]") {
  struct some_bad : texts {
    void read(std::uint64_t index, ps::sample<text> out) const {
      if (index % 100 == 7) throw std::runtime_error("bad");
      texts::read(index, out);
    }
  };
  const auto order = budget();
  ps::loader_options options{.batch_size = order.batch_size(), .workers = 2};
  options.faults.on_error = {.action = ps::error_action::skip, .max_failure_rate = 1};
  ps::loader loader{some_bad{}, order, options};
  std::vector<batch_labels> expected = planned_batches(0);
  for (auto& batch : expected) {
    std::erase_if(batch, [](std::uint64_t index) { return index % 100 == 7; });
  }
  CHECK(batches_in(loader.epoch(0)) == expected);
}

TEST_CASE("a dataset receives hints only for the samples of batches by tokens",
          "[flow][promise:bounded-12]") {
  const std::vector<std::uint32_t> lengths = [] {
    std::vector<std::uint32_t> all(203);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i % 17);
    return all;
  }();
  const ps::by_tokens order{lengths, {.seed = 1, .max_tokens = 60}};
  for (const std::size_t workers : {0U, 2U}) {
    const planned data{203};
    ps::loader loader{data,
                      order,
                      {.batch_size = order.batch_size(),
                       .workers = workers,
                       .lookahead_bytes = ~std::uint64_t{0}}};
    const std::vector<std::uint64_t> read = labels_in(loader.epoch(0));
    CHECK(read.size() == 203);
    const auto reported = data.seen->reported();
    CAPTURE(workers, reported.size());
    if (workers == 0)
      CHECK(!reported.empty());  // workers may read all samples before a hint is sent
    // Hints arrive in reading order, at most once per sample, and only for samples that are read.
    auto at = read.begin();
    for (const std::uint64_t index : reported) {
      at = std::find(at, read.end(), index);
      REQUIRE(at != read.end());
      ++at;
    }
  }
}

TEST_CASE("packed rows can form token batches", "[packed][promise:exact-22]") {
  const test::numbered_documents documents{test::mixed_lengths(400)};
  const auto rows = ps::pack_documents<std::uint32_t>(documents, {.length = 64, .seed = 2});
  const ps::by_tokens order{rows.size(),
                            [](std::uint64_t) { return 64; },
                            {.seed = 1, .max_tokens = 512, .batches_per_step = 2}};
  CHECK(order.batch_size() == 8);
  ps::loader loader{rows, order, {.batch_size = order.batch_size(), .workers = 2}};
  std::uint64_t tokens = 0;
  for (auto& batch : loader.epoch(0)) {
    for (std::size_t row = 0; row < batch.size(); ++row) {
      tokens += static_cast<std::uint64_t>(
          ps::get<"cu_seqlens">(batch)(row, ps::get<"sequences">(batch)(row)));
    }
  }
  CHECK(tokens == rows.tokens());
}
