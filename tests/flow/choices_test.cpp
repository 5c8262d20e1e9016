// SPDX-License-Identifier: BSL-1.0
// Tests options that a program selects at run time: type-erased datasets and loaders, quarantine
// lists, and functions over whole batches. Also tests the sample indices of a batch. The results do
// not depend on the number of workers.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/load/any_loader.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/adaptors/exclude.hpp>
#include <penstock_ext/adaptors/map_batch.hpp>
#include <penstock_ext/quarantine/quarantine.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using indices = std::vector<std::uint64_t>;
using label_record = ps::record<ps::field<"label", std::uint64_t>>;

indices list_of(std::span<const std::uint64_t> some) { return {some.begin(), some.end()}; }

/// A dataset in which sample i contains i, except for the bad samples. Counts each read of a bad
/// sample.
struct partly_bad {
  using record_type = label_record;
  static constexpr std::uint64_t count = 500;
  std::atomic<std::uint64_t>* bad_reads = nullptr;
  static bool is_bad(std::uint64_t i) { return i % 50 == 7 || i % 50 == 8; }
  std::uint64_t size() const { return count; }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    ps::get<"label">(out) = i;
    if (!is_bad(i)) return;
    if (bad_reads != nullptr) ++*bad_reads;
    throw bad_sample(i);
  }
};

/// Returns the bad samples among samples 0 to `end` - 1.
indices all_bad(std::uint64_t end = partly_bad::count) {
  indices bad;
  for (std::uint64_t i = 0; i < end; ++i) {
    if (partly_bad::is_bad(i)) bad.push_back(i);
  }
  return bad;
}

/// The contents of a batch as a loop sees them.
struct batch_seen {
  indices labels;
  indices indices_said;
  indices replaced;
  std::size_t skipped;
  friend bool operator==(const batch_seen&, const batch_seen&) = default;
};

template <class Range>
std::vector<batch_seen> look_at_all(Range range) {
  std::vector<batch_seen> all;
  for (const auto& batch : range) {
    all.push_back({labels_of(batch), list_of(batch.indices()), list_of(batch.replaced()),
                   batch.info().skipped});
  }
  return all;
}

ps::loader_options listing(std::size_t workers, const ps::error_policy& policy = {}) {
  return {.batch_size = 16,
          .workers = workers,
          .seed = 4,
          .faults = {.on_error = policy},
          .instrumentation = {.indices = true}};
}

}  // namespace

TEST_CASE("a batch lists its samples on the host and on the device", "[flow][promise:honest-3]") {
  const std::size_t workers = GENERATE(0U, 1U, 4U);
  auto options = listing(workers);
  options.last_batch = GENERATE(ps::last_batch::keep, ps::last_batch::pad);
  ps::loader loader{numbered{.count = 101}, ps::shuffled{.seed = 3}, options};
  std::size_t batches = 0;
  for (const auto& batch : loader.epochs(0, 2)) {
    CHECK(list_of(batch.indices()) == labels_of(batch));
    CHECK(batch.replaced().empty());
    ++batches;
  }
  CHECK(batches == 14);
  ps::transfer feed{loader, ps::transfer_options{.depth = 2}};
  for (const auto& batch : feed.epochs(0, 2)) {
    CHECK(list_of(batch.indices()) == labels_of(batch));
    ++batches;
  }
  CHECK(batches == 28);
  // A lease that outlives its iteration still lists its samples.
  std::vector<decltype(feed)::batch_type> kept;
  for (auto& batch : feed.epoch(0)) {
    kept.push_back(std::move(batch));
    if (kept.size() == 1) continue;
    for (const auto& one : kept) CHECK(list_of(one.indices()) == labels_of(one));
    break;
  }
}

TEST_CASE("without the option a batch does not list its samples", "[flow]") {
  ps::loader loader{numbered{.count = 40}, ps::sequential{}, {.batch_size = 16, .workers = 1}};
  for (const auto& batch : loader.epoch(0)) CHECK(batch.indices().empty());
  ps::transfer feed{loader};
  for (const auto& batch : feed.epoch(0)) CHECK(batch.indices().empty());
}

TEST_CASE("a batch lists substitutes and omits skipped samples", "[flow][promise:honest-3]") {
  const auto action = GENERATE(ps::error_action::skip, ps::error_action::replace);
  const bool is_skipped = action == ps::error_action::skip;
  const auto seen = [&](std::size_t workers, std::size_t run) {
    auto options = listing(workers, {.action = action, .max_failure_rate = 1});
    options.tuning.chunk = run;
    ps::loader loader{partly_bad{}, ps::shuffled{.seed = 3}, options};
    auto all = look_at_all(loader.epochs(0, 2));
    ps::transfer feed{loader};
    CHECK((look_at_all(feed.epochs(0, 2)) == all));
    return all;
  };
  const auto expected = seen(0, 16);
  std::size_t lost = 0;
  for (const auto& one : expected) {
    CHECK(one.indices_said == one.labels);
    CHECK(std::is_sorted(one.replaced.begin(), one.replaced.end()));
    CHECK((one.skipped == 0 || is_skipped));
    lost += one.skipped + one.replaced.size();
  }
  CHECK(lost == 2 * all_bad().size());
  for (const std::size_t workers : {1U, 4U}) {
    for (const std::size_t run : {1U, 5U}) CHECK((seen(workers, run) == expected));
  }
}

TEST_CASE("quarantined samples are not read, and all others are unchanged",
          "[flow][promise:honest-3]") {
  const auto action = GENERATE(ps::error_action::skip, ps::error_action::replace);
  const std::size_t workers = GENERATE(0U, 1U, 4U);
  const auto part = [](std::atomic<std::uint64_t>* reads) {
    return partly_bad{reads} | ps::subset(50, 450);
  };
  ps::loader learning{part(nullptr), ps::shuffled{.seed = 3},
                      listing(0, {.action = action, .max_failure_rate = 1})};
  const auto expected = look_at_all(learning.epochs(0, 2));
  std::stringstream list;
  learning.failures().write_quarantine(list);

  std::atomic<std::uint64_t> bad_reads{0};
  ps::loader loader{part(&bad_reads), ps::shuffled{.seed = 3},
                    listing(workers, {.retries = 3,
                                      .action = action,
                                      // Quarantined samples do not count as failures.
                                      .max_failures = 0,
                                      .quarantine_list = ps::read_quarantine(list)})};
  CHECK(loader.state() == learning.state_at({}));
  CHECK((look_at_all(loader.epochs(0, 2)) == expected));
  CHECK(bad_reads == 0);
  const auto report = loader.failures();
  CHECK(report.failed_reads == 0);
  CHECK(report.skipped + report.replaced == 2 * 16);
  // The new list includes the entries of the old list.
  std::stringstream again;
  report.write_quarantine(again);
  CHECK(ps::read_quarantine(again, {.dataset = 500}).size() == 16);
}

TEST_CASE("a quarantined sample is an error by default", "[flow][promise:honest-3]") {
  const std::size_t workers = GENERATE(0U, 2U);
  ps::loader loader{partly_bad{}, ps::sequential{},
                    listing(workers, {.quarantine_list = {37, 21}})};
  std::size_t batches = 0;
  const auto loop = [&] {
    for (auto& batch : loader.epoch(0)) batches += batch ? 1U : 0U;
  };
  // The list is incomplete, so the first bad sample that is not in the list is read.
  CHECK_THROWS_AS(loop(), bad_sample);
  CHECK(batches == 0);
  ps::loader other{numbered{.count = 100}, ps::sequential{},
                   listing(workers, {.quarantine_list = {37, 21}})};
  const auto problem = test::error_of<ps::quarantined_sample>([&] {
    for (auto& batch : other.epoch(0)) batches += batch ? 1U : 0U;
  });
  CHECK(problem.index() == 21);
  CHECK_THAT(problem.what(), Catch::Matchers::Contains(
                                 "sample 21 of the dataset is in faults.on_error.quarantine_list"));
  CHECK(batches == 1);
  REQUIRE(other.last_failure());
  CHECK(other.last_failure()->str() ==
        "stage read, epoch 0, batch 1, sample 21 (position 5 of the batch)");
}

TEST_CASE("a quarantine list of another dataset is rejected", "[flow][fault:samples-3]") {
  const auto why = [](auto data, indices known) -> std::string {
    try {
      const ps::loader loader{std::move(data), ps::sequential{},
                              listing(0, {.quarantine_list = std::move(known)})};
      return "none";
    } catch (const ps::option_error& problem) {
      return problem.what();
    }
  };
  CHECK(why(partly_bad{}, {499}) == "none");
  CHECK(why(partly_bad{} | ps::subset(0, 10), {499}) == "none");
  CHECK(why(partly_bad{}, {500, 3}) ==
        "faults.on_error.quarantine_list: sample 500 is not in the dataset of 500 samples: check "
        "that "
        "the list belongs to this dataset");
  CHECK_THAT(why(ps::concat(partly_bad{}, partly_bad{}), {3}),
             Catch::Matchers::StartsWith(
                 "faults.on_error.quarantine_list: the list does not specify which of the 2 "));
}

TEST_CASE("map_batch sees whole batches and gives the same result for any number of workers",
          "[flow][promise:exact-1]") {
  using pair = ps::record<ps::field<"label", std::uint64_t>, ps::field<"sum", std::uint64_t>>;
  const auto widen = [](ps::const_sample<label_record> in, ps::sample<pair> out) {
    ps::get<"label">(out) = ps::get<"label">(in);
  };
  // Assigns the label of the mirror image and the batch's random number to each sample.
  const auto mirror = [](ps::batch_view<pair> all, ps::sample_generator& rng) {
    const auto labels = ps::get<"label">(all);
    const auto sums = ps::get<"sum">(all);
    const std::uint64_t drawn = rng();
    for (std::size_t i = 0; i < all.size(); ++i)
      sums(i) = (labels(all.size() - 1 - i) << 32) + drawn;
  };
  const auto last_label = [](ps::batch_view<pair> all) {
    ps::get<"label">(all)(0) = ps::get<"label">(all)(all.size() - 1);
  };
  const auto seen = [&](std::size_t workers, ps::last_batch last) {
    auto options = listing(workers, {.action = ps::error_action::skip, .max_failure_rate = 1});
    options.last_batch = last;
    options.tuning.chunk = workers == 4 ? 3 : 0;
    ps::loader loader{
        partly_bad{} | ps::map<pair>(widen) | ps::map_batch(mirror) | ps::map_batch(last_label),
        ps::shuffled{.seed = 3}, options};
    std::vector<indices> all;
    ps::transfer feed{loader};
    for (const auto& batch : feed.epochs(0, 2)) {
      const auto sums = ps::get<"sum">(batch);
      const indices samples = list_of(batch.indices());
      const std::uint64_t drawn = sums(0) & 0xffffffff;
      for (std::size_t i = 0; i < batch.size(); ++i)
        REQUIRE(sums(i) == (samples[batch.size() - 1 - i] << 32) + drawn);
      CHECK(labels_of(batch)[0] == samples.back());
      all.push_back(samples);
      all.back().push_back(drawn);
    }
    return all;
  };
  for (const auto last : {ps::last_batch::keep, ps::last_batch::pad}) {
    const auto expected = seen(0, last);
    CHECK(expected.size() == 64);
    indices draws;
    for (const auto& one : expected) draws.push_back(one.back());
    std::sort(draws.begin(), draws.end());
    CHECK(std::adjacent_find(draws.begin(), draws.end()) == draws.end());
    CHECK((seen(1, last) == expected));
    CHECK((seen(4, last) == expected));
  }
}

TEST_CASE("an exception of map_batch ends the range at its batch and reports the stage",
          "[flow][fault:samples-1]") {
  const std::size_t workers = GENERATE(0U, 1U, 4U);
  const auto reject = [](ps::batch_view<label_record> all) {
    if (ps::get<"label">(all)(0) == 32) throw std::domain_error("32");
  };
  struct counting {
    using record_type = label_record;
    std::uint64_t size() const { return 100; }
    void read(std::uint64_t i, ps::sample<record_type> out) const { ps::get<"label">(out) = i; }
  };
  ps::loader loader{counting{} | ps::map_batch(reject), ps::sequential{},
                    listing(workers, {.action = ps::error_action::skip})};
  indices seen;
  const auto loop = [&](const ps::batch_position& from) {
    for (const auto& batch : loader.batches(from, ps::until_epoch{1}))
      seen.push_back(batch.number());
  };
  CHECK_THROWS_AS(loop({0, 0}), std::domain_error);
  CHECK(seen == indices{0, 1});
  REQUIRE(loader.last_failure());
  CHECK(loader.last_failure()->str() == "stage batch, epoch 0, batch 2");
  loop({0, 3});
  CHECK(seen == indices{0, 1, 3, 4, 5, 6});

  // A batch that could not be read reports its own error and is not passed to the function.
  std::atomic<std::uint64_t> bad_batches{0};
  const auto count = [&bad_batches](ps::batch_view<label_record> all) {
    bad_batches += ps::get<"label">(all)(0) == 0 ? 1U : 0U;
  };
  ps::loader unread{partly_bad{} | ps::map_batch(count), ps::sequential{}, listing(workers)};
  CHECK_THROWS_AS(samples_in(unread.epoch(0)), bad_sample);
  CHECK(unread.last_failure()->stage == "read");
  CHECK(bad_batches == 0);
}

namespace {

struct flags {
  bool augment;
  bool shuffle;
  std::size_t workers;
};

// Declares a loader and a feed as a header of a program would.
ps::any_loader<label_record> make_any(const flags& chosen);
using any_feed = ps::transfer<ps::any_loader<label_record>>;

const auto twice = [](ps::sample<label_record> s, ps::sample_generator& rng) {
  ps::get<"label">(s) = (ps::get<"label">(s) << 32) | static_cast<std::uint32_t>(rng());
};

ps::any_loader<label_record> make_any(const flags& chosen) {
  ps::any_dataset<label_record> data = partly_bad{} | ps::exclude(all_bad());
  if (chosen.augment) data = data | ps::map(twice);
  const auto options = listing(chosen.workers);
  if (chosen.shuffle) return ps::loader{data, ps::shuffled{.seed = 3}, options};
  return ps::loader{data, ps::sequential{}, options};
}

}  // namespace

TEST_CASE("an any_loader delivers the batches of its loader", "[flow][promise:exact-1]") {
  const flags chosen{.augment = GENERATE(false, true),
                     .shuffle = GENERATE(false, true),
                     .workers = GENERATE(0U, 2U)};
  const auto expected = [&] {
    const auto all = [&](auto loader) { return look_at_all(loader.epochs(0, 2)); };
    const auto good = partly_bad{} | ps::exclude(all_bad());
    if (chosen.augment)
      return all(ps::loader{good | ps::map(twice), ps::shuffled{.seed = 3}, listing(0)});
    return all(ps::loader{good, ps::shuffled{.seed = 3}, listing(0)});
  };
  ps::any_loader any = make_any(chosen);
  CHECK(any.batches_per_epoch() == 30);
  CHECK(any.samples_per_epoch() == 480);
  CHECK(any.options().workers == chosen.workers);
  if (chosen.shuffle) CHECK((look_at_all(any.epochs(0, 2)) == expected()));
  const auto first = look_at_all(any.epoch(0));

  any_feed feed{make_any(chosen)};
  CHECK((look_at_all(feed.epoch(0)) == first));
  CHECK(feed.batches_per_epoch() == 30);
  CHECK(feed.source().footprint().slot_count > 0);
  CHECK(feed.source().failures().samples.empty());
  CHECK(feed.stats().loader.has_value());
  CHECK(feed.state() == any.state());

  // A state of either loader can resume the other loader, even in the middle of an epoch.
  const ps::loader_state at = any.state_at({0, 17});
  auto rest = look_at_all(feed.resume(at, 1));
  CHECK(rest.size() == 13);
  CHECK(std::equal(rest.begin(), rest.end(), first.begin() + 17));
  CHECK_THROWS_AS((void)any.resume(make_any({chosen.augment, !chosen.shuffle, 0}).state(), 1),
                  ps::state_mismatch);
  // Assigns another loader while a range and a lease exist.
  auto range = any.epoch(0);
  auto it = range.begin();
  auto lease = std::move(*it);
  any = make_any(chosen);
  CHECK_THROWS_AS(++it, ps::cancelled);
  CHECK(it == range.end());
  CHECK(labels_of(lease) == first[0].labels);
  CHECK((look_at_all(any.epoch(0)) == first));
}

TEST_CASE("an any_loader throws the exceptions of its loader", "[flow][promise:exact-1]") {
  const std::size_t workers = GENERATE(0U, 2U);
  ps::any_loader any{ps::loader{partly_bad{}, ps::sequential{}, listing(workers)}};
  CHECK_THROWS_AS(samples_in(any.epoch(0)), bad_sample);
  CHECK(any.last_failure()->sample == 7);
  ps::transfer feed{any};
  CHECK_THROWS_AS(samples_in(feed.epoch(0)), bad_sample);
  CHECK(feed.last_failure()->sample == 7);
}
