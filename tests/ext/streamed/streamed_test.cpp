// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/streamed/streamed.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/transfer/any_transfer.hpp>
#include <penstock/transfer/transfer.hpp>
#include <penstock_ext/results/results.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;

namespace {

using number = ps::record<ps::field<"x", std::uint64_t>>;
using words =
    ps::record<ps::field<"length", std::uint32_t>, ps::field<"letters", char, ps::ragged>>;
using numbers = std::vector<std::uint64_t>;

/// A source of the numbers 0 to `count` - 1. The end is known only when it is reached.
struct counted {
  std::uint64_t count;
  std::uint64_t next = 0;

  std::size_t operator()(const ps::batch_view<number>& out) {
    std::size_t n = 0;
    while (n != out.size() && next != count) ps::get<"x">(out[n++]) = next++;
    return n;
  }
};

/// A source of the numbers 0 to `count` - 1 with tokens. The token of a batch is the number that
/// follows the batch.
struct with_token {
  std::shared_ptr<counted> from;

  std::size_t operator()(const ps::batch_view<number>& out, ps::stream_turn& turn) const {
    const std::size_t n = (*from)(out);
    turn.set_token(std::to_string(from->next));
    return n;
  }
  [[nodiscard]] auto seek() const {
    return [from = from](const ps::stream_state& to) {
      from->next = to.token.empty() ? 0 : std::stoull(to.token);
    };
  }
};
with_token numbers_to(std::uint64_t count) { return {std::make_shared<counted>(counted{count})}; }

numbers up_to(std::uint64_t end, std::uint64_t begin = 0) {
  numbers all(end - begin);
  std::iota(all.begin(), all.end(), begin);
  return all;
}

template <class Batch>
void append(numbers& all, const Batch& batch) {
  const auto x = ps::get<"x">(batch).flat();
  all.insert(all.end(), x.begin(), x.end());
}

/// Reads a range. Checks that batches are numbered consecutively from `first`.
template <class Range>
numbers read(Range&& range, std::uint64_t first = 0) {
  numbers all;
  for (auto& batch : range) {
    CHECK(batch.number() == first++);
    append(all, batch);
  }
  return all;
}

}  // namespace

TEST_CASE("all records of a stream of unknown length arrive, and the loop ends", "[streamed]") {
  const std::size_t workers = GENERATE(1U, 3U);
  const std::size_t size = GENERATE(1U, 100U, 1003U, 2000U);
  const std::size_t prefetch = GENERATE(0U, 1U);
  const auto make = [&] {
    return ps::streamed<number>{counted{1003},
                                {.batch_size = size, .workers = workers, .prefetch = prefetch}};
  };
  SECTION("in host memory") {
    auto source = make();
    CHECK(read(source.epoch(0)) == up_to(1003));
    CHECK(source.state().batch == (1003 + size - 1) / size);
  }
  SECTION("with next of the stream") {
    auto source = make();
    numbers all;
    while (auto batch = source.next()) append(all, batch);
    CHECK(all == up_to(1003));
    CHECK_FALSE(source.next());
  }
  SECTION("in a transfer") {
    auto source = make();
    ps::transfer feed{source};
    CHECK(read(feed.epoch(0)) == up_to(1003));
  }
  SECTION("with next of a transfer") {
    ps::transfer feed{make()};
    numbers all;
    while (auto& batch = feed.next()) append(all, batch);
    CHECK(all == up_to(1003));
    CHECK_FALSE(feed.next());
  }
  SECTION("in a type-erased transfer") {
    ps::any_transfer feed{ps::transfer{make()}};
    CHECK(read(feed.epoch(0)) == up_to(1003));
  }
  SECTION("with zero copy") {
    ps::transfer feed{make(), {.tuning = {.zero_copy = ps::zero_copy_use::always}}};
    CHECK(feed.zero_copy());
    CHECK(read(feed.epoch(0)) == up_to(1003));
  }
}

TEST_CASE("the last batch of a stream has the samples that were left", "[streamed]") {
  ps::streamed<number> source{counted{7}, {.batch_size = 3}};
  std::vector<std::size_t> sizes;
  for (auto& batch : source.epoch(0)) sizes.push_back(batch.size());
  CHECK(sizes == std::vector<std::size_t>{3, 3, 1});
}

TEST_CASE("an empty stream delivers no batch", "[streamed]") {
  ps::streamed<number> source{counted{0}, {.batch_size = 3, .workers = 2}};
  CHECK(read(source.epoch(0)).empty());
  CHECK(source.state() == ps::stream_state{});
}

TEST_CASE("a stream moves its function in, which need not be copyable", "[streamed]") {
  ps::transfer feed{ps::streamed<number>{[from = std::make_unique<counted>(counted{10})](
                                             ps::batch_view<number> out) { return (*from)(out); },
                                         {.batch_size = 4}}};
  CHECK(read(feed.epoch(0)) == up_to(10));
}

TEST_CASE("workers that pass their turn decode at once, and batches keep the order of the turns",
          "[streamed]") {
  constexpr std::size_t workers = 3;
  std::atomic<std::size_t> inside{0};
  std::uint64_t next = 0;  // guarded by the turn
  ps::streamed<number> source{
      [&](ps::batch_view<number> out, ps::stream_turn& turn) -> std::size_t {
        if (next == 3 * workers) return 0;
        const std::uint64_t mine = next++;
        turn.pass();
        turn.pass();  // a second call has no effect
        // Each call waits until all workers have passed on their turn.
        const std::size_t now = ++inside;
        const std::size_t wanted = (now + workers - 1) / workers * workers;
        while (inside < wanted) std::this_thread::yield();
        ps::get<"x">(out[0]) = mine;
        return 1;
      },
      {.batch_size = 1, .workers = workers, .prefetch = workers}};
  CHECK(read(source.epoch(0)) == up_to(3 * workers));
}

TEST_CASE("calls in progress at the end of a stream lose no sample", "[streamed]") {
  const bool is_end_first = GENERATE(false, true);
  std::atomic<int> calls{0};
  std::atomic<bool> is_second_done{false};
  ps::streamed<number> source{
      [&](ps::batch_view<number> out, ps::stream_turn& turn) -> std::size_t {
        const int mine = calls++;
        turn.pass();
        if (mine > 1) return 0;
        // The call with the second turn returns, or is about to return, before the call with the
        // first turn.
        if (mine == 0) {
          while (!is_second_done) std::this_thread::yield();
        }
        const bool has_samples = is_end_first == (mine == 1);
        if (has_samples) ps::get<"x">(out[0]) = 7;
        if (mine == 1) is_second_done = true;
        return has_samples ? 1 : 0;
      },
      {.batch_size = 1, .workers = 2}};
  CHECK(read(source.epoch(0)) == numbers{7});
}

TEST_CASE("an exception of fill arrives at its turn with its type", "[streamed]") {
  const bool is_copied = GENERATE(false, true);
  const auto fill = [from = counted{1000}](ps::batch_view<number> out) mutable {
    if (from.next == 30) throw std::domain_error{"record 30"};
    return from(out);
  };
  numbers all;
  const auto loop = [&](auto& stage) {
    for (auto& batch : stage.epoch(0)) append(all, batch);
  };
  ps::streamed<number> source{fill, {.batch_size = 10, .workers = 2}};
  if (is_copied) {
    ps::transfer feed{source};
    CHECK_THROWS_AS(loop(feed), std::domain_error);
    REQUIRE(feed.last_failure());
    CHECK(feed.last_failure()->stage == "fill");
  } else {
    CHECK_THROWS_AS(loop(source), std::domain_error);
  }
  CHECK(all == up_to(30));
  REQUIRE(source.last_failure());
  CHECK(source.last_failure()->stage == "fill");
  CHECK(source.last_failure()->batch == 3);
}

TEST_CASE("batches of turns after an exception are dropped, and the stream can start again",
          "[streamed]") {
  std::atomic<bool> is_second_done{false};
  bool fails = true;
  auto from = numbers_to(4);
  ps::streamed<number> source{
      [&](ps::batch_view<number> out, ps::stream_turn& turn) -> std::size_t {
        const std::size_t n = from(out, turn);
        if (!fails) return n;
        const bool is_first = from.from->next == 1;
        turn.pass();
        if (!is_first) {
          is_second_done = true;
          return n;
        }
        while (!is_second_done) std::this_thread::yield();
        throw std::domain_error{"the first"};
      },
      {.batch_size = 1, .workers = 2, .prefetch = 2, .seek = from.seek()}};
  CHECK_THROWS_AS(read(source.epoch(0)), std::domain_error);
  fails = false;  // safe, because no thread is inside `fill`
  CHECK(read(source.epoch(0)) == up_to(4));
}

TEST_CASE("a state contains the token of its batch, and resume passes it to the stream",
          "[streamed]") {
  const std::uint64_t left_at = GENERATE(1U, 2U, 33U);
  const bool is_copied = GENERATE(false, true);
  const auto options = [](const with_token& from) {
    return ps::streamed_options{.batch_size = 30, .workers = 2, .prefetch = 4, .seek = from.seek()};
  };
  const auto first = numbers_to(1000);
  ps::stream_state at;
  const auto loop = [&](auto& stage) {
    std::uint64_t n = 0;
    for ([[maybe_unused]] auto& batch : stage.epoch(0)) {
      if (++n == left_at) break;
    }
    at = stage.state();
    CHECK(stage.state_at({0, 0}).token.empty());
  };
  {
    ps::streamed<number> source{first, options(first)};
    if (is_copied) {
      ps::transfer feed{source};
      loop(feed);
    } else {
      loop(source);
    }
  }
  CHECK(at == ps::stream_state{0, left_at, std::to_string(30 * left_at)});

  const auto second = numbers_to(1000);
  ps::streamed<number> source{second, options(second)};
  const numbers rest = up_to(1000, 30 * left_at);
  if (is_copied) {
    ps::transfer feed{source};
    CHECK(read(feed.resume(at, 1), left_at) == rest);
    feed.resume(at);
    CHECK(feed.next().number() == left_at);
  } else {
    CHECK(read(source.resume(at, 1), left_at) == rest);
    // A position with a known token needs no state.
    CHECK(read(source.batches({0, left_at}, ps::until_epoch{1}), left_at) == rest);
  }
}

TEST_CASE("a stream reads each epoch of a range, after a seek to its start", "[streamed]") {
  std::vector<ps::stream_state> seeks;
  const auto from = numbers_to(10);
  ps::streamed<number> source{from, {.batch_size = 4, .seek = [&](const ps::stream_state& to) {
                                       seeks.push_back(to);
                                       from.seek()(to);
                                     }}};
  numbers expected = up_to(10);
  for (int epoch = 1; epoch != 3; ++epoch) {
    for (const auto x : up_to(10)) expected.push_back(x);
  }
  const auto read_all = [](auto&& range) {
    numbers all;
    for (auto& batch : range) append(all, batch);
    return all;
  };
  SECTION("in host memory") { CHECK(read_all(source.epochs(2, 5)) == expected); }
  SECTION("in a transfer") {
    ps::transfer feed{source};
    CHECK(read_all(feed.epochs(2, 5)) == expected);
  }
  CHECK(seeks == std::vector<ps::stream_state>{{2, 0, {}}, {3, 0, {}}, {4, 0, {}}});
}

TEST_CASE("fill is not called again after it has returned 0", "[streamed]") {
  std::atomic<int> calls{0};
  std::atomic<long> thread{0};
  ps::streamed<number> source{[&](ps::batch_view<number>) {
                                ++calls;
                                thread = this_thread_number();
                                return std::size_t{0};
                              },
                              {.batch_size = 1, .prefetch = 4}};
  source.start({}, 1);
  while (thread == 0) std::this_thread::yield();
  wait_until_asleep(thread);  // the thread sleeps until the next pass and does not wait for a slot
  CHECK(calls == 1);
  CHECK_FALSE(source.next());
}

TEST_CASE("every pass over a stream ends with one call that returns 0, and loses no slot",
          "[streamed]") {
  constexpr std::uint64_t passes = 200;
  const std::size_t workers = GENERATE(1U, 3U);
  const auto from = numbers_to(3);
  std::uint64_t calls = 0;   // only the thread whose turn it is uses this, like the next number
  std::uint64_t wanted = 0;  // number of calls whose batch was wanted
  ps::streamed<number> source{
      [&](ps::batch_view<number> out, ps::stream_turn& turn) {
        ++calls;
        wanted += turn.stop_token().stop_requested() ? 0U : 1U;
        return from(out, turn);
      },
      {.batch_size = 1, .workers = workers, .prefetch = 3, .seek = from.seek()}};
  for (std::uint64_t pass = 0; pass != passes; ++pass) CHECK(read(source.epoch(pass)) == up_to(3));
  CHECK(calls == 4 * passes);
  CHECK(wanted == 4 * passes);
}

TEST_CASE("try_next of a stream does not start the next pass", "[streamed]") {
  int seeks = 0;
  std::atomic<int> calls{0};
  std::atomic<long> thread{0};
  const auto from = numbers_to(1);
  ps::streamed<number> source{[&](ps::batch_view<number> out, ps::stream_turn& turn) {
                                thread = this_thread_number();
                                ++calls;
                                return from(out, turn);
                              },
                              {.batch_size = 1, .seek = [&](const ps::stream_state& to) {
                                 ++seeks;
                                 from.seek()(to);
                               }}};
  source.start({}, 2);
  CHECK(source.next());
  while (calls != 2) std::this_thread::yield();
  wait_until_asleep(thread);  // waits until the end has been announced
  for (int look = 0; look != 3; ++look) CHECK_FALSE(source.try_next());
  CHECK(seeks == 1);
  CHECK(source.next().epoch() == 1);
  CHECK(seeks == 2);
  CHECK_FALSE(source.next());
}

TEST_CASE("loops that are left return the slots that were read ahead", "[streamed]") {
  const auto from = numbers_to(10);
  ps::streamed<number> source{from,
                              {.batch_size = 1, .workers = 2, .prefetch = 2, .seek = from.seek()}};
  for (int loop = 0; loop != 10; ++loop) {
    for ([[maybe_unused]] auto& batch : source.epoch(0)) break;
  }
  CHECK(read(source.epoch(0)) == up_to(10));
}

TEST_CASE("a stream without seek is read once", "[streamed]") {
  ps::streamed<number> source{counted{10}, {.batch_size = 4}};
  CHECK(read(source.epoch(0)) == up_to(10));
  CHECK_THROWS_AS(read(source.epoch(0)), ps::state_mismatch);
  ps::streamed<number> other{counted{10}, {.batch_size = 4}};
  CHECK_THROWS_AS(read(other.resume({0, 1, "4"}, 1)), ps::state_mismatch);
  CHECK(read(other.epoch(0)) == up_to(10));  // the rejected loop has read nothing
}

TEST_CASE("a position whose token is not known is rejected", "[streamed]") {
  const auto from = numbers_to(10'000);
  ps::streamed<number> source{from, {.batch_size = 1, .prefetch = 1, .seek = from.seek()}};
  CHECK_THROWS_AS(source.state_at({0, 1}), ps::state_mismatch);
  CHECK_THROWS_AS(read(source.batches({0, 1}, ps::until_epoch{1})), ps::state_mismatch);
  CHECK(read(source.epoch(0)) == up_to(10'000));
  CHECK(source.state_at({0, 10'000}).token == "10000");
  CHECK(source.state_at({0, 10'000 - 1024}).token == std::to_string(10'000 - 1024));
  CHECK_THROWS_AS(source.state_at({0, 1}), ps::state_mismatch);
}

TEST_CASE("ragged samples of a stream have the lengths that fill has placed", "[streamed]") {
  const auto length_of = [](std::uint32_t i) { return (7 * i) % 11; };
  constexpr std::uint32_t count = 50;
  std::uint32_t next = 0;  // guarded by the turn
  const gated_device device;
  ps::streamed<words, gated_device> source{
      device,
      ps::record_extents<words>{{}, {.longest = 10}},
      [&](ps::batch_view<words> out) {
        std::size_t n = 0;
        for (; n != out.size() && next != count; ++n, ++next) {
          const std::uint32_t length = length_of(next);
          // The sample belongs to the next batch.
          if (ps::place_sample(out, n, {length}) != words::size) break;
          ps::get<"length">(out[n]) = length;
          for (char& letter : ps::get<"letters">(out[n]).flat())
            letter = static_cast<char>('a' + length);
        }
        return n;
      },
      {.batch_size = 8, .workers = 2, .memory = {.max_values_per_batch = 24}}};
  ps::transfer feed{source};
  std::uint32_t seen = 0;
  std::size_t values = 0;
  bool is_right = true;
  std::size_t bytes = 0;
  for (auto& batch : feed.epoch(0)) {
    const auto letters = ps::get<"letters">(batch);
    is_right = is_right && letters.values().size() <= 24;
    values += letters.values().size();
    bytes += source.layout().used_bytes(batch.size(), batch.data());
    for (std::size_t i = 0; i != batch.size(); ++i, ++seen) {
      is_right = is_right && letters.length(i) == length_of(seen) &&
                 ps::get<"length">(batch)[i] == length_of(seen);
      for (const char letter : letters[i].flat())
        is_right = is_right && letter == static_cast<char>('a' + length_of(seen));
    }
  }
  CHECK(is_right);
  CHECK(seen == count);
  CHECK(values > 0);
  CHECK(device.copied_bytes() == bytes);
}

TEST_CASE("a fill that claims more samples than its view has is rejected", "[streamed]") {
  ps::streamed<number> source{[](ps::batch_view<number> out) { return out.size() + 1; },
                              {.batch_size = 4}};
  const auto error = test::error_of<ps::source_mismatch>([&] { read(source.epoch(0)); });
  CHECK(std::string{error.what()}.find("fill returned 5") != std::string::npos);
}

TEST_CASE("a fill that waits for data gets a stop request when its batch is not wanted",
          "[streamed]") {
  std::mutex mutex;
  std::condition_variable_any never;
  int calls = 0;  // guarded by the turn
  const auto fill = [&](ps::batch_view<number> out, ps::stream_turn& turn) -> std::size_t {
    if (calls++ == 0) {
      ps::get<"x">(out[0]) = 1;
      return 1;
    }
    std::unique_lock lock{mutex};
    never.wait(lock, turn.stop_token(), [] { return false; });
    return 0;
  };
  SECTION("after a break") {
    ps::streamed<number> source{fill, {.batch_size = 1, .workers = 2}};
    ps::transfer feed{source};
    for ([[maybe_unused]] auto& batch : feed.epoch(0)) break;
    CHECK(calls <= 2);
  }
  SECTION("if the stream is destroyed during a loop") {
    std::optional<ps::streamed<number>> source{std::in_place, fill,
                                               ps::streamed_options{.batch_size = 1}};
    auto range = source->epoch(0);
    auto at = range.begin();
    CHECK(ps::get<"x">(*at)[0] == 1);
    source.reset();
    CHECK_THROWS_AS(++at, ps::cancelled);
  }
  SECTION("after a stop request of the program") {
    std::stop_source stop;
    ps::streamed<number> source{fill, {.batch_size = 1, .stop = stop.get_token()}};
    sleeper consumer{[&] { CHECK_THROWS_AS(read(source.epoch(0)), ps::cancelled); }};
    consumer.wait_until_it_sleeps();
    stop.request_stop();
    consumer.join();
    CHECK_THROWS_AS(read(source.epoch(0)), ps::cancelled);
  }
}

TEST_CASE("a consumer that holds every slot of a stream gets leases_exhausted", "[streamed]") {
  ps::streamed<number> source{counted{100}, {.batch_size = 1, .prefetch = 1}};
  std::vector<ps::streamed<number>::batch_type> held;
  const auto hoard = [&] {
    for (auto& batch : source.epoch(0)) held.push_back(std::move(batch));
  };
  CHECK_THROWS_AS(hoard(), ps::leases_exhausted);
  CHECK(held.size() == 2);
}

TEST_CASE("bad options of a stream are rejected", "[streamed]") {
  const auto make = [](const ps::streamed_options& options) {
    ps::streamed<number> source{counted{1}, options};
  };
  CHECK_THROWS_AS(make({.batch_size = 0}), ps::option_error);
  CHECK_THROWS_AS(make({.workers = 0}), ps::option_error);
  CHECK_THROWS_AS(make({.prefetch = 1'000'000}), ps::option_error);
  CHECK_THROWS_AS(make({.memory = {.max_values_per_batch = 8}}), ps::option_error);
  CHECK_THROWS_AS(make({.batch_size = 1000, .memory = {.budget = ps::memory_budget::bytes(1000)}}),
                  ps::pinned_budget_exceeded);
}

TEST_CASE("the errors of a device reach the consumer of a stream", "[streamed]") {
  const gated_device device;
  ps::streamed<number, gated_device> source{device, counted{100}, {.batch_size = 1, .prefetch = 1}};
  auto stream = device.make_stream();
  device.fail_synchronize(0);
  ps::transfer feed{source, stream};
  // A worker waits for the end of a copy before it refills the slot.
  CHECK_THROWS_AS(
      [&] {
        for ([[maybe_unused]] auto& batch : feed.epoch(0)) {
          stream.synchronize();
        }
      }(),
      device_fault);
}

TEST_CASE("results of a stream's batches are returned", "[streamed]") {
  const ps::cpu_device device;
  numbers squares;
  ps::streamed<number> source{counted{1003}, {.batch_size = 100}};
  auto stream = device.make_stream();
  ps::transfer feed{source, stream};
  ps::results<number> out{device, stream, 100, [&](const auto& done) { append(squares, done); }};
  for (auto& batch : feed.epoch(0)) {
    auto slot = out.acquire(batch);
    stream.launch([x = ps::get<"x">(batch).flat(), y = ps::get<"x">(slot).flat()] {
      for (std::size_t i = 0; i != x.size(); ++i) y[i] = x[i] * x[i];
    });
    slot.send();
  }
  out.finish();
  numbers expected = up_to(1003);
  for (auto& x : expected) x *= x;
  CHECK(squares == expected);
}

TEST_CASE("a child made by fork() gets an error from a stream, and destroys it", "[streamed]") {
  auto source = std::make_optional<ps::streamed<number>>(
      counted{100}, ps::streamed_options{.batch_size = 1, .prefetch = 1});
  auto range = source->epoch(0);
  auto at = range.begin();
  CHECK(test::in_child([&] {
          try {
            while (at != range.end()) ++at;  // a batch may already be ready
          } catch (const std::logic_error&) {
            source.reset();
            return 0;
          }
          return 1;
        }) == 0);
  numbers all;
  for (; at != range.end(); ++at) append(all, *at);
  CHECK(all == up_to(100));
}
