// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/recovery.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <penstock/core/batch.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::recovery;
using std::chrono::milliseconds;

namespace {

using pair_record = ps::record<ps::field<"x", std::uint16_t, 2>, ps::field<"y", std::uint8_t>>;

constexpr std::uint64_t dataset_size = 1000;
constexpr std::size_t batch_size = 8;

std::exception_ptr error_of(const std::string& text) {
  return std::make_exception_ptr(std::runtime_error{text});
}

recovery of(const ps::error_policy& policy) {
  return {policy, dataset_size, 2, batch_size, {dataset_size}};
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& found) {
    return found.what();
  }
}

/// A batch of the samples 0, 1, 2, ...
struct numbers {
  ps::batch_layout<pair_record> layout{{}, batch_size};
  std::vector<std::byte> memory = std::vector<std::byte>(layout.bytes());
  ps::batch_view<pair_record> view{memory.data(), layout, 0, batch_size};

  numbers() {
    for (std::size_t i = 0; i < batch_size; ++i) {
      ps::get<"x">(view)(i, 0) = static_cast<std::uint16_t>(i);
      ps::get<"x">(view)(i, 1) = static_cast<std::uint16_t>(100 + i);
      ps::get<"y">(view)(i) = static_cast<std::uint8_t>(i);
    }
  }
  [[nodiscard]] std::vector<int> first(std::size_t count) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < count; ++i) {
      found.push_back(ps::get<"y">(view)(i));
      CHECK(ps::get<"x">(view)(i, 0) == found.back());
      CHECK(ps::get<"x">(view)(i, 1) == 100 + found.back());
    }
    return found;
  }
};

}  // namespace

TEST_CASE("samples after a skipped sample move up in every field", "[faults]") {
  auto skipping = of({.action = ps::error_action::skip});
  numbers batch;
  ps::batch_info info{0, 3, batch_size, 6};  // the last two samples are padding
  const auto lose = [&](std::uint64_t position) {
    skipping.record_loss(1, position, 500 + position, error_of("bad"));
  };
  SECTION("with single and adjacent samples skipped") {
    lose(4);
    lose(0);
    lose(3);
    skipping.end_batch(1, batch.memory.data(), batch.layout, info);
    CHECK(batch.first(5) == std::vector{1, 2, 5, 6, 7});
    CHECK(info.size == 5);
    CHECK(info.skipped == 3);
    CHECK(info.valid_size == 3);
  }
  SECTION("with a padding sample skipped") {
    lose(7);
    skipping.end_batch(1, batch.memory.data(), batch.layout, info);
    CHECK(batch.first(7) == std::vector{0, 1, 2, 3, 4, 5, 6});
    CHECK(info.valid_size == 6);
  }
  SECTION("with all samples skipped") {
    for (std::uint64_t i = 0; i < batch_size; ++i) lose(i);
    skipping.end_batch(1, batch.memory.data(), batch.layout, info);
    CHECK(info.size == 0);
    CHECK(info.valid_size == 0);
    CHECK(info.skipped == batch_size);
  }
  SECTION("the next batch in the slot has no skipped samples") {
    lose(2);
    skipping.begin_batch(1);
    skipping.end_batch(1, batch.memory.data(), batch.layout, info);
    CHECK(info.size == batch_size);
    CHECK(info.skipped == 0);
  }
}

TEST_CASE("the batch that exceeds the limit throws the exception of its first lost sample",
          "[faults]") {
  auto books = of({.action = ps::error_action::replace, .max_failures = 2, .max_failure_rate = 1});
  const ps::batch_info info{4, 9, batch_size, batch_size};
  ps::failure where;
  books.record_loss(0, 5, 55, error_of("of 55"));
  books.record_loss(0, 6, 56, error_of("of 56"));
  CHECK(books.check_limits(0, info, where) == nullptr);
  books.begin_batch(0);
  books.record_loss(0, 7, 77, error_of("of 77"));
  CHECK(text_of(books.check_limits(0, info, where)) == "of 77");
  books.begin_batch(0);
  books.record_loss(0, 6, 66, error_of("of 66"));
  books.record_loss(0, 1, 11, error_of("of 11"));
  books.record_loss(0, 3, 33, error_of("of 33"));
  CHECK(text_of(books.check_limits(0, info, where)) == "of 11");
  CHECK(where.str() ==
        "stage read, epoch 4, batch 9, sample 11 (position 1 of the batch); passed on: 6 of 24 "
        "samples could not be read, and faults.on_error.max_failures is 2");
  // A later batch without failures is delivered.
  CHECK(books.check_limits(1, info, where) == nullptr);
}

TEST_CASE("the failure rate applies after a hundred samples", "[faults]") {
  auto books = of({.action = ps::error_action::replace, .max_failure_rate = 0.05});
  const ps::batch_info info{0, 0, batch_size, batch_size};
  ps::failure where;
  books.record_loss(0, 0, 1, error_of("bad"));
  for (int batch = 0; batch < 12; ++batch) {  // 1 of 8 and 2 of 16 are far above the allowed rate
    INFO("batch " << batch);
    CHECK(books.check_limits(0, info, where) == nullptr);
  }
  CHECK(text_of(books.check_limits(0, info, where)) == "bad");  // 13 of 104 samples
  REQUIRE(where.reason);
  CHECK(where.reason->requested == 104);
}

TEST_CASE("a wait for a retry ends by itself, or early if the range ends", "[faults]") {
  using std::chrono::hours;
  auto patient = of({.retries = 1, .initial_backoff = hours{24}});
  CHECK_FALSE(patient.wait(1, [] { return true; }));
  std::atomic<bool> is_over{false};
  bool goes_on = true;
  {
    const std::jthread reader{[&] { goes_on = patient.wait(1, [&] { return is_over.load(); }); }};
    is_over = true;
    patient.interrupt();
  }
  CHECK_FALSE(goes_on);
  auto hasty = of({.retries = 1, .initial_backoff = milliseconds{0}});
  CHECK(hasty.wait(1, [] { return false; }));
}

TEST_CASE("substitutes are listed by position, for any read order", "[faults]") {
  ps::detail::sample_lists lists{2, batch_size};
  auto guard = of({.action = ps::error_action::replace});
  guard.list_to(lists);
  numbers batch;
  ps::batch_info info{0, 0, batch_size, batch_size};
  for (int turn = 0; turn < 2; ++turn) {  // the second batch in the slot starts without substitutes
    guard.begin_batch(1);
    for (const std::uint64_t place : {5U, 2U, 7U}) {
      guard.record_replacement(1, place, 100 + place);
      guard.record_loss(1, place, place, error_of("bad"));
    }
    guard.end_batch(1, batch.memory.data(), batch.layout, info);
    const auto found = lists.replaced(1);
    CHECK((std::vector(found.begin(), found.end()) == std::vector<std::uint64_t>{2, 5, 7}));
    CHECK(lists.indices(1, batch_size)[5] == 105);
  }
}

TEST_CASE("an expected loss counts toward no limit", "[faults]") {
  auto guard = of({.action = ps::error_action::skip, .max_failures = 1, .quarantine_list = {3}});
  CHECK(guard.knows_bad());
  CHECK(guard.is_quarantined({3, 0}));
  CHECK_FALSE(guard.is_quarantined({4, 0}));
  numbers batch;
  ps::batch_info info{0, 0, batch_size, batch_size};
  guard.begin_batch(0);
  guard.record_loss(0, 5, 5, error_of("bad"));
  guard.record_expected_loss(0, 3);
  guard.end_batch(0, batch.memory.data(), batch.layout, info);
  CHECK(info.skipped == 2);
  CHECK(batch.first(6) == std::vector<int>{0, 1, 2, 4, 6, 7});
  ps::failure where;
  CHECK(guard.check_limits(0, info, where) == nullptr);
}
