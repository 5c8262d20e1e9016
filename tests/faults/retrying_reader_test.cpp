// SPDX-License-Identifier: BSL-1.0
// Tests a single reader. tests/flow/on_error_test.cpp tests a loader with an error policy.
#include <penstock/load/detail/retrying_reader.hpp>
#include <penstock/load/detail/source_ops.hpp>
#include <penstock/order/sampler.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;
using number = ps::record<ps::field<"x", std::uint64_t>>;

namespace {

/// A dataset in which sample i is the number i. The first `failures[i]` reads of sample i throw.
struct flaky {
  using record_type = number;
  std::vector<int>* failures;

  [[nodiscard]] std::uint64_t size() const { return failures->size(); }
  void read(std::uint64_t index, ps::sample<number> out) const {
    if ((*failures)[index] > 0) {
      --(*failures)[index];
      throw std::runtime_error{"bad " + std::to_string(index)};
    }
    ps::get<"x">(out) = index;
  }
};

/// Samples 4 to 7 of twenty samples, read as a chunk at position 2 of its batch.
struct one_run {
  std::vector<int> failures = std::vector<int>(20);
  flaky data{&failures};
  ps::detail::source_of<flaky, ps::sequential> source{data, {}, {.batch_size = 8}};
  const ps::batch_layout<number>& layout = source.layout();
  ps::detail::read_supervisor guard;
  ps::detail::retrying_reader reader{source, guard, 0, 4};
  ps::failure where;
  std::vector<std::byte> memory = std::vector<std::byte>(layout.bytes());
  ps::batch_view<number> out{memory.data(), layout, 2, 4};
  std::vector<std::uint64_t> samples{4, 5, 6, 7};

  explicit one_run(const ps::error_policy& policy)
      : guard{{.on_error = policy}, source.guarded(), {1, 1, 8}} {}

  void read(bool is_over = false) {
    const ps::batch_info info{3, 1, 8, 8};
    const ps::random_key key{.seed = 1, .epoch = 3};
    const auto over = [=] { return is_over; };
    if (const auto* failed = reader.read({0, info, memory.data(), 2, samples, key}, over)) {
      where = *failed->place;
      std::rethrow_exception(failed->error);
    }
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers() const {
    std::vector<std::uint64_t> found;
    for (std::size_t i = 0; i < 4; ++i) found.push_back(ps::get<"x">(out)(i));
    return found;
  }
};

constexpr std::chrono::milliseconds at_once{0};

}  // namespace

TEST_CASE("an exception of a read names the sample and its place", "[faults]") {
  one_run run{{}};
  run.failures[6] = 1;
  CHECK_THROWS_MATCHES(run.read(), std::runtime_error, Catch::Matchers::Message("bad 6"));
  CHECK(run.where.str() == "stage read, epoch 3, batch 1, sample 6 (position 4 of the batch)");
}

TEST_CASE("a sample is retried as often as the policy specifies", "[faults]") {
  one_run run{{.retries = 2, .initial_backoff = at_once}};
  run.failures[5] = 2;
  run.failures[7] = 1;
  CHECK_NOTHROW(run.read());
  CHECK(run.numbers() == run.samples);
  const auto report = run.guard.report();
  CHECK(report.recovered == 2);
  CHECK(report.failed_reads == 3);
  run.failures[5] = 3;
  CHECK_THROWS_MATCHES(run.read(), std::runtime_error, Catch::Matchers::Message("bad 5"));
  CHECK(run.where.sample == 5);
}

TEST_CASE("another sample replaces a sample that cannot be read", "[faults]") {
  one_run run{{.action = ps::error_action::replace}};
  run.failures[6] = 1000;
  CHECK_NOTHROW(run.read());
  const auto found = run.numbers();
  CHECK(found[0] == 4);
  CHECK(found[1] == 5);
  CHECK(found[2] != 6);
  CHECK(found[3] == 7);
  CHECK(run.guard.report().replaced == 1);
  // The first exception is thrown if no substitute can be read.
  run.failures.assign(20, 1000);
  CHECK_THROWS_MATCHES(run.read(), std::runtime_error, Catch::Matchers::Message("bad 4"));
}

TEST_CASE("a chunk whose batch is no longer wanted is not read again", "[faults]") {
  one_run run{{.retries = 5, .initial_backoff = at_once}};
  run.failures[4] = 100;
  run.failures[5] = 100;
  CHECK_NOTHROW(run.read(true));
  CHECK(run.failures[4] == 99);
  CHECK(run.failures[5] == 100);
}
