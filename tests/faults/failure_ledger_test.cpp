// SPDX-License-Identifier: BSL-1.0
#include <penstock/faults/failure_ledger.hpp>

#include <cstdint>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::read_outcome;
using ledger = ps::detail::failure_ledger;

namespace {

std::exception_ptr problem(const std::string& what) {
  return std::make_exception_ptr(std::runtime_error(what));
}

void record_failure(ledger& to, std::uint64_t sample, const std::exception_ptr& error) {
  to.record_failure(sample, error, {sample, 0});
}

std::string quarantine_of(const ps::failure_report& report) {
  std::ostringstream out;
  report.write_quarantine(out);
  return out.str();
}

}  // namespace

TEST_CASE("a ledger keeps a sample's first reason, its failure count and its outcome",
          "[faults][promise:honest-3]") {
  ledger kept;
  record_failure(kept, 9, problem("first"));
  record_failure(kept, 9, problem("second"));
  kept.record_outcome(9, read_outcome::skipped);
  record_failure(kept, 4, problem("slow disk"));
  CHECK(kept.report().samples.front().last == read_outcome::retrying);
  kept.record_outcome(4, read_outcome::recovered);
  const auto report = kept.report();
  CHECK(report.samples ==
        std::vector<ps::failed_sample>{{4, "slow disk", 1, 0, read_outcome::recovered, {4, 0}},
                                       {9, "first", 2, 1, read_outcome::skipped, {9, 0}}});
  CHECK(report.failed_reads == 3);
  CHECK(report.recovered == 1);
  CHECK(report.skipped == 1);
  CHECK(report.replaced == 0);
  CHECK(report.dropped == 0);
  CHECK_FALSE(report.misses_known);
}

TEST_CASE("a substitute that fails is recorded and occupies no position in the batch", "[faults]") {
  ledger kept;
  record_failure(kept, 1, problem("bad"));
  record_failure(kept, 2, problem("bad too"));
  kept.record_outcome(2, read_outcome::replaced, false);
  kept.record_outcome(1, read_outcome::replaced);
  const auto report = kept.report();
  CHECK(report.samples.size() == 2);
  CHECK(report.samples.back().given_up == 1);
  CHECK(report.replaced == 1);
}

TEST_CASE("a reason is one line of at most 119 bytes for any exception", "[faults]") {
  ledger kept;
  record_failure(kept, 0, problem("two\nlines\tand a\rtab"));
  record_failure(kept, 1, problem(std::string(119, 'x')));
  record_failure(kept, 2, problem(std::string(500, 'y')));
  record_failure(kept, 3, std::make_exception_ptr(42));
  const auto report = kept.report();
  CHECK(report.samples[0].what == "two lines and a tab");
  CHECK(report.samples[1].what == std::string(119, 'x'));
  CHECK(report.samples[2].what == std::string(119, 'y'));
  CHECK(report.samples[3].what == "not a std::exception");
}

TEST_CASE("a full ledger counts what it drops, and keeps what it has",
          "[faults][promise:bounded-9][fault:samples-4]") {
  ledger kept;
  for (std::uint64_t i = 0; i < ledger::capacity + 10; ++i) {
    record_failure(kept, 1000 - i, problem("bad"));
    kept.record_outcome(1000 - i, read_outcome::skipped);
  }
  record_failure(kept, 1000, problem("again"));
  const auto report = kept.report();
  CHECK(report.samples.size() == ledger::capacity);
  CHECK(report.samples.front().sample == 1000 - (ledger::capacity - 1));
  CHECK(report.samples.back().sample == 1000);
  CHECK(report.samples.back().failures == 2);
  CHECK(report.failed_reads == ledger::capacity + 11);
  CHECK(report.skipped == ledger::capacity + 10);
  CHECK(report.dropped == 10);
  CHECK(quarantine_of(report).find("# incomplete: 10 failed reads") != std::string::npos);
}

TEST_CASE("quarantined samples leave room for failing samples and are not dropped",
          "[faults][promise:honest-3][fault:samples-4]") {
  ledger kept;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::uint64_t i = 0; i < 300; ++i) {
      kept.record_quarantined(i, {i, 0}, read_outcome::skipped);
    }
  }
  CHECK(kept.report().samples.size() == ledger::capacity);
  CHECK(kept.report().samples.back().given_up == 2);
  record_failure(kept, 4000, problem("new"));
  kept.record_outcome(4000, read_outcome::skipped);
  const auto report = kept.report();
  REQUIRE(report.samples.size() == ledger::capacity);
  CHECK(report.samples.back() ==
        ps::failed_sample{4000, "new", 1, 1, read_outcome::skipped, {4000, 0}});
  // Replaces the last quarantined sample.
  CHECK(report.samples[ledger::capacity - 2].sample == ledger::capacity - 2);
  CHECK(report.failed_reads == 1);
  CHECK(report.skipped == 601);
  CHECK(report.dropped == 0);
  CHECK(report.misses_known);
  CHECK(
      quarantine_of(report).find(
          "\n4000 # skipped 1 time: new\n# incomplete: samples of faults.on_error.quarantine_list "
          "are not listed here: keep that list too\n") != std::string::npos);
  // Failed samples remain in the ledger. Samples without room are dropped.
  for (std::uint64_t i = 0; i < ledger::capacity; ++i)
    record_failure(kept, 5000 + i, problem("bad"));
  CHECK(kept.report().samples.front().sample == 4000);
  CHECK(kept.report().dropped == 1);
  kept.record_quarantined(1, {1, 0}, read_outcome::skipped);
  CHECK(kept.report().dropped == 1);
}

TEST_CASE("a ledger may be written and read by many threads at once", "[faults]") {
  ledger kept;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        record_failure(kept, i % 50, problem("bad"));
        kept.record_outcome(i % 50, read_outcome::skipped);
        if (i % 20 == 0 && kept.report().samples.size() > 50) std::terminate();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto report = kept.report();
  REQUIRE(report.samples.size() == 50);
  for (const auto& one : report.samples) {
    CHECK(one.failures == 16);
    CHECK(one.given_up == 16);
  }
  CHECK(report.failed_reads == 800);
}

TEST_CASE("every outcome has its own name", "[faults]") {
  CHECK(ps::name_of(read_outcome::retrying) == "retrying");
  CHECK(ps::name_of(read_outcome::recovered) == "recovered");
  CHECK(ps::name_of(read_outcome::replaced) == "replaced");
  CHECK(ps::name_of(read_outcome::skipped) == "skipped");
  CHECK(ps::name_of(read_outcome::propagated) == "propagated");
}
