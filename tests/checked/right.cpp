// SPDX-License-Identifier: BSL-1.0
// Uses everything that the documentation permits in a checked build. The checks must report
// nothing.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/interop.hpp>
#include <penstock_ext/results/results.hpp>

#include "ramps.hpp"

static_assert(PENSTOCK_CHECKED);

namespace {

using namespace checked_tests;
using record = ramps::record_type;
using host_lease = ps::host_batch<record, ps::cpu_device>;
using device_lease = ps::device_batch<record, ps::cpu_device>;

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("does not hold: %s\n", what);
  std::exit(1);
}

/// Returns true if `x` is the view of a batch of `ramps` that begins with sample `first`.
template <class View>
bool is_ramp(const View& x, std::size_t first) {
  for (std::size_t i = 0; i < x.extent(0); ++i) {
    for (const float value : x[i].flat()) {
      if (value != static_cast<float>(first + i)) return false;
    }
  }
  return true;
}

void loops_over_a_loader(std::size_t workers) {
  auto loader = make_loader(workers);
  std::size_t batches = 0;
  for (auto& batch : loader.epochs(0, 3)) {
    require(is_ramp(ps::get<"x">(std::as_const(batch)), batch.number() * 4), "the batch's data");
    require(batch.view()[3].get<"label">() == static_cast<std::int32_t>(batch.number() * 4 + 3),
            "a sample's label");
    ++batches;
  }
  require(batches == 30, "the batches of three epochs");
  for (auto& batch : loader.epoch(7)) {
    if (batch.number() == 2) break;
  }
}

void views_live_as_long_as_a_lease_that_moves() {
  auto loader = make_loader(1);
  host_lease kept;
  std::vector<host_lease> box;
  for (auto& batch : loader.epoch(0)) {
    const auto x = ps::get<"x">(batch);
    if (batch.number() == 0) {
      kept = std::move(batch);
      require(is_ramp(x, 0), "a view after an assignment");
      box.push_back(std::move(kept));
      require(is_ramp(x, 0), "a view after a move into a vector");
    } else {
      require(is_ramp(ps::get<"x">(box.front()), 0), "a kept batch");
    }
  }
  const auto x = ps::get<"x">(box.front());
  { const auto gone = std::move(loader); }
  require(is_ramp(x, 0), "a view beyond its loader");
}

void a_lease_goes_to_another_thread() {
  auto loader = make_loader(2);
  for (auto& batch : loader.epoch(0)) {
    const auto x = ps::get<"x">(batch);
    std::thread reads_views{
        [x, first = batch.number() * 4] { require(is_ramp(x, first), "shared"); }};
    reads_views.join();
    std::thread owns{[own = std::move(batch)]() mutable {
      require(is_ramp(ps::get<"x">(own), own.number() * 4), "a lease on another thread");
    }};
    owns.join();
  }
  auto range = loader.epoch(0);
  auto it = range.begin();
  auto shared = std::make_shared<host_lease>(std::move(*it));
  require(is_ramp(ps::get<"x">(*shared), 0), "a shared lease");
  // Any thread may release the batch.
  std::thread{[last = std::exchange(shared, nullptr)] {}}.join();
  std::thread{[&] { ++it; }}.join();  // one thread after the other
  require(it->number() == 1, "the next batch");
}

void work_runs_behind_the_end_of_its_lease(std::size_t workers, std::size_t depth) {
  auto [device, loader, stream, feed] = streamed{workers, {.depth = depth}};
  auto other = device.make_stream();
  std::size_t good = 0;
  std::size_t good_on_other = 0;
  for (auto& batch : feed.epochs(0, 2)) {
    const bool held = depth > 1 && batch.number() % 3 == 0;
    std::promise<void> gate;
    batch.also_used_on(other);
    auto opened = std::make_shared<std::future<void>>(gate.get_future());
    const std::size_t first = batch.number() * 4;
    if (held) stream.launch([opened] { opened->wait(); });
    stream.launch([&good, first, x = ps::get<"x">(batch.used_on(stream))] {
      good += is_ramp(x, first) ? 1U : 0U;
    });
    other.launch([&good_on_other, first, x = ps::get<"x">(std::as_const(batch).used_on(other))] {
      good_on_other += is_ramp(x, first) ? 1U : 0U;
    });
    if (held) device_lease{std::move(batch)} = {};  // ends the lease before the work has run
    gate.set_value();
  }
  device.synchronize(stream);
  device.synchronize(other);
  require(good == 20 && good_on_other == 20, "the data, as work on a stream sees it");
}

void a_transform_and_leases_that_stay() {
  auto loader = make_loader(2);
  ps::cpu_device device;
  auto stream = device.make_stream();
  using doubled = ps::record<ps::field<"x", float, 4, 4>>;
  ps::transfer feed{loader, stream,
                    ps::on_stream<doubled>([](auto in, auto out, ps::cpu_stream_ref on) {
                      on.launch([from = ps::get<"x">(in), to = ps::get<"x">(out)] {
                        for (std::size_t i = 0; i < from.size(); ++i) {
                          to.data()[i] = 2 * from.data()[i];
                        }
                      });
                    })};
  std::vector<ps::device_batch<doubled, ps::cpu_device>> kept;
  for (auto& batch : feed.epoch(0)) {
    device.synchronize(stream);
    require(ps::get<"x">(batch)(1, 0, 0) == static_cast<float>(2 * (batch.number() * 4 + 1)),
            "the transformed batch");
    if (batch.number() < 2) kept.push_back(std::move(batch));
  }
  require(ps::get<"x">(kept[1])(0, 0, 0) == 8.0F, "a kept device batch");
}

/// The loop body is the step. Copies are slow, so a read that does not wait for the copy is too
/// early.
void the_body_is_the_step(std::size_t workers) {
  const ps::cpu_device slow_bus{{.copy_bytes_per_second = 1e6}};
  ps::loader loader{ramps{}, ps::sequential{}, slow_bus, {.batch_size = 4, .workers = workers}};
  const auto sum = [](auto&& feed) {
    float total = 0;
    for (auto& batch : feed.epoch(0)) {
      for (const float x : ps::get<"x">(batch).flat()) total += x;
      std::thread{[&total, x = ps::get<"x">(batch)] { total += x(0, 0, 0); }}.join();
    }
    return total;
  };
  constexpr float expected = 16 * (39 * 40 / 2) + (36 * 10 / 2);
  require(sum(ps::transfer{loader}) == expected, "batches in the body");
  require(sum(ps::transfer{loader, {.depth = 1}}) == expected, "the same, one at a time");
  require(sum(ps::transfer{loader, slow_bus}) == expected, "the same, the device named");
}

/// The loop body reads a batch of a feed with a stream. Before that, it waits for the copy in one
/// of several ways.
void the_body_waits_for_the_stream() {
  auto [device, loader, stream, feed] = streamed{2};
  auto other = device.make_stream();
  auto reached = device.make_event();
  for (auto& batch : feed.epoch(0)) {
    std::promise<void> gate;
    switch (batch.number() % 5) {
      case 0:
        device.synchronize(stream);
        break;
      case 1:
        device.record(reached, stream);
        device.synchronize(reached);
        break;
      case 2:
        stream.launch([&gate] { gate.set_value(); });
        gate.get_future().wait();
        break;
      case 3:
        while (!stream.is_complete()) std::this_thread::yield();
        break;
      default:
        batch.also_used_on(other);
        device.synchronize(other);
    }
    require(ps::get<"x">(batch)(1, 0, 0) == static_cast<float>(batch.number() * 4 + 1),
            "what the body reads after a wait");
  }
}

/// The loop body takes the address of a batch, and the program leaves the loop before it launches
/// work on the batch.
void a_body_is_left_before_its_launch() {
  auto [device, loader, stream, feed] = streamed{1};
  for (auto& batch : feed.epoch(0)) {
    require(ps::get<"x">(batch).data() != nullptr, "an address");
    break;
  }
  for (const bool moves : {false, true}) {
    std::string said;
    try {
      for (auto& batch : feed.epoch(0)) {
        require(ps::get<"x">(batch).data() != nullptr, "an address");
        const auto own = moves ? std::move(batch) : device_lease{};
        throw std::runtime_error("the body's");
      }
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    require(said == "the body's", "what the body threw");
  }
}

/// A lease ends while its stream is full of work that waits for later host code.
void a_lease_ends_before_its_full_stream_goes_on() {
  auto [device, loader, stream, feed] = streamed{1};
  std::size_t runs = 0;
  for (auto& batch : feed.epoch(0)) {
    std::promise<void> gate;
    device.synchronize(stream);
    stream.launch([opened = gate.get_future().share()] { opened.wait(); });
    for (int i = 0; i < 255; ++i) stream.launch([&runs] { ++runs; });
    device_lease{std::move(batch)} = {};
    gate.set_value();
    for (int i = 0; i < 300; ++i) stream.launch([&runs] { ++runs; });
  }
  device.synchronize(stream);
  require(runs == 5550, "the work before and after the end of a lease");
}

/// Releasing a lease queues work on its stream. The release must also succeed inside that stream's
/// own work, and if the stream is full.
void a_lease_ends_on_its_full_stream() {
  auto [device, loader, stream, feed] = streamed{1};
  for (auto& batch : feed.epoch(0)) {
    std::promise<void> gate;
    stream.launch([own = std::make_unique<device_lease>(std::move(batch)),
                   opened = gate.get_future().share()] { opened.wait(); });
    for (int i = 0; i < 255; ++i) stream.launch([] {});
    gate.set_value();
  }
  device.synchronize(stream);
}

/// Work that was queued before the end of a lease may use the batch, even if other work on the same
/// stream ends the lease.
void a_lease_ends_before_work_that_was_queued() {
  auto [device, loader, stream, feed] = streamed{1};
  std::size_t good = 0;
  for (auto& batch : feed.epoch(0)) {
    const std::size_t first = batch.number() * 4;
    const auto x = ps::get<"x">(batch.used_on(stream));
    std::promise<void> gate;
    stream.launch([own = std::make_unique<device_lease>(std::move(batch)),
                   opened = gate.get_future().share()] { opened.wait(); });
    stream.launch([&good, first, x] { good += is_ramp(x, first) ? 1U : 0U; });
    gate.set_value();
    device.synchronize(stream);
  }
  require(good == 10, "what work sees that was queued before the end");
}

/// A replay delivers the same leases repeatedly, and a different thread advances it each time.
void threads_take_turns_at_a_replay() {
  auto loader = make_loader(1);
  ps::transfer feed{loader};
  auto range = feed.replay({0, 0}, ps::batch_count{12});
  for (auto it = range.begin(); it != range.end();) {
    std::thread{[&it] {
      require(is_ramp(ps::get<"x">(*it), it->number() * 4), "a batch of a replay");
      ++it;
    }}.join();
  }
}

/// Threads share a batch, each with its own stream. The last thread releases the batch.
void threads_share_a_batch() {
  auto [device, loader, stream, feed] = streamed{2};
  std::vector<ps::cpu_stream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(device.make_stream());
  std::atomic<int> good{0};
  for (auto& lease : feed.epochs(0, 2)) {
    const std::size_t first = lease.number() * 4;
    auto batch = ps::share(std::move(lease));
    std::vector<std::thread> threads;
    for (auto& own_stream : streams) {
      threads.emplace_back([&, first, own = batch] {
        own.also_used_on(own_stream);
        own_stream.launch([&good, first, x = ps::get<"x">(own.used_on(own_stream))] {
          good += is_ramp(x, first) ? 1 : 0;
        });
      });
    }
    batch = {};
    for (auto& thread : threads) thread.join();
  }
  for (auto& own_stream : streams) device.synchronize(own_stream);
  require(good == 60, "what three threads see of a batch that they share");
  for (auto& lease : loader.epoch(0)) {
    const std::size_t first = lease.number() * 4;
    const auto batch = ps::share(std::move(lease));
    std::thread other{[own = batch, first] {
      static_cast<void>(own.pinned());
      require(is_ramp(ps::get<"x">(own), first), "a shared batch in host memory");
    }};
    require(batch.pinned() == batch.pinned() && is_ramp(ps::get<"x">(batch), first), "its owner's");
    other.join();
  }
}

/// A CPU device that fails to create a second event.
struct few_events : ps::cpu_device {
  std::shared_ptr<int> left = std::make_shared<int>(1);
  [[nodiscard]] event_type make_event(ps::event_wait waits) const {
    if ((*left)-- == 0) throw std::bad_alloc{};
    return ps::cpu_device::make_event(waits);
  }
};

/// With `zero_copy`, the loop body may read the batch without waiting.
void a_body_reads_what_is_not_copied() {
  auto loader = make_loader(1);
  const auto stream = ps::cpu_device{}.make_stream();
  ps::transfer feed{loader, stream, {.tuning = {.zero_copy = ps::zero_copy_use::always}}};
  for (auto& batch : feed.epoch(0)) {
    require(is_ramp(ps::get<"x">(std::as_const(batch)), batch.number() * 4), "without a copy");
  }
}

void results_of_steps_on_a_stream(std::size_t depth) {
  using sums = ps::record<ps::field<"sum", float>>;
  auto [device, loader, stream, feed] = streamed{1};
  std::size_t good = 0;
  ps::results<sums> out{device,
                        stream,
                        4,
                        [&good](const auto& done) {
                          for (std::size_t i = 0; i < done.size(); ++i) {
                            const auto sample = static_cast<float>(done.number() * 4 + i);
                            good += ps::get<"sum">(done).flat()[i] == 16 * sample ? 1U : 0U;
                          }
                        },
                        {.depth = depth}};
  std::promise<void> gate;
  auto opened = std::make_shared<std::future<void>>(gate.get_future());
  // Blocks the stream until the loop has filled all slots. By then, most slots have been submitted,
  // so their steps run after the submission.
  stream.launch([opened] { opened->wait(); });
  for (auto& [batch, slot] : ps::zip_results(feed.epochs(0, 2), out)) {
    stream.launch([x = ps::get<"x">(batch), to = ps::get<"sum">(slot)] {
      for (std::size_t i = 0; i < x.extent(0); ++i) {
        to.flat()[i] = 0;
        for (const float value : x[i].flat()) to.flat()[i] += value;
      }
    });
    if (batch.info().epoch == 1) slot = {};
    if (batch.info().epoch == 0 && batch.number() + 1 == depth) gate.set_value();
  }
  out.finish();
  require(good == 40, "the results of an epoch");
}

/// If constructing slots fails, the memory intended for them is not left poisoned.
void slots_that_were_not_made() {
  const ps::batch_layout<record> layout{ps::record_extents<record>{}, 4};
  bool is_rejected = false;
  try {
    const ps::detail::host_slots<few_events> slots{few_events{}, layout, 3,
                                                   ps::detail::memory_kind::pinned};
  } catch (const std::bad_alloc&) {
    is_rejected = true;
  }
  require(is_rejected, "an event that can't be made is an exception");
  const ps::cpu_device device;
  const std::size_t bytes = 3 * layout.bytes();
  const auto again = device.allocate_pinned(bytes);  // has the same address, and writes to it
  std::memset(again.data, 1, bytes);
  device.deallocate_pinned(again.data, bytes);
}

/// A dataset that writes only the labels of its samples.
struct leaves_gaps {
  using record_type = ramps::record_type;
  [[nodiscard]] static std::uint64_t size() { return 40; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"label">(out) = static_cast<std::int32_t>(index);
  }
};

/// Unwritten parts of a batch contain the poison pattern instead of data from an earlier batch.
void gaps_hold_poison(std::size_t workers) {
  const ps::cpu_device device;
  ps::loader loader{leaves_gaps{}, ps::sequential{}, device, {.batch_size = 4, .workers = workers}};
  for (auto& batch : loader.epochs(0, 2)) {
    const auto x = ps::get<"x">(batch);
    require(is_poison(x.data(), x.size() * sizeof(float)), "gaps in a slot that came back");
    for (float& value : x.flat()) value = 1;
  }
  ps::transfer feed{loader, device.inline_stream()};
  for (auto& batch : feed.epochs(0, 2)) {
    const auto x = ps::get<"x">(batch);
    require(is_poison(x.data(), x.size() * sizeof(float)), "gaps in a slot after a copy");
    require(ps::get<"label">(batch)(3) == static_cast<std::int32_t>(batch.number() * 4 + 3),
            "labels");
  }
}

/// Addresses in a held batch stay valid, however many batches follow.
void addresses_of_batches_that_are_held() {
  auto loader = make_loader(1);
  ps::transfer feed{loader, {.depth = 4}};
  const auto is = [](const float* x, float value) { return x[0] == value && x[15] == value; };
  auto range = feed.epochs(0, 3);
  auto it = range.begin();
  auto shared = ps::share(std::move(*it));
  const float* const of_shared = ps::get<"x">(shared).data();
  auto tensor = ps::to_dlpack<"x">(ps::share(std::move(*++it)));
  const auto* const of_tensor = static_cast<const float*>(tensor->array.data);
  const auto moved = std::move(*++it);
  const float* const of_moved = ps::get<"x">(moved).data();
  std::vector<float> copied;
  for (; it != range.end(); ++it) {
    if (!*it) continue;
    const auto x = ps::get<"x">(*it).flat();
    copied.assign(x.begin(), x.end());
    const auto again = shared;
    shared = again;
    require(is(of_shared, 0) && is(of_tensor, 4) && is(of_moved, 8), "addresses of held batches");
  }
  require(copied.back() == 39, "what was copied out");
}

/// Views that do not belong to a lease behave as usual.
constexpr bool views_of_arrays() {
  std::array<float, 6> values{0, 1, 2, 3, 4, 5};
  const ps::tensor_view<float, 2, 3> x{values.data(), {}};
  const ps::tensor_view<const float, 2, 3> to_read = x;
  return x(1, 2) == 5 && to_read[1][0] == 3 && to_read.flat().size() == 6;
}
static_assert(views_of_arrays());

}  // namespace

int main() {
  for (const std::size_t workers : {0U, 2U}) {
    loops_over_a_loader(workers);
    gaps_hold_poison(workers);
    the_body_is_the_step(workers);
    for (const std::size_t depth : {1U, 3U}) work_runs_behind_the_end_of_its_lease(workers, depth);
  }
  views_live_as_long_as_a_lease_that_moves();
  a_lease_goes_to_another_thread();
  a_transform_and_leases_that_stay();
  the_body_waits_for_the_stream();
  threads_share_a_batch();
  a_body_is_left_before_its_launch();
  a_lease_ends_on_its_full_stream();
  a_lease_ends_before_its_full_stream_goes_on();
  a_lease_ends_before_work_that_was_queued();
  threads_take_turns_at_a_replay();
  a_body_reads_what_is_not_copied();
  for (const std::size_t depth : {1U, 3U}) results_of_steps_on_a_stream(depth);
  slots_that_were_not_made();
  addresses_of_batches_that_are_held();
  std::puts("nothing to report");
}
