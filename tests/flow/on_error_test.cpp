// SPDX-License-Identifier: BSL-1.0
// Tests samples that cannot be read. The loader handles them identically for any number of workers,
// any chunk size and any prefetch.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/data/chunk_context.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/exclude.hpp>
#include <penstock_ext/quarantine/quarantine.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

constexpr auto at_once = 0ms;

/// The dataset `numbered`, except that some samples always fail, and others fail a given number of
/// times.
struct flaky {
  using record_type = numbered::record_type;
  std::uint64_t count = 100;
  std::set<std::uint64_t> always = {};
  // Number of initial failures, by sample index.
  std::map<std::uint64_t, std::uint64_t> at_first = {};

  struct shared {
    explicit shared(std::uint64_t size) : attempts(size) {}
    std::vector<std::atomic<std::uint64_t>> attempts;  // attempts per sample
  };
  std::shared_ptr<shared> state = std::make_shared<shared>(count);

  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const std::uint64_t attempt = ++state->attempts[index];
    // Values written by a failed read must not be visible.
    for (float& value : ps::get<"values">(out).flat()) value = -1;
    ps::get<"label">(out) = 0xbad;
    if (always.contains(index)) throw bad_sample(index);
    const auto some = at_first.find(index);
    if (some != at_first.end() && attempt <= some->second) throw bad_sample(index);
    for (float& value : ps::get<"values">(out).flat()) value = static_cast<float>(index);
    ps::get<"label">(out) = index;
  }
};

/// The same dataset, read in chunks. A bad sample makes the whole chunk fail, and the exception
/// does not identify the sample.
struct flaky_runs {
  using record_type = numbered::record_type;
  flaky each;
  [[nodiscard]] std::uint64_t size() const { return each.size(); }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out) const {
    for (std::size_t i = indices.size(); i-- != 0;) each.read(indices[i], out[i]);
  }
};

/// All contents of a batch that an error could corrupt.
struct seen {
  std::uint64_t epoch;
  std::uint64_t index;
  std::size_t valid;
  std::size_t skipped;
  std::vector<std::uint64_t> labels;
  bool operator==(const seen&) const = default;
};

template <class Batch>
seen look_at(const Batch& batch) {
  seen all{batch.epoch(), batch.number(), batch.valid(), batch.info().skipped, labels_of(batch)};
  const auto values = ps::get<"values">(batch);
  REQUIRE(batch.size() == all.labels.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      if (values(i, j) != static_cast<float>(all.labels[i])) throw std::runtime_error("torn");
    }
  }
  return all;
}

template <class Feed>
std::vector<seen> batches_of(Feed& feed, std::uint64_t epochs) {
  std::vector<seen> all;
  for (const auto& batch : feed.epochs(0, epochs)) all.push_back(look_at(batch));
  return all;
}

struct shape {
  std::size_t workers;
  std::size_t run;
  std::size_t prefetch;
};

/// Returns all combinations of options that must not affect the batches.
std::vector<shape> all_shapes() {
  std::vector<shape> all;
  for (const std::size_t workers : {0U, 1U, 2U, 4U}) {
    for (const std::size_t run : {0U, 1U, 3U, 16U}) {
      for (const std::size_t prefetch : {1U, 5U}) all.push_back({workers, run, prefetch});
    }
  }
  return all;
}

/// Returns the expected contents of each batch, computed from the epoch orders alone. `replace`
/// returns the substitute of a sample, or an empty optional if the sample is skipped.
template <class Replace>
std::vector<seen> expected_of(std::uint64_t samples, std::size_t batch_size, std::uint64_t epochs,
                              Replace replace) {
  std::vector<seen> all;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto order = ps::shuffled{.seed = 5}.order(samples, epoch);
    for (std::uint64_t begin = 0; begin < samples; begin += batch_size) {
      std::vector<std::uint64_t> wanted(std::min<std::uint64_t>(batch_size, samples - begin));
      order.fill(begin, wanted);
      seen batch{epoch, begin / batch_size, 0, 0, {}};
      for (const std::uint64_t sample : wanted) {
        const std::optional<std::uint64_t> instead = replace(epoch, sample);
        if (instead) {
          batch.labels.push_back(*instead);
        } else {
          ++batch.skipped;
        }
      }
      batch.valid = batch.labels.size();
      all.push_back(batch);
    }
  }
  return all;
}

ps::loader_options with(const shape& how, const ps::error_policy& policy) {
  return {.batch_size = 16,
          .workers = how.workers,
          .prefetch = how.prefetch,
          .seed = 9,
          .faults = {.on_error = policy},
          .tuning = {.chunk = how.run}};
}

const std::set<std::uint64_t> some_bad = {0, 7, 8, 9, 41, 76, 99};

constexpr ps::error_policy skips{.action = ps::error_action::skip, .max_failure_rate = 1};
constexpr ps::error_policy substitutes{.action = ps::error_action::replace, .max_failure_rate = 1};

/// Returns the message of the exception that ends a loop over `epochs` epochs. Sets `batches` to
/// the number of batches delivered before the exception.
template <class Feed>
std::string message_of(Feed& feed, std::uint64_t epochs, std::uint64_t& batches) {
  batches = 0;
  try {
    for (auto& batch : feed.epochs(0, epochs)) batches += batch.number() < 1'000'000;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a skipped sample shortens its batch, and later samples move up in order",
          "[flow][promise:exact-9][fault:samples-4]") {
  const auto expected = expected_of(100, 16, 2, [](std::uint64_t, std::uint64_t sample) {
    return some_bad.contains(sample) ? std::nullopt : std::optional{sample};
  });
  std::size_t skipped = 0;
  for (const auto& batch : expected) skipped += batch.skipped;
  REQUIRE(skipped == 2 * some_bad.size());
  for (const shape& how : all_shapes()) {
    INFO("workers " << how.workers << ", run " << how.run << ", prefetch " << how.prefetch);
    const flaky data{.always = some_bad};
    ps::loader loader{data, ps::shuffled{.seed = 5}, with(how, skips)};
    CHECK(batches_of(loader, 2) == expected);
    ps::loader of_runs{flaky_runs{data}, ps::shuffled{.seed = 5}, with(how, skips)};
    CHECK(batches_of(of_runs, 2) == expected);
  }
}

TEST_CASE("a substitute depends on seed, epoch and index alone, and batches keep their size",
          "[flow][promise:exact-9][fault:samples-4]") {
  const auto instead_of = [](std::uint64_t epoch, std::uint64_t sample) {
    if (!some_bad.contains(sample)) return std::optional{sample};
    ps::sample_generator bits{{.seed = 9, .epoch = epoch, .stage = ps::detail::substitute_stage},
                              sample};
    for (;;) {
      auto other = ps::uniform(bits, std::uint64_t{0}, std::uint64_t{98});
      other += other >= sample ? 1 : 0;
      if (!some_bad.contains(other)) return std::optional{other};
    }
  };
  REQUIRE(instead_of(0, 7) != instead_of(1, 7));
  const auto expected = expected_of(100, 16, 2, instead_of);
  for (const shape& how : all_shapes()) {
    INFO("workers " << how.workers << ", run " << how.run << ", prefetch " << how.prefetch);
    const flaky data{.always = some_bad};
    ps::loader loader{data, ps::shuffled{.seed = 5}, with(how, substitutes)};
    CHECK(batches_of(loader, 2) == expected);
    ps::loader of_runs{flaky_runs{data}, ps::shuffled{.seed = 5}, with(how, substitutes)};
    CHECK(batches_of(of_runs, 2) == expected);
    CHECK(loader.failures().replaced == 2 * some_bad.size());
  }
}

TEST_CASE("a sample that a retry reads does not change the batches", "[flow][fault:samples-4]") {
  const auto expected = expected_of(
      100, 16, 1, [](std::uint64_t, std::uint64_t sample) { return std::optional{sample}; });
  for (const shape& how : all_shapes()) {
    INFO("workers " << how.workers << ", run " << how.run << ", prefetch " << how.prefetch);
    const flaky data{.at_first = {{3, 1}, {4, 2}, {50, 2}, {99, 1}}};
    ps::loader loader{data, ps::shuffled{.seed = 5},
                      with(how, {.retries = 2, .initial_backoff = at_once})};
    CHECK(batches_of(loader, 1) == expected);
    const auto report = loader.failures();
    CHECK(report.failed_reads == 6);
    CHECK(report.recovered == 4);
    REQUIRE(report.samples.size() == 4);
    CHECK(report.samples[1] ==
          ps::failed_sample{4, "sample 4 is bad", 2, 0, ps::read_outcome::recovered, {4, 0}});
  }
}

TEST_CASE("a sample is read once and once per retry before the error action",
          "[flow][promise:honest-3]") {
  const auto then =
      GENERATE(ps::error_action::rethrow, ps::error_action::replace, ps::error_action::skip);
  for (const shape& how : all_shapes()) {
    INFO("workers " << how.workers << ", run " << how.run << ", prefetch " << how.prefetch);
    const flaky data{.always = {41}};
    ps::loader loader{data, ps::sequential{},
                      with(how, {.retries = 3, .initial_backoff = at_once, .action = then})};
    std::uint64_t batches = 0;
    const std::string message = message_of(loader, 1, batches);
    CHECK(data.state->attempts[41].load() == 4);
    CHECK(loader.failures().failed_reads == 4);
    CHECK(loader.failures().samples.front().given_up == 1);
    if (then == ps::error_action::rethrow) {
      CHECK(message == "sample 41 is bad");
      CHECK(batches == 2);
      CHECK(loader.last_failure()->str() ==
            "stage read, epoch 0, batch 2, sample 41 (position 9 of the batch)");
    } else {
      CHECK(message == "none");
      CHECK(batches == 7);
      CHECK_FALSE(loader.last_failure().has_value());
    }
  }
}

TEST_CASE("retries and substitutes use the random bits of the sample they read", "[flow]") {
  const auto draw = [](ps::sample<flaky::record_type> out, ps::sample_generator& rng) {
    ps::get<"values">(out)(0) = ps::uniform(rng, 0.0F, 1.0F);
  };
  const auto drawn_of = [](auto& loader) {
    std::vector<std::pair<std::uint64_t, float>> all;
    for (const auto& batch : loader.epoch(3)) {
      const auto values = ps::get<"values">(batch);
      const auto labels = ps::get<"label">(batch);
      for (std::size_t i = 0; i < batch.size(); ++i) all.emplace_back(labels(i), values(i, 0));
    }
    return all;
  };
  ps::loader sound{flaky{} | ps::map(draw), ps::sequential{}, with({2, 4, 2}, {})};
  const auto right = drawn_of(sound);
  ps::loader retrying{flaky{.at_first = {{5, 1}, {6, 1}, {60, 1}}} | ps::map(draw),
                      ps::sequential{},
                      with({2, 4, 2}, {.retries = 1, .initial_backoff = at_once})};
  CHECK(drawn_of(retrying) == right);
  ps::loader substituting{flaky{.always = some_bad} | ps::map(draw), ps::sequential{},
                          with({2, 4, 2}, substitutes)};
  const auto replaced = drawn_of(substituting);
  REQUIRE(replaced.size() == 100);
  for (std::uint64_t i = 0; i < 100; ++i) {
    CHECK((replaced[i].first == i) == !some_bad.contains(i));
    CHECK(replaced[i] == right[replaced[i].first]);
  }
}

TEST_CASE("a map over a run that failed is applied to every sample once", "[flow]") {
  // The whole chunk fails before the function receives any of its samples.
  const auto add = [](ps::sample<flaky::record_type> out) { ps::get<"label">(out) += 1000; };
  const auto run = GENERATE(std::size_t{1}, std::size_t{7}, std::size_t{16});
  const auto workers = GENERATE(std::size_t{0}, std::size_t{3});
  ps::loader loader{flaky_runs{{.always = some_bad}} | ps::map(add), ps::sequential{},
                    with({workers, run, 3}, skips)};
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 0; i < 100; ++i) {
    if (!some_bad.contains(i)) expected.push_back(i + 1000);
  }
  CHECK(labels_in(loader.epoch(0)) == expected);
}

namespace {

/// A dataset that reads chunks but behaves like a source that accepts only single requests: every
/// chunk of several samples fails.
struct no_runs {
  using record_type = numbered::record_type;
  [[nodiscard]] std::uint64_t size() const { return 100; }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out) const {
    if (indices.size() > 1) throw std::runtime_error("one at a time");
    numbered{100}.read(indices[0], out[0]);
  }
};

}  // namespace

TEST_CASE("a sample that can be read alone is not lost with its chunk", "[flow]") {
  ps::loader loader{no_runs{}, ps::sequential{}, with({2, 8, 2}, skips)};
  std::size_t samples = 0;
  for (const auto& batch : batches_of(loader, 1)) samples += batch.labels.size();
  CHECK(samples == 100);
  CHECK(loader.failures().skipped == 0);
}

namespace {

/// A dataset that reads chunks. A chunk of several samples fails at one sample, but each sample can
/// be read alone.
struct cut_off_runs {
  using record_type = numbered::record_type;
  [[nodiscard]] static std::uint64_t size() { return 128; }
  static void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out) {
    for (const auto index : indices) {
      if (index == 70 && indices.size() > 1) throw bad_sample(index);
    }
    for (std::size_t i = 0; i < indices.size(); ++i) ps::get<"label">(out)(i) = indices[i];
  }
};

/// A dataset with a bad sample that reads chunks with a context. Reports its progress if
/// `says_where` is true.
struct silent_runs {
  using record_type = numbered::record_type;
  std::uint64_t bad = 70;
  bool says_where = false;
  [[nodiscard]] static std::uint64_t size() { return 128; }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out,
                  const ps::chunk_context& context) const {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (says_where) context.at(i);
      if (indices[i] == bad) throw bad_sample(bad);
      ps::get<"label">(out)(i) = indices[i];
    }
  }
};

template <class Data>
std::set<std::uint64_t> lost_of(const Data& data, std::size_t run, std::size_t workers) {
  ps::loader loader{
      data,
      ps::sequential{},
      {.batch_size = 128,
       .workers = workers,
       .faults = {.on_error = {.action = ps::error_action::skip, .max_failure_rate = 1}},
       .tuning = {.chunk = run}}};
  std::set<std::uint64_t> lost;
  for (std::uint64_t i = 0; i < 128; ++i) lost.insert(i);
  for (const std::uint64_t label : labels_in(loader.epoch(0))) lost.erase(label);
  return lost;
}

template <class Data>
std::optional<ps::failure> failure_of(const Data& data, std::size_t workers) {
  ps::loader loader{
      data, ps::sequential{}, {.batch_size = 64, .workers = workers, .tuning = {.chunk = 16}}};
  CHECK_THROWS(samples_in(loader.epoch(0)));
  return loader.last_failure();
}

}  // namespace

TEST_CASE("a good sample is never lost with its chunk, for any adaptor", "[flow]") {
  const std::vector<std::uint64_t> nobody;
  for (const std::size_t run : {128U, 100U, 64U, 8U, 7U, 1U}) {
    for (const std::size_t workers : {0U, 3U}) {
      CAPTURE(run, workers);
      CHECK(lost_of(cut_off_runs{}, run, workers).empty());
      CHECK(lost_of(cut_off_runs{} | ps::subset(0, 128), run, workers).empty());
      CHECK(lost_of(cut_off_runs{} | ps::exclude(nobody), run, workers).empty());
      const std::set<std::uint64_t> bad{70};
      CHECK(lost_of(silent_runs{}, run, workers) == bad);
      CHECK(lost_of(silent_runs{} | ps::subset(0, 128), run, workers) == bad);
      CHECK(lost_of(silent_runs{} | ps::map([](ps::sample<numbered::record_type>) {}), run,
                    workers) == bad);
    }
  }
}

TEST_CASE("every stage reports the lowest position of several failures in a chunk", "[flow]") {
  const auto map = ps::map([](ps::sample<numbered::record_type> one) {
    if (ps::get<"label">(one) == 34) throw std::runtime_error("map of 34");
  });
  for (const std::size_t workers : {0U, 1U, 4U}) {
    const auto failed = failure_of(silent_runs{.bad = 40, .says_where = true} | map, workers);
    REQUIRE(failed);
    CHECK(failed->sample == 34);
    CHECK(failed->position == 34);
    CHECK(failed->exact);
  }
  const auto failed = failure_of(silent_runs{.bad = 40} | ps::subset(0, 128), 1);
  REQUIRE(failed);
  CHECK_FALSE(failed->exact);
}

TEST_CASE("the first exception is rethrown after the retries", "[flow]") {
  struct counting {
    using record_type = numbered::record_type;
    std::shared_ptr<std::atomic<int>> attempt = std::make_shared<std::atomic<int>>(0);
    [[nodiscard]] static std::uint64_t size() { return 1; }
    void read(std::uint64_t, ps::sample<record_type>) const {
      throw std::runtime_error("attempt " + std::to_string(++*attempt));
    }
  };
  ps::loader loader{
      counting{},
      ps::sequential{},
      {.batch_size = 1, .faults = {.on_error = {.retries = 2, .initial_backoff = at_once}}}};
  CHECK_THROWS_WITH(samples_in(loader.epoch(0)), "attempt 1");
}

TEST_CASE("without a substitute the first exception propagates after the eighth draw",
          "[flow][fault:samples-4]") {
  std::set<std::uint64_t> all_but_few;
  for (std::uint64_t i = 20; i < 1000; ++i) all_but_few.insert(i);
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  const flaky data{.count = 1000, .always = all_but_few};
  ps::loader loader{data, ps::sequential{}, with({workers, 5, 1}, substitutes)};
  std::uint64_t batches = 0;
  // Only 1 in 50 samples can be read. The loop finds the first sample, starting at 20, whose eight
  // substitute draws all fail.
  std::uint64_t stuck = 20;
  for (;; ++stuck) {
    ps::detail::substitutes others{{.seed = 9}, stuck, 1000};
    bool is_stuck = true;
    for (int i = 0; i < 8; ++i) is_stuck = others.next() >= 20 && is_stuck;
    if (is_stuck) break;
  }
  CHECK(message_of(loader, 1, batches) == "sample " + std::to_string(stuck) + " is bad");
  CHECK(batches == stuck / 16);
  CHECK(loader.last_failure()->sample == stuck);
  CHECK(loader.last_failure()->position == stuck % 16);
}

TEST_CASE("a dataset of one sample has no substitute", "[flow][fault:samples-4]") {
  ps::loader loader{flaky{.count = 1, .always = {0}}, ps::sequential{},
                    with({1, 0, 1}, substitutes)};
  std::uint64_t batches = 0;
  CHECK(message_of(loader, 1, batches) == "sample 0 is bad");
}

TEST_CASE("the sample that exceeds a limit is the same for any workers, run and prefetch",
          "[flow][promise:exact-9][fault:samples-4]") {
  for (const shape& how : all_shapes()) {
    INFO("workers " << how.workers << ", run " << how.run << ", prefetch " << how.prefetch);
    std::uint64_t batches = 0;
    {  // the first batches contain four bad samples; the fifth is in batch 4
      ps::loader loader{
          flaky{.always = {1, 2, 20, 36, 70, 71, 90}}, ps::sequential{},
          with(how, {.action = ps::error_action::skip, .max_failures = 4, .max_failure_rate = 1})};
      CHECK(message_of(loader, 1, batches) == "sample 70 is bad");
      CHECK(batches == 4);
      CHECK(loader.last_failure()->str() ==
            "stage read, epoch 0, batch 4, sample 70 (position 6 of the batch); passed on: 6 of 80 "
            "samples could not be read, and faults.on_error.max_failures is 4");
    }
    {  // the limit covers the loader's whole lifetime, at three failures per epoch
      ps::loader loader{
          flaky{.always = {1, 2, 20}}, ps::sequential{},
          with(how,
               {.action = ps::error_action::replace, .max_failures = 7, .max_failure_rate = 1})};
      CHECK(message_of(loader, 1, batches) == "none");
      CHECK(message_of(loader, 1, batches) == "none");
      CHECK(message_of(loader, 1, batches) == "sample 1 is bad");
      CHECK(batches == 0);
    }
    {  // 3 of the first 16 samples exceed the rate, but the check starts at sample 100
      ps::loader loader{flaky{.count = 200, .always = {0, 1, 2, 150, 151, 152, 153}},
                        ps::sequential{},
                        with(how, {.action = ps::error_action::skip, .max_failure_rate = 0.03})};
      CHECK(message_of(loader, 1, batches) == "sample 150 is bad");
      CHECK(batches == 9);
    }
  }
}

TEST_CASE("a failure rate limit applies after a hundred samples", "[flow]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  const auto message_for = [&](std::uint64_t samples, std::size_t batch_size) {
    ps::loader loader{
        flaky{.count = samples, .always = {91}},
        ps::sequential{},
        {.batch_size = batch_size,
         .workers = workers,
         .faults = {.on_error = {.action = ps::error_action::skip, .max_failure_rate = 0.005}}}};
    std::uint64_t batches = 0;
    return message_of(loader, 1, batches);
  };
  CHECK(message_for(99, 9) == "none");
  CHECK(message_for(100, 10) == "sample 91 is bad");
}

TEST_CASE("a limit of zero ends the range at the first failed sample, and retries do not count",
          "[flow]") {
  std::uint64_t batches = 0;
  ps::loader none{flaky{.always = {50}}, ps::sequential{},
                  with({2, 0, 2}, {.action = ps::error_action::skip, .max_failures = 0})};
  CHECK(message_of(none, 1, batches) == "sample 50 is bad");
  ps::loader retried{flaky{.at_first = {{50, 1}, {51, 1}}}, ps::sequential{},
                     with({2, 0, 2}, {.retries = 1,
                                      .initial_backoff = at_once,
                                      .action = ps::error_action::skip,
                                      .max_failures = 0,
                                      .max_failure_rate = 0})};
  CHECK(message_of(retried, 1, batches) == "none");
}

TEST_CASE("a batch whose samples were all skipped has size 0, through a transfer too",
          "[flow][fault:samples-4]") {
  std::set<std::uint64_t> third;
  for (std::uint64_t i = 32; i < 48; ++i) third.insert(i);
  const auto workers = GENERATE(std::size_t{0}, std::size_t{3});
  ps::cpu_device device;
  ps::loader loader{flaky{.always = third}, ps::sequential{}, device, with({workers, 5, 2}, skips)};
  ps::transfer feed{loader, device.inline_stream(), {.depth = 1}};
  for (auto& batches : {batches_of(loader, 1), batches_of(feed, 1)}) {
    REQUIRE(batches.size() == 7);
    CHECK(batches[2] == seen{0, 2, 0, 16, {}});
    CHECK(batches[3].labels.front() == 48);
    CHECK(batches[3].labels.size() == 16);
  }
}

namespace {

/// A record with a single field, so that copying an empty batch transfers no byte.
struct one_field {
  using record_type = ps::record<ps::field<"label", std::uint64_t>>;
  [[nodiscard]] std::uint64_t size() const { return 8; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    if (index < 4) throw bad_sample(index);
    ps::get<"label">(out) = index;
  }
};

}  // namespace

TEST_CASE("an empty batch of one field reaches the device like any other batch",
          "[flow][fault:samples-4]") {
  ps::cpu_device device;
  ps::loader loader{
      one_field{}, ps::sequential{}, device, {.batch_size = 4, .faults = {.on_error = skips}}};
  ps::transfer feed{loader, device.inline_stream(), {.depth = 1}};
  std::vector<std::vector<std::uint64_t>> all;
  for (auto& batch : feed.epoch(0)) all.push_back(labels_of(batch));
  CHECK(all == std::vector<std::vector<std::uint64_t>>{{}, {4, 5, 6, 7}});
}

TEST_CASE("skips shorten a padded batch: valid and padding samples are counted apart", "[flow]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  ps::loader loader{flaky{.count = 10, .always = {1, 9}},
                    ps::sequential{},
                    {.batch_size = 4,
                     .workers = workers,
                     .last_batch = ps::last_batch::pad,
                     .faults = {.on_error = skips},
                     .tuning = {.chunk = 1}}};
  CHECK(batches_of(loader, 1) == std::vector<seen>{{0, 0, 3, 1, {0, 2, 3}},
                                                   {0, 1, 4, 0, {4, 5, 6, 7}},
                                                   {0, 2, 1, 2, {8, 0}}});
}

TEST_CASE("a skip beyond its limit throws, and names the limit", "[flow][fault:samples-4]") {
  const std::size_t workers = GENERATE(0U, 3U);
  std::uint64_t batches = 0;
  SECTION("the failure rate") {
    ps::loader loader{flaky{.always = {1, 2, 20, 36, 70, 71, 97}}, ps::sequential{},
                      with({workers, 0, 2}, {.action = ps::error_action::skip})};
    // The first batch after sample 100 exceeds the limit.
    CHECK(message_of(loader, 1, batches) == "sample 97 is bad");
    REQUIRE(loader.last_failure()->reason);
    CHECK(loader.last_failure()->reason->option == "faults.on_error.max_failure_rate");
    CHECK_THAT(loader.last_failure()->str(),
               Catch::Matchers::EndsWith("; passed on: 7 of 100 samples could not be read, and "
                                         "faults.on_error.max_failure_rate is 0.05"));
  }
  SECTION("the number of failures") {
    ps::loader loader{
        flaky{.always = {1, 2}}, ps::sequential{},
        with({workers, 0, 2}, {.action = ps::error_action::replace, .max_failures = 1})};
    CHECK(message_of(loader, 1, batches) == "sample 1 is bad");
    REQUIRE(loader.last_failure()->reason);
    CHECK(loader.last_failure()->reason->option == "faults.on_error.max_failures");
    CHECK(loader.last_failure()->reason->value == 1);
    CHECK(loader.last_failure()->reason->lost == 2);
    CHECK(loader.last_failure()->reason->requested == 16);
  }
  SECTION("no limit is named if the error action is rethrow") {
    ps::loader loader{flaky{.always = {1}}, ps::sequential{},
                      with({workers, 0, 2}, {.retries = 0})};
    CHECK(message_of(loader, 1, batches) == "sample 1 is bad");
    CHECK_FALSE(loader.last_failure()->reason);
  }
}

TEST_CASE("delivery in completion order skips the same samples", "[flow][promise:exact-9]") {
  auto options = with({3, 2, 4}, skips);
  options.in_order = false;
  ps::loader loader{flaky{.always = some_bad}, ps::shuffled{.seed = 5}, options};
  auto batches = batches_of(loader, 1);
  std::sort(batches.begin(), batches.end(),
            [](const seen& a, const seen& b) { return a.index < b.index; });
  CHECK(batches == expected_of(100, 16, 1, [](std::uint64_t, std::uint64_t sample) {
          return some_bad.contains(sample) ? std::nullopt : std::optional{sample};
        }));
}

TEST_CASE("the ledger keeps failed substitutes apart from the samples they replaced",
          "[flow][promise:honest-3]") {
  ps::loader loader{flaky{.always = some_bad}, ps::sequential{}, with({2, 3, 2}, substitutes)};
  (void)batches_of(loader, 1);
  const auto report = loader.failures();
  CHECK(report.replaced == some_bad.size());
  CHECK(report.skipped == 0);
  REQUIRE(report.samples.size() == some_bad.size());
  std::uint64_t failures = 0;
  for (const auto& one : report.samples) failures += one.failures;
  CHECK(failures == report.failed_reads);
  std::stringstream list;
  report.write_quarantine(list);
  CHECK(ps::read_quarantine(list) == std::vector<std::uint64_t>(some_bad.begin(), some_bad.end()));
}

TEST_CASE("a loader with error_action::rethrow keeps no ledger", "[flow]") {
  ps::loader loader{flaky{.always = {5}}, ps::sequential{}, with({2, 0, 2}, {})};
  std::uint64_t batches = 0;
  CHECK(message_of(loader, 1, batches) == "sample 5 is bad");
  CHECK(loader.failures().failed_reads == 0);
  CHECK(loader.failures().samples.empty());
}

namespace {

/// A dataset that signals when sample 40 is read, and then fails.
struct telling {
  using record_type = numbered::record_type;
  std::shared_ptr<ps::detail::waitable_counter> tried =
      std::make_shared<ps::detail::waitable_counter>();
  [[nodiscard]] std::uint64_t size() const { return 100; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"label">(out) = index;
    if (index != 40) return;
    tried->advance();
    throw bad_sample(index);
  }
};

}  // namespace

TEST_CASE("a worker that waits for a retry ends with the range or the loader",
          "[flow][fault:samples-4]") {
  // The backoff is one day, so the test finishes only if the wait is interrupted.
  const ps::error_policy patient{.retries = 1, .initial_backoff = 24h};
  const telling data;
  std::optional<ps::loader<telling, ps::sequential>> loader;
  loader.emplace(telling{data}, ps::sequential{}, with({2, 4, 3}, patient));
  for (std::uint32_t round = 1; round <= 2; ++round) {
    auto range = loader->epoch(0);
    auto it = range.begin();
    CHECK(it->number() == 0);
    data.tried->wait([&](std::uint32_t times) { return times >= round; });
    if (round == 2) loader.reset();
  }
  CHECK(data.tried->load() == 2);
}

TEST_CASE("a range may be left while samples fail, and the next range is correct", "[flow]") {
  ps::loader loader{
      flaky{.always = some_bad}, ps::shuffled{.seed = 5},
      with({3, 2, 4},
           {.action = ps::error_action::skip, .max_failures = 1'000'000, .max_failure_rate = 1})};
  const auto expected = expected_of(100, 16, 1, [](std::uint64_t, std::uint64_t sample) {
    return some_bad.contains(sample) ? std::nullopt : std::optional{sample};
  });
  for (std::size_t leave = 0; leave < 40; ++leave) {
    std::size_t left = leave % 8;
    for (auto& batch : loader.epochs(0, 3)) {
      if (left-- == 0) break;
      (void)batch;
    }
    REQUIRE(batches_of(loader, 1) == expected);
  }
}

TEST_CASE("with a feed the limits count each delivered batch once",
          "[flow][promise:exact-9][fault:samples-4]") {
  // Each batch has a bad sample. The batch that exceeds the second limit is already in the feed at
  // the break, and its exception is dropped.
  for (const std::uint64_t max : {50U, 22U}) {
    for (const std::size_t depth : {1U, 2U, 8U}) {
      INFO("at most " << max << ", depth " << depth);
      flaky data{.count = 1000};
      for (std::uint64_t i = 3; i < 1000; i += 10) data.always.insert(i);
      ps::loader loader{
          data, ps::sequential{},
          with({2, 0, 8},
               {.action = ps::error_action::skip, .max_failures = max, .max_failure_rate = 1})};
      REQUIRE(loader.options().batch_size == 16);
      ps::transfer feed{loader, {.depth = depth}};
      // Returns the number of bad samples before batch `batch`. Every sample 10 i + 3 is bad.
      const auto lost_before = [](std::uint64_t batch) { return (16 * batch + 6) / 10; };
      std::uint64_t lost = 0;
      for (auto& batch : feed.epoch(0)) {
        lost += batch.info().skipped;
        // Waits until later batches are ready, so that the feed receives them in its next step.
        // Nothing may be read after batch 13, which exceeds the second limit.
        const auto later = (std::min<std::uint64_t>)(16 * batch.number() + 60, 16 * 13 + 12);
        while (data.state->attempts[later] == 0) std::this_thread::yield();
        if (batch.number() == 12) break;
      }
      CHECK(lost == lost_before(13));
      std::uint64_t batches = 0;
      const auto again = [&] {
        for (auto& batch : feed.epoch(0)) {
          lost += batch.info().skipped;
          ++batches;
        }
      };
      CHECK_THROWS_AS(again(), bad_sample);
      const std::uint64_t lost_next = lost_before(batches + 1) - lost_before(batches);
      CHECK(lost <= max);
      CHECK(lost + lost_next > max);
      REQUIRE(feed.last_failure().has_value());
      CHECK(feed.last_failure()->batch == batches);
      REQUIRE(feed.last_failure()->reason);
      CHECK(feed.last_failure()->reason->lost == lost + lost_next);
    }
  }
}

TEST_CASE("batches from a transform's exception on do not count towards the limits",
          "[flow][promise:exact-9][fault:samples-4]") {
  for (const std::size_t depth : {1U, 4U}) {
    INFO("depth " << depth);
    flaky data{.count = 1000};
    for (std::uint64_t i = 3; i < 1000; i += 10) data.always.insert(i);
    ps::loader loader{
        data, ps::sequential{},
        with({2, 0, 8},
             {.action = ps::error_action::skip, .max_failures = 50, .max_failure_rate = 1})};
    std::uint64_t calls = 0;
    ps::transfer feed{
        loader,
        ps::cpu_device{},
        ps::on_stream<numbered::record_type>([&calls](const auto&, const auto&, auto) {
          if (calls++ == 5) throw std::runtime_error("transform");
        }),
        {.depth = depth}};
    std::uint64_t lost = 0;
    const auto loop = [&] {
      for (auto& batch : feed.epoch(0)) lost += batch.info().skipped;
    };
    CHECK_THROWS_WITH(loop(), "transform");
    CHECK_THROWS_AS(loop(), bad_sample);
    REQUIRE(feed.last_failure().has_value());
    REQUIRE(feed.last_failure()->reason);
    CHECK(lost <= 50);
    CHECK(feed.last_failure()->reason->lost > 50);
    CHECK(feed.last_failure()->reason->lost - lost <= 2);  // at most the failures of that batch
  }
}
