// SPDX-License-Identifier: BSL-1.0
// Tests `transfer_options::depth = automatic`.
#include <penstock/load/loader.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/transfer/detail/depth_tuner.hpp>
#include <penstock/transfer/transfer.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/ledger_device.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;

namespace {

using depth_record = ps::record<ps::field<"x", std::uint32_t>>;

struct depth_data {
  using record_type = depth_record;
  std::uint64_t count = 400;
  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t i, ps::sample<depth_record> out) const {
    ps::get<"x">(out) = static_cast<std::uint32_t>(i * 7);
  }
};

constexpr ps::transfer_options automatic_depth{.depth = ps::automatic};

template <class Batch>
std::vector<std::uint32_t> values_of(Batch& batch) {
  const auto view = ps::get<"x">(batch);
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < batch.size(); ++i) all.push_back(view(i));
  return all;
}

template <class Feed>
std::vector<std::uint32_t> epoch_of(Feed& feed) {
  std::vector<std::uint32_t> all;
  for (auto& batch : feed.epoch(0)) {
    const auto values = values_of(batch);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// A simulated loop and the number of slots that its tuner requests.
struct played_loop {
  ps::detail::depth_tuner tuner{automatic_depth, 0, 100};
  std::uint64_t now = 0;
  std::uint64_t waited = 0;
  std::size_t open_slots = 2;
  std::size_t largest = 2;

  void take(std::uint64_t number, bool runs_inline) {
    const std::size_t wanted = tuner.take(now, runs_inline ? waited : now, open_slots, number);
    if (wanted == open_slots) return;
    open_slots = wanted;
    largest = (std::max)(largest, wanted);
    tuner.record_opened(now, wanted);
  }
};
struct played_slots {
  std::size_t open_slots;
  std::size_t largest;
};

// Simulates a loop in which each batch takes `time(depth)` ticks. The consumer computes for 1000 of
// these ticks and waits for the rest. The tuner observes this wait only if the loop body is the
// step.
template <class Time>
std::pair<played_slots, ps::tuning_history> played(Time time, bool runs_inline,
                                                   int batches = 3000) {
  played_loop loop;
  loop.tuner.begin(loop.now);
  for (int i = 0; i < batches; ++i) {
    const std::uint64_t takes = time(loop.open_slots);
    loop.now += takes;
    if (runs_inline) loop.waited += takes - 1000;
    loop.take(static_cast<std::uint64_t>(i), runs_inline);
  }
  loop.tuner.end(loop.now);
  return {{loop.open_slots, loop.largest}, loop.tuner.history({1.0})};
}

// A device on which only a limited number of allocations succeed.
class narrow_device : public ledger_device {
 public:
  explicit narrow_device(int pieces) : left_(std::make_shared<std::atomic<int>>(pieces)) {}
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    if (left_->fetch_sub(1) <= 0) throw ps::out_of_memory("device", bytes, "this one is full");
    return ledger_device::allocate(bytes);
  }

 private:
  std::shared_ptr<std::atomic<int>> left_;
};

}  // namespace

TEST_CASE("a depth has limits", "[transfer]") {
  const auto rejected = [](const ps::transfer_options& options) {
    return test::rejection_of([&] { static_cast<void>(ps::detail::checked_depth(options)); })
        .option;
  };
  CHECK(rejected({}) == "none");
  CHECK(rejected({.depth = 1}) == "none");
  CHECK(rejected({.depth = 0}) == "depth");
  CHECK(rejected({.depth = -1}) == "depth");
  CHECK(rejected({.depth = 1025}) == "depth");
  CHECK(rejected(automatic_depth) == "none");
}

TEST_CASE("an automatic depth grows only while batches arrive sooner",
          "[transfer][promise:bounded-4]") {
  const bool runs_inline = GENERATE(true, false);
  // the waiting time is inversely proportional to the number of slots
  const auto better = [](std::size_t depth) { return std::uint64_t{1000 + 4000 / depth}; };
  auto [ring, history] = played(better, runs_inline);
  CHECK(ring.open_slots == 8);
  CHECK(history.now == ps::tuning_setting{.depth = 8});
  REQUIRE(history.moves.size() == 3);  // the moves to 3, 5 and 8 slots
  CHECK(history.moves[0].from == ps::tuning_setting{.depth = 2});
  CHECK(history.moves[0].to == ps::tuning_setting{.depth = 3});
  CHECK(history.moves[0].why == ps::tuning_reason::faster);
  CHECK(history.moves[0].time_from > history.moves[0].time_to);

  const auto until_three = [](std::size_t depth) {
    return std::uint64_t{depth < 3 ? 3000U : 2000U};
  };
  std::tie(ring, history) = played(until_three, runs_inline);
  CHECK(ring.open_slots == 3);
  CHECK(history.now == ps::tuning_setting{.depth = 3});
  CHECK(ring.largest == 5);  // the tuner tried 5 slots and went back
  CHECK_FALSE(history.moves.back().kept());
}

TEST_CASE("a loop that waits for no copy keeps two slots", "[transfer][promise:bounded-4]") {
  const auto [ring, history] = played([](std::size_t) { return std::uint64_t{1000}; }, true);
  CHECK(ring.largest == 2);
  CHECK(history.now == ps::tuning_setting{.depth = 2});
  CHECK(history.count == 0);
}

TEST_CASE("held leases are added to an automatic depth", "[transfer]") {
  played_loop loop;
  loop.tuner.begin(loop.now);
  loop.open_slots = 4;  // two more than the depth, because leases occupy two slots
  for (std::uint64_t i = 0; i < 3000; ++i) {
    loop.now += 1000;
    loop.take(i, true);
    REQUIRE(loop.open_slots == 4);
  }
}

TEST_CASE("an automatic depth adds a slot while leases hold all, up to its limit",
          "[transfer][promise:bounded-4]") {
  const ledger_device device;
  ps::loader loader{depth_data{},
                    ps::sequential{},
                    device,
                    {.batch_size = 10, .workers = 1, .instrumentation = {.indices = true}}};
  ps::trace_recorder recorder;
  ps::transfer feed{
      loader, {.depth = automatic_depth.depth.up_to(5), .instrumentation = {.trace = &recorder}}};
  const std::size_t two = feed.device_bytes();
  CHECK(feed.depth() == 2);
  CHECK(feed.tuning().now == ps::tuning_setting{.depth = 2});
  CHECK(device.device_bytes() == two);
  std::vector<decltype(feed)::batch_type> kept;
  std::vector<std::uint32_t*> places;
  CHECK_THROWS_AS(
      [&] {
        for (auto& batch : feed.epoch(0)) kept.push_back(std::move(batch));
      }(),
      ps::leases_exhausted);
  CHECK(kept.size() == 5);
  CHECK(feed.depth() == 5);
  CHECK(feed.device_bytes() == two / 2 * 5);
  CHECK(device.device_bytes() == two / 2 * 5);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    places.push_back(ps::get<"x">(kept[i]).data());
    CHECK(values_of(kept[i])[3] == (10 * i + 3) * 7);
    CHECK(kept[i].indices()[3] == 10 * i + 3);
  }
  std::sort(places.begin(), places.end());
  CHECK(std::adjacent_find(places.begin(), places.end()) == places.end());
  kept.clear();
  CHECK(epoch_of(feed).size() == 400);
  CHECK(feed.depth() == 5);

  const ps::trace_snapshot trace = recorder.snapshot();
  const auto track = std::find_if(trace.tracks.begin(), trace.tracks.end(),
                                  [](const auto& one) { return one.name == "penstock depth"; });
  REQUIRE(track != trace.tracks.end());
  std::vector<std::uint64_t> depths;
  for (const ps::trace_event& event : track->events) depths.push_back(event.depth);
  CHECK(depths == std::vector<std::uint64_t>{2, 3, 4, 5, 5});  // the last value belongs to range 2
}

TEST_CASE("a slot without device memory is omitted", "[transfer][promise:bounded-4]") {
  const narrow_device device{2};  // a single allocation contains the first two slots
  ps::loader loader{depth_data{}, ps::sequential{}, device, {.batch_size = 10, .workers = 1}};
  ps::transfer feed{loader, automatic_depth};
  std::vector<decltype(feed)::batch_type> kept;
  const auto hold_all = [&] {
    for (auto& batch : feed.epoch(0)) kept.push_back(std::move(batch));
  };
  const auto rejected = test::error_of<ps::leases_exhausted>(hold_all);
  CHECK(std::string{rejected.what()}.find("all 3 device slots are held") != std::string::npos);
  CHECK(feed.depth() == 3);
  kept.clear();
  CHECK(epoch_of(feed).size() == 400);
}

TEST_CASE("kept leases can hold every slot, even after the depth was reduced", "[transfer]") {
  for (std::uint64_t first = 32; first < 200; first += 7) {
    const std::size_t kept_at_most = 2 + first % 6;
    ps::cpu_device device;
    auto stream = device.make_stream();
    ps::loader loader{depth_data{300}, ps::sequential{}, device, {.batch_size = 1, .workers = 0}};
    ps::transfer feed{loader, stream, automatic_depth};
    std::vector<decltype(feed)::batch_type> kept;
    std::uint64_t batches = 0;
    for (auto& batch : feed.epoch(0)) {
      ++batches;
      if (batch.number() < first) continue;
      kept.push_back(std::move(batch));
      if (kept.size() == kept_at_most) kept.clear();
    }
    CHECK(batches == 300);
  }
  // A lease occupies every new slot immediately, so the tuner always requests another slot.
  struct ring {
    std::size_t open_slots = 2;
    [[nodiscard]] std::size_t count() const { return open_slots; }
    [[nodiscard]] static std::size_t max_count() { return 8; }
    void open(std::size_t count) { open_slots = count; }
    [[nodiscard]] static bool is_released(std::size_t slot) { return slot == 4; }
    void wait_for_release(...) const { FAIL("a wait, though there is a slot"); }
    [[nodiscard]] static bool has_error() { return false; }
    static void rethrow_poison() {}
    static void wake() {}
  };
  for (const auto when : {ps::exhausted_action::fail, ps::exhausted_action::wait}) {
    ring slots;
    CHECK(ps::detail::wait_for_free(slots, 0, when, {}, [] { return 0; }) == 4);
    CHECK(slots.open_slots == 5);
  }
}

TEST_CASE("a device that rejects a new slot does not end the loop and is not asked again",
          "[transfer]") {
  struct rejecting : ps::cpu_device {
    std::shared_ptr<std::atomic<int>> requested = std::make_shared<std::atomic<int>>(0);
    std::shared_ptr<std::atomic<bool>> rejects = std::make_shared<std::atomic<bool>>(false);
    [[nodiscard]] void* allocate(std::size_t bytes) const {
      if (*rejects) {
        ++*requested;
        throw std::runtime_error("no memory");
      }
      return ps::cpu_device::allocate(bytes);
    }
  };
  const rejecting device;
  auto stream = device.make_stream();
  ps::loader loader{depth_data{4000}, ps::sequential{}, device, {.batch_size = 1, .workers = 0}};
  ps::transfer feed{loader, stream, automatic_depth};
  *device.rejects = true;
  std::uint64_t next = 0;
  for (auto& batch : feed.epoch(0)) CHECK(batch.number() == next++);
  CHECK(next == 4000);
  CHECK(feed.depth() == 2);
  CHECK(feed.tuning().now.depth == 2);
  CHECK(*device.requested <= 1);
}

TEST_CASE("noise alone does not increase the depth", "[transfer]") {
  std::size_t grown = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::uint64_t state = seed * 977 + 1;
    const auto noisy = [&state](std::size_t) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      return 2000 + (state >> 33U) % 2000;
    };
    if (played(noisy, false, 20'000).second.now.depth != 2) ++grown;
  }
  CHECK(grown <= 2);
}

TEST_CASE("an automatic depth changes no batch, and its changes are in the trace",
          "[transfer][promise:bounded-4]") {
  const bool transforms = GENERATE(false, true);
  ps::trace_recorder recorder;
  ps::loader loader{depth_data{20'000}, ps::shuffled{.seed = 3}, {.batch_size = 10, .workers = 1}};
  std::vector<std::uint32_t> fixed;
  {
    ps::transfer feed{loader};
    fixed = epoch_of(feed);
  }
  const auto run = [&](auto& feed) {
    CHECK(epoch_of(feed) == fixed);
    CHECK(epoch_of(feed) == fixed);
    CHECK(feed.depth() >= 2);
    CHECK(feed.depth() <= 8);
    const auto now = feed.tuning().now.depth;
    CHECK((now >= 2 && now <= 8));
    const ps::trace_snapshot trace = recorder.snapshot();
    const auto track = std::find_if(trace.tracks.begin(), trace.tracks.end(),
                                    [](const auto& one) { return one.name == "penstock depth"; });
    REQUIRE(track != trace.tracks.end());
    REQUIRE(track->events.size() >= 2);
    CHECK(track->events.front().depth == 2);
    for (const ps::trace_event& event : track->events) {
      CHECK(event.stage == ps::trace_stage::depth);
      CHECK((event.depth >= 2 && event.depth <= 8));
      CHECK(event.samples == 0);
      CHECK_FALSE(event.batch);
    }
  };
  ps::transfer_options options = automatic_depth;
  options.instrumentation.trace = &recorder;
  if (transforms) {
    const ps::cpu_device device;
    const auto same = [](auto in, auto out, ps::cpu_stream_ref stream) {
      stream.launch([in, out] {
        for (std::size_t i = 0; i < in.size(); ++i) ps::get<"x">(out)(i) = ps::get<"x">(in)(i);
      });
    };
    ps::transfer feed{loader, device, ps::on_stream<depth_record>(same), options};
    run(feed);
  } else {
    ps::transfer feed{loader, options};
    run(feed);
  }
}

TEST_CASE("a footprint includes the maximum of an automatic depth", "[transfer]") {
  const auto extents = ps::record_extents<depth_record>{};
  const ps::loader_options load{.batch_size = 10, .workers = 1};
  CHECK(ps::footprint<depth_record>(extents, load, automatic_depth).device_slots == 8);
  CHECK(ps::footprint<depth_record>(extents, load, {.depth = 5}).device_slots == 5);
  const auto bookkeeping = [&](const ps::transfer_options& feed) {
    return ps::footprint<depth_record>(extents, load, feed).bookkeeping;
  };
  CHECK(bookkeeping(automatic_depth) - bookkeeping({.depth = 8}) > sizeof(ps::detail::depth_tuner));
}
