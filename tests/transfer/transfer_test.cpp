// SPDX-License-Identifier: BSL-1.0
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock/transfer/batch_source.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/grouping.hpp"
#include "support/happens.hpp"
#include "support/has.hpp"
#include "support/numbered.hpp"
#include "transfer/ten_each.hpp"

namespace ps = penstock;

namespace {

using gated_loader = ps::loader<numbered, ps::sequential, gated_device>;
using gated_feed = ps::transfer<gated_loader&>;
static_assert(ps::batch_source<gated_loader>);
static_assert(std::ranges::input_range<gated_feed::range_type>);
static_assert(!std::copyable<gated_feed::batch_type> && std::movable<gated_feed::batch_type>);

void wait_for_reads(const numbered& data, std::uint32_t reads) {
  data.state->arrived.wait([reads](std::uint32_t count) { return count >= reads; });
}

}  // namespace

TEST_CASE("every batch arrives complete, in order, in one copy of its used bytes", "[transfer]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3});
  const auto depth = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{5});
  const auto group = GENERATE(std::size_t{1}, std::size_t{3});
  const grouping<gated_device> device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{95}, ps::sequential{}, device, ten_each(workers)};
  device.grouped_bytes = group * loader.layout().bytes();
  ps::transfer feed{loader, stream, {.depth = depth}};
  std::vector<std::uint64_t> seen;
  for (auto& batch : feed.epochs(0, 2)) {
    CHECK(batch.slot() < depth);
    stream.launch([&seen, view = ps::get<"label">(batch)] {
      for (const auto label : view.flat()) seen.push_back(label);
    });
  }
  stream.synchronize();
  REQUIRE(seen.size() == 190);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == i % 95);
  CHECK(device.copies() == 20);
  // 512 bytes of values, up to the offset of the labels, and 8 bytes per label, in 18 full batches
  // and 2 short batches.
  CHECK(device.copied_bytes() == 18 * (512 + 80) + 2 * (512 + 40));
}

TEST_CASE("batches that share calls arrive complete if leases end on other threads", "[transfer]") {
  const auto depth = GENERATE(std::size_t{2}, std::size_t{3}, std::size_t{6});
  const grouping<gated_device> device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{400}, ps::sequential{}, device, ten_each(2)};
  device.grouped_bytes = 3 * loader.layout().bytes();
  ps::transfer feed{
      loader, stream, {.depth = depth, .on_slots_exhausted = ps::exhausted_action::wait}};
  std::vector<std::uint64_t> seen;
  std::vector<std::thread> others;
  for (auto& batch : feed.epoch(0)) {
    stream.launch([&seen, view = ps::get<"label">(batch)] {
      for (const auto label : view.flat()) seen.push_back(label);
    });
    if (batch.number() % 5 != 0) continue;
    others.emplace_back([kept = std::move(batch)]() mutable { const auto gone = std::move(kept); });
  }
  for (auto& other : others) other.join();
  stream.synchronize();
  REQUIRE(seen.size() == 400);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == i);
}

TEST_CASE("copies of the next batches overlap the work on the current batch", "[transfer]") {
  const gated_device device;
  const numbered data{100};
  ps::detail::waitable_counter step;
  auto stream = device.make_stream();
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream, {.depth = 3}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  // The step on batch 0 is blocked until the copies of batches 1 and 2 have run concurrently.
  wait_for_reads(data, 50);
  stream.launch([&step] { step.wait([](std::uint32_t open) { return open != 0; }); });
  ++it;  // queues copies of the ready batches without waiting for the step
  while (device.copies() < 3) std::this_thread::yield();
  CHECK(it->number() == 1);
  step.store(1);
  stream.synchronize();
  CHECK(labels_of(*it).front() == 10);
}

TEST_CASE("work on a batch waits for its copy", "[transfer][promise:race-free-4]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream, {.depth = 2}};
  device.hold_copies();
  auto range = feed.epoch(0);
  auto it = range.begin();  // delivered before its copy has run, because only the stream waits
  std::atomic<bool> ran{false};
  std::uint64_t first = 99;
  stream.launch([&, view = ps::get<"label">(*it)] {
    first = view(0);
    ran = true;
  });
  CHECK(device.copies() == 0);
  CHECK_FALSE(ran);
  device.open_copies();
  stream.synchronize();
  CHECK(ran);
  CHECK(first == 0);
}

TEST_CASE("without a stream the body gets a batch when its copy is complete",
          "[transfer][promise:race-free-4]") {
  const auto depth = GENERATE(std::size_t{1}, std::size_t{3});
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, {.depth = depth}};
  static_assert(std::is_same_v<decltype(feed), gated_feed>);
  device.hold_copies();
  std::thread opens{[&device, consumer = this_thread_number()] {
    wait_until_asleep(consumer);  // the consumer waits in the first iteration of the loop
    CHECK(device.copies() == 0);
    device.open_copies();
  }};
  std::vector<std::uint64_t> seen;
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.stream() == device.inline_stream());
    for (const auto label : labels_of(batch)) seen.push_back(label);
  }
  opens.join();
  REQUIRE(seen.size() == 100);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == i);
}

TEST_CASE("without a stream copies still run ahead during the loop body", "[transfer]") {
  const gated_device device;
  const numbered data{100};
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, device, {.depth = 3}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  wait_for_reads(data, 50);
  ++it;                                                   // queues copies of the ready batches
  while (device.copies() < 3) std::this_thread::yield();  // the copies run during this body
  CHECK(it->number() == 1);
  CHECK(labels_of(*it).front() == 10);
}

TEST_CASE("without a stream a transform runs on the copy stream, and the body gets its output",
          "[transfer]") {
  using doubled = ps::record<ps::field<"label", std::uint64_t>>;
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, device,
                    ps::on_stream<doubled>([](auto in, auto out, ps::cpu_stream_ref on) {
                      on.launch([from = ps::get<"label">(in), to = ps::get<"label">(out)] {
                        for (std::size_t i = 0; i < from.size(); ++i) to(i) = 2 * from(i);
                      });
                    })};
  std::uint64_t next = 0;
  for (auto& batch : feed.epoch(0)) {
    for (const auto label : labels_of(batch)) CHECK(label == 2 * next++);
  }
  CHECK(next == 100);
}

TEST_CASE("a device slot is overwritten only after the work that was queued at its release",
          "[transfer][promise:race-free-2]") {
  const gated_device device;
  const numbered data{100};
  ps::detail::waitable_counter step;
  auto stream = device.make_stream();
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream, {.depth = 1}};
  std::vector<std::uint64_t> seen;
  auto range = feed.epoch(0);
  auto it = range.begin();
  stream.launch([&, view = ps::get<"label">(*it)] {
    step.wait([](std::uint32_t open) { return open != 0; });
    seen.push_back(view(0));
  });
  wait_for_reads(data, 50);
  while (device.copies() < 1) std::this_thread::yield();
  ++it;  // batch 1 uses the same slot, so its copy follows the blocked step
  stream.launch([&, view = ps::get<"label">(*it)] { seen.push_back(view(0)); });
  // Only batch 0 has been copied, because the copy of batch 1 waits for the blocked step.
  CHECK(device.copies() == 1);
  step.store(1);
  stream.synchronize();
  CHECK(seen == std::vector<std::uint64_t>{0, 10});
}

TEST_CASE("a lease used on a second stream is released after that stream's work too",
          "[transfer][promise:race-free-2]") {
  const gated_device device;
  const numbered data{100};
  ps::detail::waitable_counter step;
  auto stream = device.make_stream();
  auto second = device.make_stream();
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream, {.depth = 1}};
  std::uint64_t seen = 99;
  auto range = feed.epoch(0);
  auto it = range.begin();
  it->also_used_on(second);
  second.launch([&, view = ps::get<"label">(*it)] {
    step.wait([](std::uint32_t open) { return open != 0; });
    seen = view(0);
  });
  wait_for_reads(data, 50);
  while (device.copies() < 1) std::this_thread::yield();
  ++it;
  CHECK(device.copies() == 1);
  step.store(1);
  stream.synchronize();
  second.synchronize();
  CHECK(seen == 0);
  CHECK(labels_of(*it).front() == 10);
}

TEST_CASE("a consumer that holds every device slot gets an exception, not a hang",
          "[transfer][fault:consumers-2]") {
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(2)};
  ps::transfer feed{loader, device.inline_stream(), {.depth = 3}};
  std::vector<gated_feed::batch_type> held;
  const auto hoard = [&] {
    for (auto& batch : feed.epoch(0)) held.push_back(std::move(batch));
  };
  CHECK_THROWS_AS(hoard(), ps::leases_exhausted);
  REQUIRE(held.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(labels_of(held[i]).front() == 10 * i);
  held.clear();
  std::uint64_t batches = 0;
  for (auto& batch : feed.epoch(0)) batches += batch.size() == 10;
  CHECK(batches == 10);
}

TEST_CASE("an error of the source follows the batches before it",
          "[transfer][promise:honest-1][fault:samples-1]") {
  const gated_device device;
  const numbered data{100};
  data.state->bad = 25;
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, device.inline_stream(), {.depth = 5}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  wait_for_reads(data, 26);
  // Waits until batch 2 has been announced.
  while (loader.stats().batches.count() < 3) std::this_thread::yield();
  ++it;  // delivers batch 1 and finds the error of batch 2 behind it
  CHECK(it->number() == 1);
  CHECK_FALSE(feed.last_failure().has_value());
  CHECK_THROWS_AS(++it, bad_sample);
  REQUIRE(feed.last_failure().has_value());
  CHECK(feed.last_failure()->sample == 25);
}

TEST_CASE("a rejected copy is reported as a transfer_error", "[transfer][fault:devices-4]") {
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(0)};
  ps::transfer feed{loader, device.inline_stream()};
  std::uint64_t seen = 0;
  device.fail_copy(3);
  const auto consume = [&] {
    for (auto& batch : feed.epoch(2)) seen += batch.size() / 10;
  };
  CHECK_THROWS_AS(consume(), device_fault);
  CHECK(seen == 3);
  REQUIRE(feed.last_failure().has_value());
  CHECK(feed.last_failure()->stage == "transfer");
  CHECK(feed.last_failure()->epoch == 2);
  CHECK(feed.last_failure()->batch == 3);
  seen = 0;
  consume();  // the feed remains usable
  CHECK(seen == 10);
}

TEST_CASE("a second stream waits for its own lease's copy even if the host slot is copied again",
          "[transfer][promise:race-free-2]") {
  const gated_device device;
  auto stream = device.make_stream();
  auto second = device.make_stream();
  ps::loader loader{numbered{100},
                    ps::sequential{},
                    device,
                    {.batch_size = 10,
                     .workers = 1,
                     .memory = {.budget = ps::memory_budget::bytes(768),
                                .on_budget_exceeded = ps::budget_action::fewer_slots}}};
  REQUIRE(loader.footprint().slot_count == 1);
  ps::transfer feed{loader, stream, {.depth = 3}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  auto first = std::move(*it);
  while (device.copies() < 1) std::this_thread::yield();
  device.hold_copies();
  ++it;  // batch 1, which uses the host slot of batch 0
  std::atomic<bool> ran{false};
  first.also_used_on(second);
  second.launch([&ran] { ran = true; });
  while (!ran) std::this_thread::yield();  // would hang if the work waited for the copy of batch 1
  std::atomic<bool> is_next_seen{false};
  stream.launch([&is_next_seen] { is_next_seen = true; });
  CHECK_FALSE(test::happens(is_next_seen));
  device.open_copies();
  std::uint64_t right = 0;
  for (; it != range.end(); ++it) {
    stream.launch([&right, at = 10 * it->number(), view = std::as_const(*it).view()] {
      right += ps::get<"label">(view)(0) == at && ps::get<"label">(view)(9) == at + 9;
    });
  }
  device.synchronize(ps::cpu_stream_ref{stream});
  CHECK(right == 9);
}

TEST_CASE("every failed record is reported, and loses no host slot", "[transfer]") {
  for (std::uint64_t k = 0; k < 20; ++k) {
    INFO("record " << k << " fails");
    const gated_device device;
    auto stream = device.make_stream();
    ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
    {
      ps::transfer feed{loader, stream, {.depth = 2}};
      device.fail_record(k);
      const auto consume = [&] {
        for (auto& batch : feed.epoch(0)) (void)batch;
      };
      // A failure to record a copy throws at once. A failure to record a release throws at the next
      // ++. After the last batch, this is the ++ that ends the range.
      CHECK_THROWS_AS(consume(), device_fault);
    }
    std::uint64_t batches = 0;
    for (auto& batch : loader.epoch(0)) batches += batch.size() == 10;
    CHECK(batches == 10);
  }
}

TEST_CASE("two live ranges over one feed are a logic error, a range may be begun again",
          "[transfer][fault:consumers-3]") {
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, device.inline_stream()};
  auto first = feed.epoch(0);
  auto it = first.begin();
  auto second = feed.epoch(0);
  CHECK_THROWS_AS(second.begin(), std::logic_error);
  ++it;
  CHECK(it->number() == 1);
  it = first.begin();
  CHECK(it->number() == 0);
}

TEST_CASE("a transfer may be moved under a live range, and owns an rvalue source", "[transfer]") {
  const gated_device device;
  ps::transfer first{ps::loader{numbered{100}, ps::sequential{}, device, ten_each(2)},
                     device.inline_stream()};
  auto range = first.epoch(0);
  auto it = range.begin();
  const ps::transfer second{std::move(first)};
  std::uint64_t seen = 0;
  for (; it != range.end(); ++it) CHECK(it->number() == seen++);
  CHECK(seen == 10);
  CHECK(second.depth() == 3);
  CHECK(second.device_bytes() == 3 * (512 + 256));
}

TEST_CASE("an invalid depth is rejected", "[transfer]") {
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(0)};
  CHECK_THROWS_AS((ps::transfer{loader, device.inline_stream(), {.depth = 0}}), ps::option_error);
}

TEST_CASE("leaving the loop returns the slots whose copies ran ahead", "[transfer]") {
  const gated_device device;
  const numbered data{100};
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, device.inline_stream(), {.depth = 3}};
  for (std::uint32_t round = 1; round <= 3; ++round) {
    auto range = feed.epoch(0);
    auto it = range.begin();
    data.state->arrived.wait([&](std::uint32_t count) { return count >= 50; });
    ++it;  // queues copies of later batches
    CHECK(it->number() == 1);
    data.state->arrived.store(0);
  }
  std::uint64_t batches = 0;
  for (auto& batch : feed.epoch(0)) batches += batch.size() == 10;
  CHECK(batches == 10);
}

TEST_CASE("a transfer ended by an error leaves its source to another transfer", "[transfer]") {
  const gated_device device;
  const numbered data{100};
  data.state->bad = 25;
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  ps::transfer first{loader, device.inline_stream(), {.depth = 4}};
  ps::transfer second{loader, device.inline_stream(), {.depth = 1}};
  std::optional range{first.epoch(0)};
  auto it = range->begin();
  // The feed stores the error for its turn as soon as it has seen it; the loader has then stopped.
  // The test checks less if a worker announces the error late, but it never fails.
  wait_for_reads(data, 26);
  while (loader.stats().batches.count() < 3) std::this_thread::yield();
  try {
    ++it;
  } catch (const bad_sample&) {
  }
  data.state->bad = numbered::none;
  std::uint64_t batches = 0;
  for (auto& batch : second.epochs(0, 3)) {
    (void)batch;
    if (++batches == 3) range.reset();
  }
  CHECK(batches == 30);
}

TEST_CASE("a release that is rejected once ends one range, and the transfer continues",
          "[transfer][fault:devices-5]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream, {.depth = 3}};
  std::uint64_t batches = 0;
  const auto consume = [&](bool fails) {
    for (auto& batch : feed.epoch(0)) {
      (void)batch;
      if (++batches == 2 && fails) device.fail_record(0);
    }
  };
  CHECK_THROWS_AS(consume(true), device_fault);
  CHECK(batches == 2);
  batches = 0;
  consume(false);
  CHECK(batches == 10);
}

TEST_CASE("a loader that is assigned to between two ranges feeds its new data", "[transfer]") {
  using any = ps::any_loader<numbered::record_type>;
  const auto made = [](std::uint64_t size) {
    return any{ps::loader{numbered{size}, ps::sequential{}, {.batch_size = 10, .workers = 1}}};
  };
  any loader = made(40);
  ps::transfer feed{loader};
  std::size_t batches = 0;
  for (auto& batch : feed.epoch(0)) batches += batch.size() == 10 ? 1U : 0U;
  CHECK(batches == 4);
  loader = made(60);
  for (auto& batch : feed.epoch(0)) batches += batch.size() == 10 ? 1U : 0U;
  CHECK(batches == 10);
  CHECK(feed.state().samples == 60);
}

namespace {

using image_record = ps::record<ps::field<"pixel", std::uint8_t, ps::dyn, ps::dyn>>;

/// A dataset of images whose extents are known only at run time.
struct images {
  using record_type = image_record;
  std::size_t height = 2;
  std::size_t width = 8;
  [[nodiscard]] static std::uint64_t size() { return 100; }
  [[nodiscard]] ps::record_extents<image_record> extents() const { return {{height, width}}; }
  void read(std::uint64_t index, ps::sample<image_record> out) const {
    for (auto& pixel : ps::get<"pixel">(out).flat()) pixel = static_cast<std::uint8_t>(index);
  }
};

}  // namespace

TEST_CASE("a loader with another layout that is assigned between two ranges is rejected",
          "[transfer][fault:consumers-13]") {
  using any = ps::any_loader<image_record>;
  const auto made = [](images data, std::size_t batch_size, bool lists = false) {
    return any{ps::loader{
        std::move(data),
        ps::sequential{},
        {.batch_size = batch_size, .workers = 1, .instrumentation = {.indices = lists}}}};
  };
  any loader = made({2, 8}, 4);
  auto stream = ps::cpu_device{}.make_stream();
  const auto make_plane = ps::on_stream<ps::record<ps::field<"sum", std::uint32_t>>>(
      [](const auto& in, const auto& out, ps::cpu_stream_ref on) {
        on.launch([in, out] {
          for (std::size_t i = 0; i < out.size(); ++i) ps::get<"sum">(out)(i) = in.size() > i;
        });
      });
  ps::transfer feed{loader};
  ps::transfer transformed{loader, stream, make_plane};
  const auto next = [](auto& from) {
    std::size_t samples = 0;
    for (auto& batch : from.epoch(0)) samples += batch.size();
    return samples;
  };
  CHECK(next(feed) == 100);
  CHECK(next(transformed) == 100);
  const auto rejects = [&](const std::string& was, const std::string& is) {
    for (const auto& text : {test::error_of<ps::source_mismatch>([&] { next(feed); }),
                             test::error_of<ps::source_mismatch>([&] { next(transformed); }),
                             test::error_of<ps::source_mismatch>([&] {
                               static_cast<void>(feed.replay({0, 0}, ps::batch_count{5}).begin());
                             })}) {
      CHECK(test::has(text.what(), was));
      CHECK(test::has(text.what(), is));
    }
  };
  loader = made({2, 8}, 64);
  rejects("batches of 4 samples (pixel: 2 x 8)", "batches of 64 (pixel: 2 x 8)");
  loader = made({4, 4}, 4);  // the new batch has the same number of bytes
  rejects("(pixel: 2 x 8)", "(pixel: 4 x 4)");
  loader = made({2, 8}, 4, true);
  rejects("another loader", "instrumentation.indices");
  loader = made({2, 8}, 4);
  CHECK(next(feed) == 100);
  CHECK(next(transformed) == 100);
}

namespace {

/// A lease type of a source that derives from the loader's lease type.
struct derived_batch : ps::host_batch<numbered::record_type, ps::cpu_device> {
  using base = ps::host_batch<numbered::record_type, ps::cpu_device>;
  derived_batch() = default;
  explicit derived_batch(base&& batch) noexcept : base(std::move(batch)) {}
};

/// A loader that returns batches of the derived type.
struct derived_source : ps::any_loader<numbered::record_type> {
  using base = ps::any_loader<numbered::record_type>;
  using batch_type = derived_batch;
  explicit derived_source(base&& loader) : base(std::move(loader)) {}
  derived_batch next() { return derived_batch{base::next()}; }
  derived_batch try_next() { return derived_batch{base::try_next()}; }
};

}  // namespace

TEST_CASE("a source with its own batches provides their layout", "[transfer]") {
  derived_source source{
      ps::loader{numbered{40}, ps::sequential{}, {.batch_size = 10, .workers = 1}}};
  ps::transfer feed{source};
  std::size_t samples = 0;
  for (auto& batch : feed.epoch(0)) samples += batch.size();
  CHECK(samples == 40);
  CHECK_THROWS_AS(
      (ps::transfer{source,
                    ps::transfer_options{.tuning = {.zero_copy = ps::zero_copy_use::always}}}),
      ps::option_error);
}

TEST_CASE("a range that outlives its transfer and its loader uses neither", "[transfer]") {
  using any = ps::any_loader<numbered::record_type>;
  std::optional<any> loader{
      ps::loader{numbered{40}, ps::sequential{}, {.batch_size = 10, .workers = 1}}};
  auto feed = std::make_unique<ps::transfer<any&>>(*loader);
  auto range = feed->epoch(0);
  feed.reset();
  loader.reset();
  CHECK_THROWS_AS((void)range.begin(), std::logic_error);
}
