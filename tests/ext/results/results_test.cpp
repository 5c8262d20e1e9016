// SPDX-License-Identifier: BSL-1.0
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/record.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/results/results.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/has.hpp"
#include "support/in_child.hpp"
#include "support/numbered.hpp"
#include "transfer/ten_each.hpp"

namespace ps = penstock;

namespace {

using twice = ps::record<ps::field<"twice", std::uint64_t>, ps::field<"first", float, 3>>;
using gated_results = ps::results<twice, gated_device>;
using gated_slot = gated_results::slot_type;
using gated_batch = gated_results::batch_type;
static_assert(!std::copyable<gated_slot> && std::movable<gated_slot>);
static_assert(!std::copyable<gated_batch> && std::movable<gated_batch>);

ps::batch_info batch_of(std::uint64_t number, std::size_t size = 10) {
  return {.epoch = 0, .batch = number, .size = size, .valid_size = size};
}

/// Stands in for a step: writes twice the label, on `stream`.
template <class Batch, class Slot, class Stream>
void double_labels(const Batch& batch, Slot& slot, const Stream& stream) {
  stream.launch([from = ps::get<"label">(batch), to = ps::get<"twice">(slot)] {
    for (std::size_t i = 0; i < from.size(); ++i) to.flat()[i] = 2 * from.flat()[i];
  });
}

/// A record of what the consumers received.
struct notes {
  std::mutex mutex;
  std::vector<std::uint64_t> batches;
  std::vector<std::uint64_t> values;
  void add(const gated_batch& done) {
    const std::lock_guard lock{mutex};
    batches.push_back(done.epoch() * 100 + done.number());
    for (const auto value : ps::get<"twice">(done).flat()) values.push_back(value);
  }
};

/// Returns true if `call` throws E with all of these parts in its text.
template <class E, class Call>
bool says(const Call& call, std::initializer_list<std::string_view> parts) {
  const E problem = test::error_of<E>(call);
  return std::ranges::all_of(parts, [&](auto part) { return test::has(problem.what(), part); });
}

/// A gate at which a thread waits.
struct gate {
  ps::detail::waitable_counter open{0};
  ps::detail::waitable_counter arrived{0};
  void pass() {
    arrived.advance();
    open.wait([](std::uint32_t now) { return now != 0; });
  }
  void wait_for_one() {
    arrived.wait([](std::uint32_t now) { return now != 0; });
  }
};

/// A device that polls, as the CUDA device does.
struct polled_device : gated_device {
  struct counters {
    ps::detail::waitable_counter queued;  // copies
    ps::detail::waitable_counter naps;
  };
  std::shared_ptr<counters> count = std::make_shared<counters>();

  void copy_async(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    gated_device::copy_async(to, from, bytes, stream);
    count->queued.advance();
  }
  using gated_device::synchronize;
  template <class Nap>
  void synchronize(const event_type& event, const Nap& nap) const {
    while (!is_complete(event)) {
      count->naps.advance();
      nap(std::chrono::microseconds{20'000});
    }
  }
};

// Returns true if `call`, asleep on another thread, ends with `cancelled` after a request on
// `stop`.
template <class Call>
bool is_ended_by(std::stop_source& stop, const Call& call,
                 std::initializer_list<std::string_view> parts) {
  std::atomic<long> thread{0};
  std::atomic<bool> said{false};
  std::jthread other{[&] {
    thread = this_thread_number();
    said = says<ps::cancelled>(call, parts);
  }};
  while (thread == 0) std::this_thread::yield();
  wait_until_asleep(thread);
  stop.request_stop();
  other.join();
  return said;
}

}  // namespace

TEST_CASE("results of every batch come back whole, with the batch that they belong to",
          "[results][promise:honest-20]") {
  const auto workers = GENERATE(std::size_t{1}, std::size_t{3});
  const auto depth = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{4});
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader_options options = ten_each(2);
  options.instrumentation.indices = true;
  ps::loader loader{numbered{95}, ps::shuffled{7}, device, options};
  ps::transfer feed{loader, stream};
  std::mutex mutex;
  std::vector<std::uint64_t> batches;
  std::vector<bool> seen(2 * 95);
  gated_results out{device,
                    stream,
                    10,
                    [&](gated_batch& done) {
                      const std::lock_guard lock{mutex};
                      batches.push_back(done.epoch() * 10 + done.number());
                      REQUIRE(done.indices().size() == done.size());
                      CHECK(done.size() == (done.number() == 9 ? 5 : 10));
                      for (std::size_t i = 0; i < done.size(); ++i) {
                        CHECK(ps::get<"twice">(done).flat()[i] == 2 * done.indices()[i]);
                        seen[done.epoch() * 95 + done.indices()[i]] = true;
                      }
                    },
                    {.depth = depth, .workers = workers}};
  for (auto& [batch, slot] : ps::zip_results(feed.epochs(0, 2), out)) {
    double_labels(batch, slot, stream);
  }
  out.finish();
  REQUIRE(batches.size() == 20);
  if (workers == 1) {
    for (std::size_t i = 0; i < 20; ++i) CHECK(batches[i] == i);
  }
  CHECK(std::ranges::count(seen, true) == 190);
  const auto stats = out.stats();
  CHECK((stats.taken == 20 && stats.handed_in == 20 && stats.consumed == 20));
  CHECK(stats.discarded == 0);
  CHECK(out.device_bytes() == depth * 512);
  CHECK(out.host_bytes() == (depth + workers) * 512);
}

TEST_CASE("the loop's body may be the step, and a slot may be taken by hand", "[results]") {
  ps::loader loader{numbered{40}, ps::sequential{}, ps::cpu_device{}, ten_each(1)};
  std::vector<std::uint64_t> values;
  {
    ps::results<twice> out{ps::cpu_device{}, 10, [&](const auto& done) {
                             for (const auto v : ps::get<"twice">(done).flat()) values.push_back(v);
                           }};
    for (auto& batch : loader.epoch(0)) {
      auto slot = out.acquire(batch);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        ps::get<"twice">(slot).flat()[i] = 2 * ps::get<"label">(batch).flat()[i];
      }
      slot.send();
      CHECK_FALSE(slot);
    }
  }  // everything submitted has been consumed
  REQUIRE(values.size() == 40);
  for (std::size_t i = 0; i < 40; ++i) CHECK(values[i] == 2 * i);
}

TEST_CASE("results are copied after their step, during the next step",
          "[results][promise:race-free-14]") {
  const gated_device device;
  auto stream = device.make_stream();
  gate first;
  gate second;
  notes got;
  ps::detail::waitable_counter consumed;
  gated_results out{device, stream, 10, [&](gated_batch& done) {
                      got.add(done);
                      consumed.advance();
                    }};
  const auto step = [&](std::uint64_t number, gate& at) {
    auto slot = out.acquire(batch_of(number));
    stream.launch([&at, to = ps::get<"twice">(slot), number] {
      at.pass();
      for (auto& value : to.flat()) value = number + 5;
    });
    slot.send();
  };
  step(0, first);
  step(1, second);
  first.wait_for_one();
  CHECK(device.copies() == 0);
  CHECK(consumed.load() == 0);
  first.open.store(1);
  second.wait_for_one();  // the second step runs and does not end
  consumed.wait([](std::uint32_t now) { return now == 1; });
  CHECK(got.values == std::vector<std::uint64_t>(10, 5));
  CHECK(device.copies() == 1);
  second.open.store(1);
  out.finish();
  CHECK(got.batches == std::vector<std::uint64_t>{0, 1});
  CHECK(got.values.back() == 6);
}

TEST_CASE("acquire waits for the copy out of a slot before it returns the slot again",
          "[results][promise:race-free-14][promise:bounded-14]") {
  const gated_device device;
  auto stream = device.make_stream();
  notes got;
  gated_results out{device, stream, 10, [&](gated_batch& done) { got.add(done); }, {.depth = 2}};
  device.hold_copies();
  const auto step = [&](std::uint64_t number) {
    auto slot = out.acquire(batch_of(number));
    stream.launch([to = ps::get<"twice">(slot), number] {
      for (auto& value : to.flat()) value = number;
    });
    slot.send();
  };
  std::atomic<long> loop{0};
  std::atomic<int> taken{0};
  std::jthread other{[&] {
    loop = this_thread_number();
    for (std::uint64_t i = 0; i < 6; ++i) {
      step(i);
      ++taken;
    }
  }};
  while (taken != 2) std::this_thread::yield();
  wait_until_asleep(loop);
  CHECK(taken == 2);
  CHECK(got.batches.empty());
  device.open_copies();
  other.join();
  out.finish();
  CHECK(got.batches == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5});
  for (std::size_t i = 0; i < got.values.size(); ++i) CHECK(got.values[i] == i / 10);
  CHECK(out.stats().waited.count() > 0);
}

TEST_CASE("one worker has the next copies run while it consumes", "[results]") {
  const gated_device device;
  auto stream = device.make_stream();
  gate consumer;
  gated_results out{device,
                    stream,
                    10,
                    [&](gated_batch& done) {
                      if (done.number() == 1) consumer.pass();
                    },
                    {.depth = 4}};
  device.hold_copies();
  for (std::uint64_t i = 0; i < 4; ++i) out.acquire(batch_of(i)).send();
  device.open_copies();
  consumer.wait_for_one();
  while (device.copies() != 4) std::this_thread::yield();
  consumer.open.store(1);
  out.finish();
}

TEST_CASE("results that wait together do not wait for a later step that still runs", "[results]") {
  const gated_device device;
  auto stream = device.make_stream();
  gate consumer;
  gate last_step;
  ps::detail::waitable_counter consumed;
  gated_results out{device,
                    stream,
                    10,
                    [&](gated_batch& done) {
                      if (done.number() == 0) consumer.pass();
                      consumed.advance();
                    },
                    {.depth = 8}};
  out.acquire(batch_of(0)).send();
  consumer.wait_for_one();
  for (std::uint64_t i = 1; i < 5; ++i) {
    auto slot = out.acquire(batch_of(i));
    if (i == 4) stream.launch([&] { last_step.pass(); });
    slot.send();
  }
  last_step.wait_for_one();
  consumer.open.store(1);  // the worker finds four results
  consumed.wait([](std::uint32_t now) { return now == 4; });
  last_step.open.store(1);
  out.finish();
  CHECK(consumed.load() == 5);
}

TEST_CASE("the slots of results that are copied together become free together", "[results]") {
  const gated_device device;
  auto stream = device.make_stream();
  gate first;
  gate second;
  gated_results out{device,
                    stream,
                    10,
                    [&](gated_batch& done) {
                      if (done.number() == 0) first.pass();
                      if (done.number() == 1) second.pass();
                    },
                    {.depth = 4}};
  out.acquire(batch_of(0)).send();
  first.wait_for_one();
  for (std::uint64_t i = 1; i < 5; ++i) out.acquire(batch_of(i)).send();
  first.open.store(1);  // the worker finds four results, of which two share a mark
  second.wait_for_one();
  for (std::uint64_t i = 5; i < 7; ++i) out.acquire(batch_of(i)).send();  // must not wait
  second.open.store(1);
  out.finish();
  CHECK(out.stats().consumed == 7);
}

TEST_CASE("a worker that waits for a copy queues the copies of later results", "[results]") {
  const polled_device device;
  auto stream = device.make_stream();
  std::vector<std::uint64_t> order;
  ps::results<twice, polled_device> out{
      device, stream, 10, [&](auto& done) { order.push_back(done.number()); }, {.depth = 4}};
  const auto wait_for_copies = [&](std::uint32_t number) {
    device.count->queued.wait([&](std::uint32_t now) { return now == number; });
  };
  device.hold_copies();
  out.acquire(batch_of(0)).send();
  device.count->naps.wait([](std::uint32_t now) { return now != 0; });
  out.acquire(batch_of(1)).send();
  wait_for_copies(2);
  SECTION("in order") {
    for (std::uint64_t i = 2; i < 4; ++i) out.acquire(batch_of(i)).send();
    wait_for_copies(4);
    device.open_copies();
    out.finish();
    CHECK(order == std::vector<std::uint64_t>{0, 1, 2, 3});
  }
  SECTION("and names the batch whose copy fails") {
    device.fail_copy(0);
    out.acquire(batch_of(2)).send();
    device.open_copies();
    CHECK(says<device_fault>([&] { out.finish(); }, {"copy_async"}));
    CHECK(out.last_failure()->batch == 2);
  }
}

TEST_CASE("the footprint of results is known before the allocation",
          "[results][promise:bounded-14]") {
  const ps::batch_layout<twice> layout{{}, 10};
  const ps::results_options options{.depth = 4, .workers = 2};
  const auto need = ps::footprint(layout, options);
  const gated_device device;
  auto stream = device.make_stream();
  const gated_results out{device, stream, 10, [](gated_batch&) {}, options};
  CHECK(need.device_bytes == out.device_bytes());
  CHECK(need.host_bytes == out.host_bytes());
  CHECK(need.device_bytes == 4 * need.slot_bytes);
  CHECK(need.host_slots == 6);
  CHECK(need.host_bytes == 6 * need.slot_bytes);
  CHECK_THROWS_AS(ps::footprint(layout, {.depth = 0}), ps::option_error);
}

TEST_CASE("results above the address space are rejected", "[results][promise:bounded-14]") {
  using score = ps::record<ps::field<"score", double>>;
  const ps::batch_layout<score> layout{{}, std::size_t{1} << 59U};
  const gated_device device;
  auto stream = device.make_stream();
  for (const std::size_t depth : {std::size_t{4}, std::size_t{5}}) {  // 2^64 bytes, and more
    const ps::results_options options{.depth = depth};
    CHECK(ps::footprint(layout, options).device_bytes == std::numeric_limits<std::size_t>::max());
    CHECK_THROWS_AS(
        (ps::results<score, gated_device>{device, stream, layout, [](const auto&) {}, options}),
        ps::out_of_memory);
  }
  CHECK(ps::footprint(layout, {.depth = 3}).device_bytes == 3 * layout.bytes());
  CHECK(ps::footprint(layout, {.depth = 3}).host_bytes == std::numeric_limits<std::size_t>::max());
  CHECK(says<ps::out_of_memory>(
      [&] {
        ps::results<score, gated_device>{device, stream, layout, [](const auto&) {}, {.depth = 3}};
      },
      {"pinned", "4 slots"}));
}

TEST_CASE("a trace has the way of each batch's results, and the loop's waits for a slot",
          "[results][promise:honest-19]") {
  ps::trace_recorder recorder;
  ps::detail::waitable_counter gate;  // 1 lets the consumer continue
  {
    ps::cpu_device device;
    ps::cpu_stream stream;
    ps::results<twice> out{
        device,
        stream,
        10,
        [&](const auto&) { gate.wait([](std::uint32_t open) { return open != 0; }); },
        {.depth = 1, .trace = &recorder}};
    out.acquire(batch_of(0)).send();
    out.acquire(batch_of(1)).send();  // not copied while batch 0 is consumed
    const std::jthread later{[&, loop = this_thread_number()] {
      wait_until_asleep(loop);
      gate.advance();
    }};
    out.acquire(batch_of(2)).send();
    out.finish();
    const auto stats = out.stats();
    CHECK(stats.workers == 1);
    CHECK(stats.consuming.count() > 0);
    CHECK(stats.waited.count() > 0);
    CHECK((stats - stats).consumed == 0);
    CHECK((stats - stats).consuming.count() == 0);
  }
  const auto all = recorder.snapshot();
  REQUIRE(all.tracks.size() == 2);
  CHECK(all.tracks[0].name == "penstock results");
  CHECK(all.tracks[1].name == "penstock results worker 0");
  const auto of = [&](std::size_t track, ps::trace_stage stage) {
    std::vector<std::uint64_t> batches;
    for (const auto& event : all.tracks[track].events) {
      if (event.stage == stage) batches.push_back(event.batch.value().batch);
    }
    return batches;
  };
  const std::vector<std::uint64_t> each{0, 1, 2};
  const auto waits = of(0, ps::trace_stage::wait_for_slot);
  CHECK(std::find(waits.begin(), waits.end(), 2) != waits.end());
  CHECK(of(1, ps::trace_stage::copy) == each);
  CHECK(of(1, ps::trace_stage::wait_for_copy) == each);
  CHECK(of(1, ps::trace_stage::consume) == each);
}

TEST_CASE("tags and indices are delivered with their batch", "[results][promise:honest-20]") {
  const gated_device device;
  auto stream = device.make_stream();
  std::vector<std::uint64_t> tags(10);
  std::vector<std::uint64_t> indices(10);
  std::atomic<int> right{0};
  gated_results out{device, stream, 10, [&](gated_batch& done) {
                      right += done.tags().size() == done.size() && done.tags()[0] == done.tag() &&
                               done.indices().front() == done.number();
                    }};
  for (std::uint64_t i = 0; i < 30; ++i) {
    const std::size_t size = i % 3 == 0 ? 4 : 10;
    ps::batch_info info = batch_of(i, size);
    info.tag = i + 100;
    std::ranges::fill(tags, info.tag);
    std::ranges::fill(indices, i);
    out.acquire(info, std::span{tags}.first(size), std::span{indices}.first(size)).send();
  }
  out.finish();
  CHECK(right == 30);
}

TEST_CASE("an exception of a consumer ends the loop at the next acquire, which names the batch",
          "[results][fault:consumers-9]") {
  const auto workers = GENERATE(std::size_t{1}, std::size_t{2});
  const gated_device device;
  auto stream = device.make_stream();
  std::atomic<int> consumed{0};
  gated_results out{device,
                    stream,
                    10,
                    [&](gated_batch& done) {
                      if (done.number() == 3) throw std::runtime_error("the disk is full");
                      ++consumed;
                    },
                    {.depth = 2, .workers = workers}};
  std::uint64_t taken = 0;
  const auto loop = [&] {
    for (; taken < 1000; ++taken) out.acquire(batch_of(taken)).send();
  };
  CHECK_THROWS_WITH(loop(), "the disk is full");
  // A single worker consumes 3 batches, and 3 host slots and 2 device slots hold the next batches.
  // Before the first worker throws, a second worker may consume more batches.
  CHECK(taken <= (workers == 1 ? 3 + 3 + 2 : 999));
  REQUIRE(out.last_failure());
  CHECK(out.last_failure()->stage == "results");
  CHECK(out.last_failure()->batch == 3);
  if (workers == 1) CHECK(consumed == 3);
  CHECK_THROWS_WITH(out.acquire(batch_of(2000)), "the disk is full");
  CHECK_THROWS_WITH(out.finish(), "the disk is full");
  out.close();  // does not throw, because the error has been reported
}

TEST_CASE("an exception takes precedence over the checks of acquire",
          "[results][fault:consumers-9]") {
  const gated_device device;
  auto stream = device.make_stream();
  gated_results out{device, stream, 10, [](gated_batch&) { throw std::runtime_error("no"); }};
  out.rethrow();  // does not throw before the first error
  out.acquire(batch_of(0)).send();
  CHECK_THROWS_WITH(out.finish(), "no");
  CHECK_THROWS_WITH(out.acquire(batch_of(0)), "no");      // batch 0 already has a slot
  CHECK_THROWS_WITH(out.acquire(batch_of(1, 11)), "no");  // the batch is too large
  CHECK_THROWS_WITH(out.rethrow(), "no");
}

TEST_CASE("a loop whose consumer has thrown does not wait for another batch",
          "[results][fault:consumers-9]") {
  ps::loader loader{numbered{95}, ps::sequential{}, ten_each(0)};
  ps::transfer feed{loader};
  ps::results<twice> out{ps::cpu_device{}, 10, [](auto&) { throw std::runtime_error("no"); }};
  std::uint64_t batches = 0;
  const auto loop = [&] {
    for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
      ++batches;
      slot.send();
      CHECK_THROWS_WITH(out.finish(), "no");
    }
  };
  CHECK_THROWS_WITH(loop(), "no");
  CHECK(batches == 1);
  CHECK(feed.state().batch == 1);  // the second batch is not taken
}

TEST_CASE("a failure that belongs to no batch names none", "[results]") {
  struct homeless : gated_device {
    void make_current() const { throw std::runtime_error("no context"); }
  };
  const homeless device;
  auto stream = device.make_stream();
  ps::results<twice, homeless> out{device, stream, 10, [](auto&) {}};
  CHECK_THROWS_WITH(out.close(), "no context");
  CHECK_FALSE(out.last_failure());
}

TEST_CASE("the exception of the last batch is thrown by finish or close",
          "[results][fault:consumers-9]") {
  const bool by_finish = GENERATE(true, false);
  const gated_device device;
  auto stream = device.make_stream();
  gated_results out{device, stream, 10, [&](gated_batch&) { throw std::runtime_error("no"); }};
  out.acquire(batch_of(0)).send();
  if (by_finish) {
    CHECK_THROWS_WITH(out.finish(), "no");
  } else {
    CHECK_THROWS_WITH(out.close(), "no");
  }
}

TEST_CASE("a slot that is not sent is discarded and becomes free", "[results][promise:honest-20]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream};
  notes got;
  gated_results out{device, stream, 10, [&](gated_batch& done) { got.add(done); }, {.depth = 2}};
  SECTION("after a break") {
    for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
      double_labels(batch, slot, stream);
      if (batch.number() == 4) break;
    }
    out.finish();
    CHECK(got.batches == std::vector<std::uint64_t>{0, 1, 2, 3});
    CHECK(out.stats().discarded == 1);
  }
  SECTION("but not if it is sent before a break") {
    for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
      double_labels(batch, slot, stream);
      if (batch.number() != 4) continue;
      slot.send();
      break;
    }
    out.finish();
    CHECK(got.batches == std::vector<std::uint64_t>{0, 1, 2, 3, 4});
    CHECK(out.stats().discarded == 0);
  }
  SECTION("if the loop body throws") {
    CHECK_THROWS_AS(
        [&] {
          for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
            double_labels(batch, slot, stream);
            if (batch.number() == 2) throw std::logic_error("a step");
          }
        }(),
        std::logic_error);
    out.finish();
    CHECK(got.batches == std::vector<std::uint64_t>{0, 1});
  }
  SECTION("if the loop body drops every slot") {
    for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) slot = {};
    out.finish();
    CHECK(got.batches.empty());
    CHECK(out.stats().discarded == 10);
  }
  SECTION("and its batch can acquire another slot") {
    { auto dropped = out.acquire(batch_of(0)); }
    out.acquire(batch_of(0)).send();
    out.finish();
    CHECK(got.batches.size() == 1);
  }
}

TEST_CASE("acquire explains a rejection", "[results][fault:consumers-10]") {
  const gated_device device;
  auto stream = device.make_stream();
  gated_results out{device, stream, 10, [](gated_batch&) {}};
  CHECK(says<ps::results_error>([&] { (void)out.acquire(batch_of(3, 11)); },
                                {"batch 3 of epoch 0", "11", "10", "batch_size"}));
  const auto held = out.acquire(batch_of(3));
  CHECK(says<ps::results_error>([&] { (void)out.acquire(batch_of(3)); },
                                {"batch 3 of epoch 0", "already"}));
  const std::vector<std::uint64_t> words(4);
  CHECK(says<ps::results_error>([&] { (void)out.acquire(batch_of(4, 3), words, {}); },
                                {"3 samples", "4 tags"}));
  auto second = out.acquire(batch_of(4));
  auto third = out.acquire(batch_of(5));
  // The call throws instead of waiting, because this thread holds all slots.
  CHECK(
      says<ps::leases_exhausted>([&] { (void)out.acquire(batch_of(6)); }, {"all 3 device slots"}));
  second = {};
  third = out.acquire(batch_of(6));
  out.close();
  CHECK(says<ps::results_error>([&] { (void)out.acquire(batch_of(5)); }, {"close"}));
  const auto rejects = [&](ps::results_options options,
                           std::initializer_list<std::string_view> parts) {
    return says<ps::option_error>(
        [&] { gated_results{device, stream, 10, [](gated_batch&) {}, options}; }, parts);
  };
  CHECK(rejects({.depth = 0}, {"depth", "0"}));
  CHECK(rejects({.workers = 0}, {"workers", "0"}));
  CHECK(rejects({.depth = 1025}, {"depth", "1025"}));
  CHECK(says<ps::option_error>([&] { gated_results{device, stream, 10, nullptr}; }, {"consume"}));
}

TEST_CASE("a stop request ends a waiting acquire", "[results][promise:bounded-7]") {
  const gated_device device;
  auto stream = device.make_stream();
  std::stop_source stop;
  gated_results out{
      device, stream, 10, [](gated_batch&) {}, {.depth = 1, .stop = stop.get_token()}};
  device.hold_copies();
  out.acquire(batch_of(0)).send();
  CHECK(is_ended_by(stop, [&] { (void)out.acquire(batch_of(1)); }, {"stop"}));
  device.open_copies();
  out.finish();
}

TEST_CASE("a stop request ends a finish that waits for a kept lease, and nothing is lost",
          "[results][promise:bounded-7]") {
  const gated_device device;
  auto stream = device.make_stream();
  std::stop_source stop;
  std::vector<gated_batch> kept;
  gated_results out{device,
                    stream,
                    10,
                    [&](gated_batch& done) { kept.push_back(std::move(done)); },
                    {.depth = 1, .stop = stop.get_token()}};
  for (std::uint64_t i = 0; i < 3; ++i) out.acquire(batch_of(i)).send();
  CHECK(is_ended_by(stop, [&] { out.finish(); }, {"stop", "kept leases"}));
  REQUIRE(kept.size() == 2);
  {
    // After this lease ends, the consumer can keep another result.
    const auto ended = std::move(kept.front());
  }
  out.finish();
  REQUIRE(kept.size() == 3);
  CHECK(kept.back().number() == 2);
}

TEST_CASE("leases kept by consumers hold back the loop, or end it if waiting is not allowed",
          "[results][fault:consumers-2]") {
  const gated_device device;
  auto stream = device.make_stream();
  std::mutex mutex;
  std::vector<gated_batch> kept;
  const auto keep = [&](gated_batch& done) {
    const std::lock_guard lock{mutex};
    kept.push_back(std::move(done));
  };
  SECTION("acquire throws if it must not wait") {
    gated_results out{
        device, stream, 10, keep, {.depth = 1, .on_slots_exhausted = ps::exhausted_action::fail}};
    const auto loop = [&] {
      for (std::uint64_t i = 0; i < 100; ++i) out.acquire(batch_of(i)).send();
    };
    CHECK(says<ps::leases_exhausted>(loop, {"2 host slots", "raise depth"}));
    CHECK_THROWS_AS(out.finish(), ps::leases_exhausted);
    std::exchange(kept, {}).clear();  // the first release lets the consumer keep another result
    out.finish();
    CHECK(kept.size() == 1);
  }
  SECTION("acquire waits until a lease is released") {
    gated_results out{device, stream, 10, keep, {.depth = 1}};
    std::atomic<long> loop{0};
    std::jthread other{[&] {
      loop = this_thread_number();
      for (std::uint64_t i = 0; i < 4; ++i) out.acquire(batch_of(i)).send();
    }};
    while (loop == 0) std::this_thread::yield();
    wait_until_asleep(loop);
    for (std::uint64_t i = 0; i < 4;) {
      const std::lock_guard lock{mutex};
      for (const auto& one : std::exchange(kept, {})) CHECK(one.number() == i++);
    }
    other.join();
    out.finish();
  }
  SECTION("close does not wait, and reports the first lost batch") {
    gated_results out{device, stream, 10, keep, {.depth = 1}};
    for (std::uint64_t i = 0; i < 3; ++i) out.acquire(batch_of(i)).send();
    CHECK(says<ps::leases_exhausted>([&] { out.close(); }, {"2 host slots"}));
    REQUIRE(out.last_failure());
    CHECK(out.last_failure()->batch == 2);
  }
  SECTION("a lease may outlive the results object") {
    {
      gated_results out{device, stream, 10, keep};
      auto slot = out.acquire(batch_of(0));
      stream.launch([to = ps::get<"twice">(slot)] {
        for (auto& value : to.flat()) value = 9;
      });
      slot.send();
    }
    REQUIRE(kept.size() == 1);
    CHECK(ps::get<"twice">(kept.front()).flat()[9] == 9);
  }
}

TEST_CASE("a device failure during the copy of results names the batch, and nothing hangs",
          "[results][fault:devices-3]") {
  const gated_device device;
  auto stream = device.make_stream();
  std::atomic<int> consumed{0};
  gated_results out{device, stream, 10, [&](gated_batch&) { ++consumed; }, {.depth = 2}};
  out.acquire(batch_of(0)).send();
  out.finish();
  const auto loop = [&] {
    for (std::uint64_t i = 1; i < 100; ++i) out.acquire(batch_of(i)).send();
    out.finish();
  };
  SECTION("the copy fails") {
    device.fail_copy(1);
    CHECK(says<device_fault>(loop, {"copy_async"}));
    CHECK(out.last_failure()->batch == 2);
  }
  SECTION("the wait for the copy fails") {
    device.fail_synchronize(0);
    CHECK(says<device_fault>(loop, {"synchronize"}));
    CHECK(out.last_failure()->batch == 1);
  }
  SECTION("recording the event of the step fails") {
    auto slot = out.acquire(batch_of(1));
    device.fail_record(0);
    CHECK(says<device_fault>([&] { slot.send(); }, {"record"}));
    CHECK(slot.send());  // the failed send has kept the slot
    out.finish();
    CHECK(consumed == 2);
    CHECK(out.stats().discarded == 0);
  }
  SECTION("recording the event and synchronizing the stream fail") {
    auto dropped = out.acquire(batch_of(1));
    const auto* const place = dropped.data();
    device.fail_record(0);
    device.fail_stream_synchronize(0);
    dropped = {};
    // The step may still write to the slot.
    device.fail_stream_synchronize(0);
    auto next = out.acquire(batch_of(2));
    CHECK(next.data() != place);
    device.fail_stream_synchronize(0);
    CHECK(says<ps::leases_exhausted>([&] { (void)out.acquire(batch_of(3)); },
                                     {"2 device slots", "dropped 1"}));
    auto again = out.acquire(batch_of(3));  // the wait has succeeded
    CHECK(again.data() == place);
    next.send();
    again.send();
    out.finish();
    CHECK(consumed == 3);
    CHECK(out.stats().discarded == 1);
  }
}

TEST_CASE("ragged results are delivered, and invalid offsets are rejected",
          "[results][fault:consumers-10]") {
  using words = ps::record<ps::field<"word", std::uint16_t, ps::ragged>>;
  const ps::record_extents<words> extents{{.longest = 4, .max_values_per_batch = 12}};
  const gated_device device;
  auto stream = device.make_stream();
  std::vector<std::uint16_t> got;
  ps::results<words, gated_device> out{device, stream, ps::batch_layout<words>{extents, 4},
                                       [&](const auto& done) {
                                         for (std::size_t i = 0; i < done.size(); ++i) {
                                           for (const auto value : ps::get<"word">(done)[i].flat())
                                             got.push_back(value);
                                         }
                                       }};
  const auto send = [&](std::vector<std::int32_t> offsets) {
    auto slot = out.acquire(batch_of(out.stats().taken, offsets.size() - 1));
    auto* const at = reinterpret_cast<std::int32_t*>(
        slot.data() + ps::batch_layout<words>{extents, 4}.offsets_at<0>());
    auto* const values = reinterpret_cast<std::uint16_t*>(
        slot.data() + ps::batch_layout<words>{extents, 4}.offset<0>());
    for (std::size_t i = 0; i < offsets.size(); ++i) at[i] = offsets[i];
    for (std::uint16_t i = 0; i < 12; ++i) values[i] = i;
    slot.send();
    out.finish();
  };
  send({0, 2, 2, 5});
  CHECK(got == std::vector<std::uint16_t>{0, 1, 2, 3, 4});
  const auto wrong =
      GENERATE(std::vector<std::int32_t>{0, 3, 2, 5}, std::vector<std::int32_t>{0, 3, 13},
               std::vector<std::int32_t>{1, 2}, std::vector<std::int32_t>{0, -1, 2});
  CHECK(says<ps::results_error>([&] { send(wrong); }, {"\"word\"", "offset"}));
  CHECK(out.last_failure()->batch == 1);
}

TEST_CASE("results on a different stream than the feed's are rejected, and both are named",
          "[results][fault:consumers-10]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  auto second = device.make_stream();
  using cpu_results = ps::results<twice>;
  const auto none = device.inline_stream();
  ps::loader loader{numbered{40}, ps::sequential{}, device, ten_each(1)};
  // Runs a loop with the feed on stream `fed` and the results on stream `computed`. Takes the slots
  // by zip_results if `is_joined`, and otherwise one by one.
  const auto run = [&](ps::cpu_stream_ref fed, ps::cpu_stream_ref computed, bool is_joined) {
    ps::transfer feed{loader, fed};
    cpu_results out{device, computed, 10, [](auto&) {}};
    if (is_joined) {
      for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out))
        double_labels(batch, slot, fed);
    } else {
      for (auto& batch : feed.epoch(0)) out.acquire(batch).send();
    }
    out.finish();
    return out.stats().consumed;
  };
  const bool is_joined = GENERATE(true, false);
  CHECK(run(stream, stream, is_joined) == 4);
  CHECK(run(none, none, is_joined) == 4);
  CHECK(says<ps::results_error>([&] { run(stream, none, is_joined); },
                                {"batch 0 of epoch 0", "a feed with stream 0x",
                                 "results have no stream", "results out{device, stream"}));
  CHECK(says<ps::results_error>([&] { run(none, stream, is_joined); },
                                {"a feed with no stream", "results have stream 0x"}));
  CHECK(says<ps::results_error>([&] { run(stream, second, is_joined); },
                                {"a feed with stream 0x", "results have stream 0x"}));
}

TEST_CASE("results may be computed on a second stream that the batch names", "[results]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  auto second = device.make_stream();
  ps::loader loader{numbered{40}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream};
  std::atomic<std::size_t> right{0};
  ps::results<twice> out{device, second, 10, [&right](auto& done) {
                           const auto values = ps::get<"twice">(done).flat();
                           for (std::size_t i = 0; i < values.size(); ++i) {
                             if (values[i] == 2 * (done.number() * 10 + i)) ++right;
                           }
                         }};
  for (auto& batch : feed.epoch(0)) {
    CHECK_FALSE(batch.is_ordered_on(second));
    batch.also_used_on(second);
    auto slot = out.acquire(batch);
    double_labels(batch, slot, second);
    slot.send();
  }
  // A program that orders the streams itself passes only the batch.
  for (auto& batch : feed.epoch(0)) (void)out.acquire(batch.info());
  out.finish();
  CHECK(out.stats().consumed == 4);
  CHECK(right == 40);
}

TEST_CASE("exit() in a consumer, a step or another thread ends a process with static results",
          "[transfer][results][fault:hangs-8]") {
  enum class place { consumer, one_of_two_consumers, step, other_thread };
  static std::optional<ps::cpu_stream> stream;
  static std::optional<ps::loader<numbered, ps::sequential>> loader;
  static std::optional<ps::transfer<ps::loader<numbered, ps::sequential>&>> feed;
  static std::optional<ps::results<twice>> out;
  for (const place exits :
       {place::consumer, place::one_of_two_consumers, place::step, place::other_thread}) {
    INFO("place " << static_cast<int>(exits));
    CHECK(test::in_child([exits]() -> int {
            const ps::cpu_device device;
            const bool is_consumer = exits <= place::one_of_two_consumers;
            const std::size_t workers = exits == place::one_of_two_consumers ? 2 : 1;
            static std::atomic<std::size_t> consumed{0};
            stream.emplace();
            loader.emplace(numbered{10'000}, ps::sequential{},
                           ps::loader_options{.batch_size = 10});
            feed.emplace(*loader, *stream);
            out.emplace(
                device, *stream, 10,
                [is_consumer](const auto&) {
                  if (++consumed == 5 && is_consumer) std::exit(7);
                },
                ps::results_options{.workers = workers});
            std::thread other;
            if (exits == place::other_thread) {
              other = std::thread{[] {
                while (consumed < 5) std::this_thread::yield();
                std::exit(7);
              }};
            }
            try {
              for (;;) {
                for (auto& [batch, slot] : ps::zip_results(feed->epoch(0), *out)) {
                  double_labels(batch, slot, *stream);
                  if (exits == place::step && batch.number() == 5) {
                    stream->launch([] { std::exit(7); });
                  }
                }
              }
            } catch (const ps::cancelled&) {
              for (;;) ::pause();
            }
          }) == 7);
  }
}

TEST_CASE("a loop or a call that waits is cancelled when another thread destroys the results",
          "[transfer][results][fault:consumers-12]") {
  ps::cpu_device device;
  ps::detail::waitable_counter open;
  auto out = std::make_unique<ps::results<twice>>(
      device, 10,
      [&](const auto&) { open.wait([](std::uint32_t is_open) { return is_open != 0; }); },
      ps::results_options{.depth = 1});
  ps::loader loader{numbered{1'000'000}, ps::sequential{}, {.batch_size = 10}};
  ps::transfer feed{loader, device};
  auto range = ps::zip_results(feed.epoch(0), *out);
  std::thread other{[&, consumer = this_thread_number()] {
    wait_until_asleep(consumer);  // for a slot
    std::thread opener{[&, destroyer = this_thread_number()] {
      wait_until_asleep(destroyer);  // for the consumer, after it has begun to reject calls
      open.store(1);
    }};
    out.reset();
    opener.join();
  }};
  CHECK_THROWS_AS(
      [&] {
        for (auto& [batch, slot] : range) static_cast<void>(slot);
      }(),
      ps::cancelled);
  other.join();
}
