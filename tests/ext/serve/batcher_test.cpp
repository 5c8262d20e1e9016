// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/serve/batcher.hpp>

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ext/serve/requests.hpp"
#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

/// A request with a varying number of letters. The value of every letter is the tag of the request.
using letter =
    ps::record<ps::field<"number", std::uint64_t>, ps::field<"text", std::uint16_t, ps::ragged>>;

auto written_letter(std::uint64_t tag) {
  return [tag](ps::sample<letter> out) {
    ps::get<"number">(out) = tag;
    for (auto& one : ps::get<"text">(out).flat()) one = static_cast<std::uint16_t>(tag);
  };
}

/// Returns true if each request of a batch has the contents and the `length(tag)` letters of its
/// tag, and the padding is empty.
template <class Batch, class Length>
bool is_as_sent(const Batch& batch, Length length) {
  bool all = batch.tags().size() == batch.valid();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::uint64_t tag = i < batch.valid() ? batch.tags()[i] : 0;
    const auto text = ps::get<"text">(batch)[i];
    all = all && ps::get<"number">(batch)[i] == tag;
    all = all && text.size() == (i < batch.valid() ? length(tag) : 0);
    for (const auto one : text.flat()) all = all && one == tag;
  }
  return all;
}

constexpr std::chrono::nanoseconds never = std::chrono::hours{10'000};
using tag_list = std::vector<std::uint64_t>;

template <class Batcher>
void submit_all(Batcher& requests, const tag_list& tags) {
  for (const auto tag : tags) requests.submit(tag, written(tag));
}

}  // namespace

TEST_CASE("a full batch is delivered with its requests and their tags", "[serve]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 3, .fill = never}};
  submit_all(requests, {7, 9});
  CHECK_FALSE(requests.try_next());  // a partial batch is not returned before its deadline
  submit_all(requests, {8, 1, 2});
  const auto batch = requests.try_next();
  REQUIRE(batch);
  CHECK(tags_of(batch) == tag_list{7, 9, 8});
  CHECK(is_as_tagged(batch));
  CHECK(batch.number() == 0);
  CHECK(batch.valid() == 3);
  CHECK_FALSE(requests.try_next());
  const auto now = requests.stats();
  CHECK(now.accepted == 5);
  CHECK(now.handed_out == 3);
  CHECK(now.waiting == 2);
  CHECK(requests.footprint().bytes == 4 * 512);
}

TEST_CASE("a partial batch is delivered after its time limit", "[serve]") {
  const auto fill = GENERATE(0ns, 1ns, 1'000'000ns);
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 32, .fill = fill}};
  const auto begin = std::chrono::steady_clock::now();
  submit_all(requests, {4, 5});
  const auto batch = requests.next();
  CHECK(std::chrono::steady_clock::now() - begin >= fill);
  CHECK(tags_of(batch) == tag_list{4, 5});
}

TEST_CASE("a sleeping consumer is woken for the first request and for a full batch", "[serve]") {
  const bool is_full = GENERATE(false, true);
  ps::batcher<request> requests{ps::cpu_device{},
                                {.max_batch_size = 2, .fill = is_full ? never : 1ms}};
  tag_list got;
  sleeper consumer{[&] { got = tags_of(requests.next()); }};
  consumer.wait_until_it_sleeps();
  requests.submit(1, written(1));
  if (is_full) requests.submit(2, written(2));
  consumer.join();
  CHECK(got == (is_full ? tag_list{1, 2} : tag_list{1}));
}

TEST_CASE("every consumer observes the deadline of the open batch", "[serve]") {
  // The three submits take less time than `fill`.
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = 200ms}};
  std::atomic<std::size_t> served{0};
  const auto serve_one = [&] { served += requests.next().size(); };
  sleeper first{serve_one};
  sleeper second{serve_one};
  first.wait_until_it_sleeps();
  second.wait_until_it_sleeps();
  submit_all(requests, {1, 2, 3});  // a full batch and a partial batch
  first.join();
  second.join();
  CHECK(served == 3);
}

TEST_CASE("consumers that spin before the deadline get full and partial batches",
          "[serve][promise:honest-14]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = 2ms, .spin = 1h}};
  constexpr std::uint64_t count = 303;
  std::atomic<std::size_t> served{0};
  const auto serve = [&] {
    while (const auto batch = requests.next()) served += batch.size();
  };
  std::thread first{serve};
  std::thread second{serve};
  for (std::uint64_t tag = 0; tag < count; ++tag) {
    requests.submit(tag, written(tag));
    // Leaves a single request in the last batch.
    while (tag % 101 == 100 && served <= tag) std::this_thread::yield();
  }
  requests.close();
  first.join();
  second.join();
  CHECK(served == count);
}

TEST_CASE("a consumer spins only within the spin time and sleeps otherwise", "[serve]") {
  const bool spins = GENERATE(false, true);
  ps::batcher<request> requests{ps::cpu_device{},
                                {.max_batch_size = 2, .fill = never, .spin = spins ? never : 0ns}};
  requests.submit(1, written(1));
  std::atomic<long> number{0};
  std::size_t size = 0;
  std::thread consumer{[&] {
    number = this_thread_number();
    size = requests.next().size();
  }};
  while (number == 0) std::this_thread::yield();
  // Measures processor time, because a sleeping thread uses none.
  ::clockid_t clock{};
  REQUIRE(::pthread_getcpuclockid(consumer.native_handle(), &clock) == 0);
  const auto used = [&] {
    ::timespec time{};
    ::clock_gettime(clock, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
  };
  if (spins) {
    const auto before = used();
    while (used() < before + 2ms) std::this_thread::yield();  // would hang if the thread slept
  } else {
    wait_until_asleep(number);
  }
  requests.submit(2, written(2));
  consumer.join();
  CHECK(size == 2);
}

TEST_CASE("a submitter waits for a place while all batches are full", "[serve]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = never, .depth = 2}};
  submit_all(requests, {0, 1, 2, 3});
  CHECK_FALSE(requests.try_submit(4, written(4)));
  CHECK_FALSE(requests.submit_for(1us, 4, written(4)));
  const auto end = std::chrono::steady_clock::now() + 1ms;
  CHECK_FALSE(requests.submit_until(end, 4, written(4)));
  CHECK(std::chrono::steady_clock::now() >= end);
  const bool has_limit = GENERATE(false, true);
  sleeper submitter{[&] {
    if (has_limit) {
      if (!requests.submit_for(1h, 4, written(4))) std::terminate();
    } else {
      requests.submit(4, written(4));
    }
  }};
  submitter.wait_until_it_sleeps();
  {
    const auto batch = requests.next();
    // The slot of the batch is free only after its lease ends.
    CHECK_FALSE(requests.try_submit(5, written(5)));
  }
  submitter.join();
  CHECK(requests.try_submit(5, written(5)));
  CHECK(tags_of(requests.next()) == tag_list{2, 3});
  CHECK(tags_of(requests.next()) == tag_list{4, 5});
}

TEST_CASE("a submitter takes the first free slot and is notified of the end", "[serve]") {
  ps::cpu_stream slow;
  ps::cpu_stream fast;
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 1, .fill = 0ms, .depth = 2}};
  submit_all(requests, {1, 2});
  auto first = requests.next();
  auto second = requests.next();
  ps::detail::waitable_counter gate;
  const auto held = [&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); };
  slow.launch(held);
  ps::detail::waitable_counter short_gate;
  fast.launch([&] { short_gate.wait([](std::uint32_t open) { return open != 0; }); });
  first.release_after(slow);
  second.release_after(fast);
  std::thread submitter{[&] { requests.submit(3, written(3)); }};  // both slots wait for streams
  short_gate.advance();
  submitter.join();  // the second slot, behind `slow`, still waits
  std::atomic<bool> is_rejected{false};
  std::thread late{[&] {
    try {
      requests.submit(4, written(4));
    } catch (const ps::batcher_closed&) {
      is_rejected = true;
    }
  }};
  requests.close();
  late.join();
  CHECK(is_rejected);
  gate.advance();
  slow.synchronize();
  const auto stats = requests.stats();
  CHECK(stats.accepted == 3);
  CHECK(stats.handed_out == 2);
  CHECK(stats.waiting == 1);
}

TEST_CASE("a write that throws leaves no request and frees its place",
          "[serve][promise:honest-14]") {
  const int bad = GENERATE(0, 1, 2, 3);
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 4, .fill = never}};
  for (int i = 0; i < 4; ++i) {
    const auto tag = static_cast<std::uint64_t>(i);
    if (i != bad) {
      requests.submit(tag, written(tag));
      continue;
    }
    const auto problem = test::error_of<std::domain_error>([&] {
      requests.submit(99, [](ps::sample<request> out) {
        ps::get<"number">(out) = 99;  // writes only half of the request before it throws
        throw std::domain_error{"no such image"};
      });
    });
    CHECK(problem.what() == std::string{"no such image"});
  }
  const auto batch = requests.try_next();
  REQUIRE(batch);
  CHECK(batch.size() == 3);
  CHECK(is_as_tagged(batch));
  tag_list others{0, 1, 2, 3};  // tags in the order of submission
  others.erase(others.begin() + bad);
  CHECK(tags_of(batch) == others);
  CHECK(requests.stats().failed == 1);
  CHECK(requests.stats().accepted == 3);
}

TEST_CASE("requests of varying length are batched with the lengths that they have",
          "[serve][promise:honest-14]") {
  const auto length = [](std::uint64_t tag) { return tag % 7; };
  ps::batcher<letter> requests{
      ps::cpu_device{}, {{}, {6}}, {.max_batch_size = 4, .fill = 1ms, .depth = 3}};
  std::atomic<int> thrown{0};
  std::vector<std::thread> submitters;
  for (std::uint64_t first : {1U, 2U, 3U}) {
    submitters.emplace_back([&, first] {
      for (std::uint64_t tag = first; tag < 1000; tag += 3) {
        if (tag % 5 == 0) {
          try {
            requests.submit({tag, {length(tag)}},
                            [](const auto&) { throw std::domain_error{"unreadable"}; });
          } catch (const std::domain_error&) {
            ++thrown;
          }
        }
        requests.submit({tag, {length(tag)}}, written_letter(tag));
      }
    });
  }
  std::vector<int> served(1000);
  for (int left = 999; left > 0;) {
    const auto batch = requests.next();
    REQUIRE(batch);
    CHECK(is_as_sent(batch, length));
    for (const auto tag : batch.tags()) ++served[tag];
    left -= static_cast<int>(batch.size());
  }
  for (auto& one : submitters) one.join();
  CHECK(served == [] {
    std::vector<int> once(1000, 1);
    once[0] = 0;
    return once;
  }());
  CHECK(thrown == 199);
  CHECK(requests.stats().failed == 199);
}

TEST_CASE("a batch without room for the values of the next request is delivered", "[serve]") {
  const auto length = [](std::uint64_t tag) { return tag; };
  // A batch has room for 10 letters, and a request has up to 6.
  ps::batcher<letter> requests{ps::cpu_device{},
                               {{}, {.longest = 6, .max_values_per_batch = 10}},
                               {.max_batch_size = 4, .fill = never, .depth = 3}};
  for (const std::uint64_t tag : {6U, 4U, 5U, 3U, 3U}) {
    requests.submit({tag, {tag}}, written_letter(tag));
  }
  const auto first = requests.try_next();
  REQUIRE(first);
  CHECK(tags_of(first) == tag_list{6, 4});
  CHECK(is_as_sent(first, length));
  const auto second = requests.try_next();
  REQUIRE(second);
  CHECK(tags_of(second) == tag_list{5, 3});
  CHECK(is_as_sent(second, length));
  requests.close();
  CHECK(tags_of(requests.next()) == tag_list{3});
}

TEST_CASE("a request that fits in no batch is rejected", "[serve]") {
  ps::batcher<letter> requests{ps::cpu_device{}, {{}, {6}}, {.max_batch_size = 4}};
  const auto rejected = [&](const ps::request_info& what) -> std::string {
    return test::error_of<ps::intake_error>([&] { requests.submit(what, written_letter(1)); })
        .what();
  };
  CHECK(rejected({1, {7}}) ==
        "batcher: field \"text\": sample 0 has 7 values, and there is room for 6");
  CHECK(rejected(1) == "batcher: 0 lengths for 1 samples with 1 ragged fields each");
  requests.submit({1, {6}}, written_letter(1));
  CHECK(requests.stats().accepted == 1);
}

TEST_CASE("a batch is padded to the next allowed size with zeros", "[serve][promise:honest-14]") {
  ps::batcher<letter> requests{
      ps::cpu_device{},
      {{}, {6}},
      {.max_batch_size = 8, .fill = 0ns, .depth = 1, .allowed_batch_sizes = {1, 2, 4, 8}}};
  const auto length = [](std::uint64_t) { return std::size_t{2}; };
  for (const std::size_t count : {8U, 5U, 1U, 2U, 3U, 4U}) {  // the first size fills the slot
    CAPTURE(count);
    for (std::uint64_t tag = 1; tag <= count; ++tag) {
      requests.submit({tag, {2}}, written_letter(tag));
    }
    const auto batch = requests.next();
    CHECK(batch.size() == (count == 5 ? 8 : count == 3 ? 4 : count));
    CHECK(batch.valid() == count);
    CHECK(is_as_sent(batch, length));
  }
}

TEST_CASE("requests of high priority are served before others, in their own order",
          "[serve][promise:honest-14]") {
  const auto high = ps::request_priority::high;
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = never, .depth = 6}};
  for (std::uint64_t tag = 0; tag < 9; ++tag) {
    const bool is_high = tag % 3 == 2;  // 2, 5, 8
    requests.submit({tag, {}, is_high ? high : ps::request_priority::normal}, written(tag));
  }
  requests.close();
  std::vector<tag_list> order;
  while (const auto batch = requests.next()) {
    CHECK(is_as_tagged(batch));
    order.push_back(tags_of(batch));
  }
  CHECK(order == std::vector<tag_list>{{2, 5}, {8}, {0, 1}, {3, 4}, {6, 7}});
}

TEST_CASE("a request of high priority is served in time while others keep the batcher full",
          "[serve][promise:honest-14]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = 1ms, .depth = 4}};
  submit_all(requests, {0, 1, 2, 3});
  requests.submit({9, {}, ps::request_priority::high}, written(9));
  std::uint64_t tag = 4;
  bool is_served = false;
  while (!is_served && tag < 1'000'000) {
    const auto batch = requests.next();  // other requests are always waiting
    is_served = batch.tags().front() == 9;
    while (requests.try_submit(tag, written(tag))) ++tag;
  }
  CHECK(is_served);
}

TEST_CASE("no try fails while slots are free", "[serve]") {
  ps::batcher<request> requests{ps::cpu_device{},
                                {.max_batch_size = 1, .fill = never, .depth = 600}};
  std::atomic<int> failed{0};
  std::vector<std::thread> submitters;
  for (std::uint64_t first : {0U, 1U, 2U, 3U}) {
    submitters.emplace_back([&, first] {
      for (std::uint64_t tag = first; tag < 600; tag += 4) {
        if (!requests.try_submit(tag, written(tag))) ++failed;
      }
    });
  }
  for (auto& one : submitters) one.join();
  CHECK(failed == 0);
}

TEST_CASE("the end is reported after the abandoned requests were returned", "[serve]") {
  ps::detail::waitable_counter called;
  ps::detail::waitable_counter gate;
  ps::batcher<request> requests{ps::cpu_device{},
                                {.max_batch_size = 1, .on_unserved = [&](const auto&, auto) {
                                   called.advance();
                                   gate.wait([](std::uint32_t open) { return open == 1; });
                                 }}};
  requests.submit(1, written(1));
  std::thread abandons{[&] { requests.abandon(); }};
  called.wait([](std::uint32_t times) { return times == 1; });
  CHECK(requests.was_closed());
  CHECK_FALSE(requests.at_end());
  gate.store(1);
  abandons.join();
  CHECK(requests.at_end());
}

TEST_CASE("reserved slots accept only requests of high priority", "[serve]") {
  const auto high = ps::request_priority::high;
  ps::batcher<request> requests{
      ps::cpu_device{}, {.max_batch_size = 1, .fill = never, .depth = 3, .reserved_slots = 1}};
  submit_all(requests, {0, 1});
  CHECK_FALSE(requests.try_submit(2, written(2)));
  sleeper waits{[&] { requests.submit(2, written(2)); }};
  waits.wait_until_it_sleeps();
  CHECK(requests.try_submit({3, {}, high}, written(3)));
  CHECK_FALSE(requests.try_submit({4, {}, high}, written(4)));
  CHECK(tags_of(requests.next()) == tag_list{3});  // the slot of the batch remains reserved
  CHECK(requests.stats().waiting == 2);
  CHECK(requests.try_submit({5, {}, high}, written(5)));
  CHECK(tags_of(requests.next()) == tag_list{5});
  CHECK(tags_of(requests.next()) == tag_list{0});
  waits.join();
  CHECK(tags_of(requests.next()) == tag_list{1});
  CHECK(tags_of(requests.next()) == tag_list{2});
}

TEST_CASE("each priority has its own deadline", "[serve]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = 1ms}};
  requests.submit({1, {}, ps::request_priority::high}, written(1));
  requests.submit(2, written(2));
  tag_list got;
  while (got.size() != 2) {
    const auto batch = requests.next();
    got.push_back(tags_of(batch).front());
  }
  CHECK(got == tag_list{1, 2});
}

TEST_CASE("a batcher reserves its memory in a budget", "[serve]") {
  const auto budget = ps::memory_budget::bytes(4 * 512);
  {
    ps::batcher<request> requests{ps::cpu_device{},
                                  {.max_batch_size = 3, .depth = 3, .budget = budget}};
    CHECK(budget.used() == requests.footprint().bytes);
  }
  CHECK(budget.used() == 0);
  const std::string said =
      test::error_of<ps::pinned_budget_exceeded>([&] {
        ps::batcher<request>(ps::cpu_device{}, {.max_batch_size = 3, .depth = 5, .budget = budget});
      }).what();
  CHECK(said.find("lower depth or max_batch_size, or raise budget") != std::string::npos);
}

TEST_CASE("a batch whose writes all threw is not delivered, and its slot is free", "[serve]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = 0ns, .depth = 1}};
  const auto fail = [&] {
    requests.submit(0, [](ps::sample<request>) { throw std::domain_error{"no"}; });
  };
  for (int i = 0; i < 5; ++i) CHECK_THROWS_AS(fail(), std::domain_error);
  CHECK_FALSE(requests.try_next());
  requests.submit(6, written(6));
  CHECK(tags_of(requests.next()) == tag_list{6});
  CHECK_THROWS_AS(fail(), std::domain_error);
  requests.close();
  CHECK_FALSE(requests.next());
}

TEST_CASE("other requests continue while one request is being written",
          "[serve][promise:honest-14]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = never, .depth = 3}};
  ps::detail::waitable_counter begun;
  ps::detail::waitable_counter gate;
  std::thread slow{[&] {
    requests.submit(0, [&](ps::sample<request> out) {
      begun.advance();
      gate.wait([](std::uint32_t open) { return open == 1; });
      written(0)(out);
    });
  }};
  begun.wait([](std::uint32_t times) { return times == 1; });
  submit_all(requests, {1, 2, 3});  // request 1 waits for the slow request
  CHECK(tags_of(requests.next()) == tag_list{2, 3});
  requests.submit(4, written(4));
  requests.close();
  CHECK(tags_of(requests.next()) == tag_list{4});
  CHECK_FALSE(requests.at_end());
  CHECK_FALSE(requests.try_next());
  tag_list got;
  sleeper last{[&] { got = tags_of(requests.next()); }};
  last.wait_until_it_sleeps();
  gate.store(1);
  slow.join();
  last.join();
  CHECK(got == tag_list{0, 1});
  CHECK(requests.at_end());
  CHECK_FALSE(requests.next());
}

TEST_CASE("a closed batcher serves its requests and accepts no more",
          "[serve][promise:honest-14]") {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .fill = never, .depth = 2}};
  submit_all(requests, {0, 1, 2, 3});
  std::string reported;
  sleeper submitter{[&] {
    try {
      requests.submit(4, written(4));
    } catch (const ps::batcher_closed& problem) {
      reported = problem.what();
    }
  }};
  submitter.wait_until_it_sleeps();
  CHECK_FALSE(requests.was_closed());
  requests.close();
  requests.close();
  submitter.join();
  CHECK(reported == "batcher: it is closed and accepts no more requests");
  CHECK(requests.was_closed());
  CHECK_THROWS_AS(requests.submit(5, written(5)), ps::batcher_closed);
  CHECK_THROWS_AS((void)requests.try_submit(5, written(5)), ps::batcher_closed);
  CHECK_THROWS_AS((void)requests.submit_for(1h, 5, written(5)), ps::batcher_closed);
  CHECK(tags_of(requests.next()) == tag_list{0, 1});
  CHECK_FALSE(requests.at_end());
  CHECK(tags_of(requests.next()) == tag_list{2, 3});
  CHECK(requests.at_end());
  CHECK_FALSE(requests.next());
}

TEST_CASE("closing ends the wait of a consumer, by a call or by a stop request", "[serve]") {
  std::stop_source stop;
  ps::batcher<request> requests{ps::cpu_device{}, {.stop = stop.get_token()}};
  bool is_batch = true;
  sleeper consumer{[&] { is_batch = static_cast<bool>(requests.next()); }};
  consumer.wait_until_it_sleeps();
  SECTION("by a call") { requests.close(); }
  SECTION("by a stop request") { stop.request_stop(); }
  consumer.join();
  CHECK_FALSE(is_batch);
  CHECK(requests.was_closed());
}

TEST_CASE("abandoned requests are returned once, even if they are still being written",
          "[serve][promise:honest-14]") {
  fates known{6};
  ps::detail::waitable_counter begun;
  ps::detail::waitable_counter gate;
  const bool is_destroyed = GENERATE(false, true);
  auto requests = std::make_unique<ps::batcher<request>>(
      ps::cpu_device{},
      ps::batcher_options{
          .max_batch_size = 2, .fill = never, .depth = 4, .on_unserved = known.noting()});
  submit_all(*requests, {0, 1, 2, 3});
  known.record_served(requests->next());
  requests->submit(4, written(4));
  if (is_destroyed) {
    requests->submit(5, written(5));
    requests.reset();
  } else {
    std::thread slow{[&] {
      requests->submit(5, [&](ps::sample<request>) {
        begun.advance();
        gate.wait([](std::uint32_t open) { return open == 1; });
      });
    }};
    begun.wait([](std::uint32_t times) { return times == 1; });
    requests->abandon();
    CHECK(known.abandoned == 2);
    CHECK_FALSE(requests->at_end());
    gate.store(1);
    slow.join();
    CHECK(requests->at_end());
    CHECK_FALSE(requests->next());
    CHECK_THROWS_AS(requests->submit(0, written(0)), ps::batcher_closed);
    CHECK(requests->stats().returned == 4);
    CHECK(requests->stats().waiting == 0);
  }
  CHECK(known.ended_once() == 6);
  CHECK(known.abandoned == 4);
  CHECK(fates::sum(known.served) == 2);
}

TEST_CASE("a lease outlives its batcher", "[serve]") {
  ps::request_batch<request, ps::cpu_device> kept;
  {
    ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 1}};
    requests.submit(3, written(3));
    kept = requests.next();
  }
  CHECK(is_as_tagged(kept));
}

TEST_CASE("a batcher's options are checked by name", "[serve]") {
  const auto rejected = [](const ps::batcher_options& options) -> std::string {
    return test::error_of<ps::option_error>(
               [&] { ps::batcher<request> requests{ps::cpu_device{}, options}; })
        .what();
  };
  CHECK(rejected({.max_batch_size = 0}) == "max_batch_size: 0 is not in 1..1048576");
  CHECK(rejected({.max_batch_size = 1048577}) == "max_batch_size: 1048577 is not in 1..1048576");
  CHECK(rejected({.fill = -1ns}) == "fill: must not be negative, but is -1 ns");
  CHECK(rejected({.spin = -1ns}) == "spin: must not be negative, but is -1 ns");
  CHECK(rejected({.depth = 0}) == "depth: 0 is not in 1..1024");
  CHECK(rejected({.depth = 1025}) == "depth: 1025 is not in 1..1024");
  CHECK(rejected({.depth = 3, .reserved_slots = 3}) == "reserved_slots: 3 is not in 0..2");
  CHECK(rejected({.allowed_batch_sizes = {0, 32}}) ==
        "allowed_batch_sizes: must increase, but has 0 after 0");
  CHECK(rejected({.allowed_batch_sizes = {8, 8, 32}}) ==
        "allowed_batch_sizes: must increase, but has 8 after 8");
  CHECK(rejected({.max_batch_size = 6, .allowed_batch_sizes = {2, 4}}) ==
        "allowed_batch_sizes: must end with max_batch_size, 6, but ends with 4");
  using wide = ps::record<ps::field<"x", float, ps::dyn>>;
  const auto max = std::numeric_limits<std::size_t>::max() / 32;
  const auto take = [&] {
    ps::batcher<wide> requests{ps::cpu_device{}, {{max}}, {.max_batch_size = 1, .depth = 1024}};
  };
  CHECK_THROWS_AS(take(), ps::out_of_memory);
  ps::batcher<wide> requests{ps::cpu_device{}, {{5}}, {.max_batch_size = 1}};
  requests.submit(0, [](ps::sample<wide> out) { CHECK(ps::get<"x">(out).size() == 5); });
}

TEST_CASE("in a forked child a batcher with waiters throws on use and is destroyed without a hang",
          "[serve][fault:memory-7]") {
  tag_list back;
  auto requests = std::make_unique<ps::batcher<request>>(
      ps::cpu_device{},
      ps::batcher_options{
          .max_batch_size = 1, .depth = 2, .on_unserved = [&](const auto& tags, auto) {
            back.insert(back.end(), tags.begin(), tags.end());
          }});
  requests->submit(0, written(0));
  auto lease = requests->next();
  requests->submit(1, written(1));
  sleeper waits{[&] { requests->submit(2, written(2)); }};
  waits.wait_until_it_sleeps();  // waits for a thread that does not exist in the child
  CHECK(test::in_child([&] {
          int reported = 0;
          const auto count = [&reported](auto call) {
            try {
              call();
            } catch (const std::logic_error&) {
              ++reported;
            }
          };
          count([&] { requests->submit(3, written(3)); });
          count([&] { (void)requests->try_submit(3, written(3)); });
          count([&] { (void)requests->next(); });
          count([&] { (void)requests->try_next(); });
          requests->close();
          requests->abandon();
          requests.reset();
          lease = {};
          return reported == 4 && back.empty() ? 7 : 1;
        }) == 7);
  CHECK(tags_of(requests->next()) == tag_list{1});
  waits.join();
  CHECK(tags_of(requests->next()) == tag_list{2});
  CHECK(tags_of(lease) == tag_list{0});
  CHECK(back.empty());
}

TEST_CASE("calls in progress end when a batcher is destroyed, even in exit()",
          "[serve][fault:hangs-8]") {
  tag_list back;
  auto requests = std::make_unique<ps::batcher<request>>(
      ps::cpu_device{},
      ps::batcher_options{
          .max_batch_size = 2, .fill = never, .on_unserved = [&](const auto& tags, auto) {
            back.insert(back.end(), tags.begin(), tags.end());
          }});
  ps::batcher<request>& here = *requests;
  ps::detail::waitable_counter is_gone;
  sleeper submits{[&] {
    here.submit(5, [&](ps::sample<request> out) {
      is_gone.wait([](std::uint32_t gone) { return gone != 0; });
      written(5)(out);
    });
  }};
  submits.wait_until_it_sleeps();
  bool has_batch = true;
  sleeper takes{[&] { has_batch = static_cast<bool>(here.next()); }};
  takes.wait_until_it_sleeps();
  requests.reset();
  is_gone.store(1);
  submits.join();
  takes.join();
  CHECK_FALSE(has_batch);
  CHECK(back == tag_list{5});
}
