// SPDX-License-Identifier: BSL-1.0
#include <penstock/transfer/device_transform.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/transfer.hpp>

#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/grouping.hpp"
#include "support/happens.hpp"
#include "support/ledger_device.hpp"
#include "support/numbered.hpp"
#include "transfer/ten_each.hpp"

namespace ps = penstock;

namespace {

using made = ps::record<ps::field<"halves", double, 2, 4>, ps::field<"label", std::uint64_t>>;

/// Halves every value and adds 1000 to every label.
void make(ps::const_batch_view<numbered::record_type> in, ps::batch_view<made> out) {
  const auto values = ps::get<"values">(in);
  const auto halves = ps::get<"halves">(out);
  for (std::size_t i = 0; i < values.size(); ++i) halves.data()[i] = values.data()[i] / 2.0;
  for (std::size_t i = 0; i < in.size(); ++i)
    ps::get<"label">(out)(i) = ps::get<"label">(in)(i) + 1000;
}

bool is_made_of(const ps::const_batch_view<made>& batch, std::size_t i, std::uint64_t sample) {
  for (std::size_t j = 0; j < 8; ++j) {
    if (ps::get<"halves">(batch)(i, j / 4, j % 4) != static_cast<double>(sample) / 2.0)
      return false;
  }
  return ps::get<"label">(batch)(i) == sample + 1000;
}

/// A transform whose work on the stream can be held back, and whose k-th call can throw. Copies
/// share one state.
struct gated_transform {
  using record_type = made;

  struct shared {
    ps::detail::waitable_counter gate;  // holds back the work while 1
    std::atomic<std::size_t> runs{0};
    std::atomic<std::size_t> calls{0};
    std::size_t fails = ~std::size_t{0};
    std::vector<std::size_t> sizes;
  };
  std::shared_ptr<shared> state = std::make_shared<shared>();

  void hold() const { state->gate.store(1); }
  void open() const { state->gate.store(0); }

  void enqueue(ps::const_batch_view<numbered::record_type> in, ps::batch_view<made> out,
               ps::cpu_stream_ref stream) {
    state->sizes.push_back(in.size());
    if (out.size() != in.size()) throw std::logic_error("two sizes");
    if (state->calls++ == state->fails) throw std::domain_error("told to fail");
    // Captures the transform, which must remain alive until this work has run.
    stream.launch([this, in, out] {
      state->gate.wait([](std::uint32_t closed) { return closed == 0; });
      make(in, out);
      ++state->runs;
    });
  }
};
static_assert(ps::device_transform<gated_transform, numbered::record_type, ps::cpu_device>);
static_assert(!ps::device_transform<int, numbered::record_type, ps::cpu_device>);
static_assert(!ps::device_transform<gated_transform, made, ps::cpu_device>);

void wait_until_all_read(const numbered& data, std::uint32_t reads) {
  data.state->arrived.wait([reads](std::uint32_t count) { return count >= reads; });
}

}  // namespace

TEST_CASE("a transfer with a transform delivers the transform's output", "[transfer]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{3});
  const auto depth = GENERATE(std::size_t{1}, std::size_t{3});
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{95}, ps::sequential{}, device, ten_each(workers)};
  gated_transform transform;
  ps::transfer feed{loader, stream, transform, {.depth = depth}};
  static_assert(std::is_same_v<decltype(feed)::record_type, made>);
  // A slot has 10 x 8 doubles and 10 labels of 8 bytes. A staging buffer has 10 x 8 floats and 10
  // labels.
  CHECK(feed.device_bytes() == depth * (768 + 256) + 2 * (512 + 256));
  std::size_t right = 0;
  std::uint64_t next = 0;
  for (auto& batch : feed.epochs(0, 2)) {
    const std::uint64_t first = next;
    next = (next + batch.size()) % 95;
    stream.launch([&right, first, view = std::as_const(batch).view()] {
      for (std::size_t i = 0; i < view.size(); ++i) right += is_made_of(view, i, first + i);
    });
  }
  stream.synchronize();
  CHECK(right == 190);
  // Each batch is a single copy of the untransformed bytes.
  CHECK(device.copies() == 20);
  CHECK(device.copied_bytes() == 18 * (512 + 80) + 2 * (512 + 40));
  CHECK(transform.state->sizes.size() == 20);
  CHECK(transform.state->sizes[9] == 5);
}

TEST_CASE("padding samples are transformed as well", "[transfer]") {
  const gated_device device;
  ps::loader loader{numbered{15},
                    ps::sequential{},
                    device,
                    {.batch_size = 10, .workers = 0, .last_batch = ps::last_batch::pad}};
  gated_transform transform;
  ps::transfer feed{loader, device.inline_stream(), transform};
  std::vector<std::size_t> valid;
  for (auto& batch : feed.epoch(0)) valid.push_back(batch.valid());
  CHECK(transform.state->sizes == std::vector<std::size_t>{10, 10});
  CHECK(valid == std::vector<std::size_t>{10, 5});
}

TEST_CASE("work on a batch waits for its transform, the caller does not",
          "[transfer][promise:race-free-4]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  gated_transform transform;
  transform.hold();
  ps::transfer feed{loader, stream, transform, {.depth = 2}};
  auto range = feed.epoch(0);
  auto it = range.begin();  // the batch is delivered while its transform is held back
  std::atomic<bool> ran{false};
  bool right = false;
  stream.launch([&, view = std::as_const(*it).view()] {
    right = is_made_of(view, 0, 0);
    ran = true;
  });
  while (device.copies() < 1) std::this_thread::yield();
  CHECK_FALSE(test::happens(ran));
  transform.open();
  stream.synchronize();
  CHECK(right);
}

TEST_CASE("only the next batch is copied during a transform", "[transfer][promise:race-free-4]") {
  const gated_device device;
  const numbered data{100};
  auto stream = device.make_stream();
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  gated_transform transform;
  transform.hold();
  ps::transfer feed{loader, stream, transform, {.depth = 3}};
  std::size_t right = 0;
  const auto look = [&](const decltype(feed)::batch_type& batch) {
    stream.launch([&right, first = 10 * batch.number(), view = batch.view()] {
      right += is_made_of(view, 0, first) && is_made_of(view, 9, first + 9);
    });
  };
  auto range = feed.epoch(0);
  auto it = range.begin();
  look(*it);
  wait_until_all_read(data, 30);
  // The copies of batches 1 and 2 are queued, but the transform of batch 0 is held back.
  look(*++it);
  // The loop would hang if batch 1 waited for the transform.
  while (device.copies() < 2) std::this_thread::yield();
  CHECK(transform.state->runs == 0);
  // The copy of batch 2 would overwrite memory that the transform of batch 0 has not read yet.
  CHECK_FALSE(test::happens([&] { return device.copies() > 2; }));
  transform.open();
  for (++it; it != range.end(); ++it) look(*it);
  stream.synchronize();
  CHECK(right == 10);
}

TEST_CASE("a transform waits for the copy of its batch", "[transfer][promise:race-free-4]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  gated_transform transform;
  ps::transfer feed{loader, stream, transform, {.depth = 2}};
  device.hold_copies();
  auto range = feed.epoch(0);
  auto it = range.begin();
  CHECK_FALSE(test::happens([&] { return transform.state->runs > 0; }));
  device.open_copies();
  device.synchronize(ps::cpu_stream_ref{stream});
  CHECK(is_made_of(std::as_const(*it).view(), 0, 0));
}

TEST_CASE("the next copy overlaps the work on the slot, and its transform waits for the work",
          "[transfer][promise:race-free-4]") {
  const gated_device device;
  const numbered data{100};
  ps::detail::waitable_counter step;
  auto stream = device.make_stream();
  ps::loader loader{data, ps::sequential{}, device, ten_each(1)};
  gated_transform transform;
  ps::transfer feed{loader, stream, transform, {.depth = 1}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  bool right = false;
  stream.launch([&, view = std::as_const(*it).view()] {
    step.wait([](std::uint32_t open) { return open != 0; });
    right = is_made_of(view, 0, 0);
  });
  ++it;                                                   // batch 1, which uses the same slot
  while (device.copies() < 2) std::this_thread::yield();  // would hang if the copy waited
  CHECK_FALSE(test::happens([&] { return transform.state->runs > 1; }));
  step.store(1);
  stream.synchronize();
  CHECK(right);
  CHECK(is_made_of(std::as_const(*it).view(), 0, 10));
}

TEST_CASE("a host slot is released after the copy and before the transform", "[transfer]") {
  const gated_device device;
  const numbered data{200};
  ps::loader loader{
      data, ps::sequential{}, device, {.batch_size = 10, .workers = 1, .prefetch = 1}};
  const auto slots = static_cast<std::uint32_t>(loader.footprint().slot_count);
  gated_transform transform;
  transform.hold();
  auto stream = device.make_stream();
  ps::transfer feed{loader, stream, transform, {.depth = 8}};
  auto range = feed.epoch(0);
  (void)range.begin();
  // The host slot is refilled, because the copy of batch 0 has run although its transform is held
  // back.
  wait_until_all_read(data, 10 * slots + 1);
  CHECK(transform.state->runs == 0);
  transform.open();
}

TEST_CASE("a transform's exception is a transfer_error, and the transfer continues",
          "[transfer][fault:devices-4]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  gated_transform transform;
  transform.state->fails = 3;
  ps::transfer feed{loader, stream, transform, {.depth = 2}};
  std::uint64_t seen = 0;
  const auto consume = [&] {
    for (auto& batch : feed.epoch(2)) seen += batch.size() / 10;
  };
  CHECK_THROWS_AS(consume(), std::domain_error);
  CHECK(seen <= 3);
  REQUIRE(feed.last_failure().has_value());
  CHECK(feed.last_failure()->stage == "transfer");
  CHECK(feed.last_failure()->epoch == 2);
  CHECK(feed.last_failure()->batch == 3);
  seen = 0;
  consume();
  CHECK(seen == 10);
  CHECK_FALSE(feed.last_failure().has_value());
}

TEST_CASE("work that a transform queued before it threw has run before the error is thrown",
          "[transfer][fault:devices-4]") {
  const gated_device device;
  ps::loader loader{numbered{20}, ps::sequential{}, device, ten_each(0)};
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  const auto bad = [&gate](auto, auto, ps::cpu_stream_ref on) {
    on.launch([&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); });
    throw std::domain_error("after what it has queued");
  };
  ps::transfer feed{loader, stream, ps::on_stream<made>(bad)};
  std::atomic<bool> thrown{false};
  std::thread consumer{[&] {
    auto range = feed.epoch(0);
    try {
      (void)range.begin();
    } catch (const std::domain_error&) {
      thrown = true;
    }
  }};
  while (device.copies() < 1) std::this_thread::yield();
  CHECK_FALSE(test::happens(thrown));
  gate.store(1);
  consumer.join();
  CHECK(thrown);
}

TEST_CASE("a loop with a transform may be left at every batch, and the next epoch is complete",
          "[transfer]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, stream, gated_transform{}, {.depth = 3}};
  for (std::uint64_t last = 0; last < 10; ++last) {
    const auto leave = [&](bool throws) {
      for (auto& batch : feed.epoch(0)) {
        if (batch.number() != last) continue;
        if (throws) throw bad_sample{last};
        break;
      }
    };
    leave(false);
    CHECK_THROWS_AS(leave(true), bad_sample);
    std::size_t right = 0;
    for (auto& batch : feed.epoch(0)) {
      stream.launch([&right, first = 10 * batch.number(), view = std::as_const(batch).view()] {
        for (std::size_t i = 0; i < 10; ++i) right += is_made_of(view, i, first + i);
      });
    }
    device.synchronize(ps::cpu_stream_ref{stream});
    CHECK(right == 100);
  }
}

TEST_CASE("every failed record around a transform is reported, and loses no host slot",
          "[transfer]") {
  for (std::uint64_t k = 0; k < 30; ++k) {
    INFO("record " << k << " fails");
    const gated_device device;
    auto stream = device.make_stream();
    ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
    {
      ps::transfer feed{loader, stream, gated_transform{}, {.depth = 2}};
      device.fail_record(k);
      const auto consume = [&] {
        for (auto& batch : feed.epoch(0)) (void)batch;
      };
      CHECK_THROWS_AS(consume(), device_fault);
    }
    std::uint64_t batches = 0;
    for (auto& batch : loader.epoch(0)) batches += batch.size() == 10;
    CHECK(batches == 10);
  }
}

TEST_CASE("a rejected copy leaves a transfer with a transform usable", "[transfer]") {
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(0)};
  gated_transform transform;
  // The depth leaves a single slot.
  ps::transfer feed{loader, device.inline_stream(), transform, {.depth = 1}};
  device.fail_copy(3);
  std::uint64_t seen = 0;
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) seen += batch.size() / 10;
  };
  CHECK_THROWS_AS(consume(), device_fault);
  CHECK(transform.state->calls == 3);
  seen = 0;
  consume();
  CHECK(seen == 10);
}

TEST_CASE("a transform of host slots that fails leaves its only slot free", "[transfer]") {
  ps::loader loader{numbered{100}, ps::sequential{}, ten_each(0)};
  gated_transform transform;
  ps::transfer feed{loader,
                    loader.device().inline_stream(),
                    transform,
                    {.depth = 1, .tuning = {.zero_copy = ps::zero_copy_use::always}}};
  REQUIRE(feed.zero_copy());
  transform.state->fails = 3;
  std::uint64_t seen = 0;
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) seen += batch.size() / 10;
  };
  CHECK_THROWS_AS(consume(), std::domain_error);
  CHECK(seen == 3);
  seen = 0;
  consume();
  CHECK(seen == 10);
}

TEST_CASE("transform, views and memory live until the work of the transform is done",
          "[transfer]") {
  const ledger_device device;
  gated_transform transform;
  transform.hold();
  std::thread opener;
  {
    auto stream = device.make_stream();
    ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
    ps::transfer feed{loader, stream, transform, {.depth = 2}};
    {
      auto range = feed.epoch(0);
      (void)range.begin();
    }
    CHECK(transform.state->runs == 0);
    CHECK(device.device_bytes() == 2 * (768 + 256) + 2 * (512 + 256));
    // Leaving the scope waits for the blocked work. AddressSanitizer detects an early destruction.
    opener = std::thread{[&] { transform.open(); }};
  }
  CHECK(transform.state->runs >= 1);
  CHECK(device.device_bytes() == 0);
  CHECK(device.bad_frees() == 0);
  opener.join();
}

TEST_CASE("a lease of a transfer with a transform outlives it", "[transfer]") {
  const ledger_device device;
  auto stream = device.make_stream();
  ps::transfer<ps::loader<numbered, ps::sequential, ledger_device>, gated_transform>::batch_type
      kept;
  {
    ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, device, ten_each(1)}, stream,
                      gated_transform{}};
    for (auto& batch : feed.epoch(0)) {
      if (batch.number() == 4) kept = std::move(batch);
    }
  }
  stream.synchronize();
  CHECK(is_made_of(std::as_const(kept).view(), 3, 43));
  CHECK(device.device_bytes() > 0);
  kept = {};
  CHECK(device.device_bytes() == 0);
}

namespace {

using strip = ps::record<ps::field<"x", std::uint16_t, ps::dyn>>;
using wide = ps::record<ps::field<"x", std::uint32_t, ps::dyn, 2>>;

struct strips {
  using record_type = strip;
  [[nodiscard]] std::uint64_t size() const { return 7; }
  [[nodiscard]] ps::record_extents<strip> extents() const { return {{5}}; }
  void read(std::uint64_t index, ps::sample<strip> out) const {
    for (auto& value : ps::get<"x">(out).flat()) value = static_cast<std::uint16_t>(index);
  }
};

/// A transform that doubles the number of values, for any length and any integer record. The output
/// record type depends on the input.
struct doubled {
  template <class In>
  using record_for = wide;

  std::shared_ptr<int> prepared = std::make_shared<int>(0);

  [[nodiscard]] ps::record_extents<wide> extents(const ps::record_extents<strip>& lengths) const {
    return {{lengths.at<0>()[0]}};
  }
  template <class Device>
  void prepare(const Device&, const ps::batch_layout<strip>& layout) {
    if (layout.batch_size() == 3) ++*prepared;
  }
  void enqueue(ps::const_batch_view<strip> in, ps::batch_view<wide> out,
               ps::cpu_stream_ref stream) const {
    stream.launch([from = ps::get<"x">(in), to = ps::get<"x">(out)] {
      for (std::size_t n = 0; n < from.extent(0); ++n) {
        for (std::size_t i = 0; i < from.extent(1); ++i) to(n, i, 0) = to(n, i, 1) = from(n, i);
      }
    });
  }
};
static_assert(std::is_same_v<ps::detail::transformed_record_t<doubled, strip>, wide>);

bool holds(const ps::const_batch_view<wide>& batch, std::uint64_t first) {
  const auto x = ps::get<"x">(batch);
  bool right = x.extent(1) == 5 && x.extent(2) == 2;
  for (std::size_t n = 0; n < x.extent(0); ++n) {
    for (std::size_t i = 0; i < 10; ++i) right = right && x(n, i / 2, i % 2) == first + n;
  }
  return right;
}

}  // namespace

TEST_CASE("a transform derives its extents from its input and is prepared once", "[transfer]") {
  const ps::cpu_device device;
  const doubled transform;
  ps::loader loader{strips{}, ps::sequential{}, device, {.batch_size = 3, .workers = 0}};
  ps::transfer feed{loader, device.inline_stream(), transform};
  CHECK(*transform.prepared == 1);
  std::uint64_t first = 0;
  for (auto& batch : feed.epoch(0)) {
    CHECK(holds(std::as_const(batch).view(), first));
    first += batch.size();
  }
  CHECK(first == 7);
  CHECK(*transform.prepared == 1);
}

TEST_CASE("a function that queues work on a stream is a transform", "[transfer]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{strips{}, ps::sequential{}, device, {.batch_size = 3, .workers = 1}};
  const auto twice = [made = doubled{}](auto in, auto out, ps::cpu_stream_ref on) {
    made.enqueue(in, out, on);
  };
  ps::transfer feed{loader, stream, ps::on_stream<wide>(twice, {{5}}), {.depth = 2}};
  std::uint64_t first = 0;
  std::uint64_t right = 0;
  for (auto& batch : feed.epoch(0)) {
    stream.launch(
        [&right, first, view = std::as_const(batch).view()] { right += holds(view, first); });
    first += batch.size();
  }
  stream.synchronize();
  CHECK(right == 3);
}

TEST_CASE("a transform is queued with the transfer's device current", "[transfer]") {
  struct scoped_device : gated_device {
    struct scope {
      int* depth;
      explicit scope(int& in) : depth(&in) { ++in; }
      scope(scope&&) = delete;
      ~scope() { --*depth; }
    };
    std::shared_ptr<int> entered = std::make_shared<int>(0);
    [[nodiscard]] scope enter_scope() const { return scope{*entered}; }
  };
  const scoped_device device;
  ps::loader loader{numbered{20}, ps::sequential{}, device, ten_each(0)};
  std::vector<int> seen;
  const auto note = [&](auto in, auto out, ps::cpu_stream_ref on) {
    seen.push_back(*device.entered);
    on.launch([in, out] { make(in, out); });
  };
  ps::transfer feed{loader, device.inline_stream(), ps::on_stream<made>(note)};
  for (auto& batch : feed.epoch(0)) (void)batch;
  CHECK(seen == std::vector<int>{1, 1});
  CHECK(*device.entered == 0);
}

TEST_CASE("an exception follows all earlier batches, for any depth and group",
          "[transfer][promise:honest-1][fault:devices-4]") {
  const bool is_a_copy = GENERATE(false, true);
  for (const std::size_t depth : {1U, 2U, 3U, 6U}) {
    for (const std::size_t group : {1U, 3U}) {
      INFO("depth " << depth << ", group " << group << ", a copy " << is_a_copy);
      const grouping<gated_device> device;
      auto stream = device.make_stream();
      const numbered data{400};
      ps::loader loader{
          data, ps::sequential{}, device, {.batch_size = 10, .workers = 1, .prefetch = 8}};
      device.grouped_bytes = group * loader.layout().bytes();
      const ps::transfer_options options{.depth = depth};
      const auto loop = [&](auto& feed) {
        std::uint64_t seen = 0;
        const auto consume = [&] {
          for (auto& batch : feed.epoch(0)) {
            // Ready batches are copied ahead up to batch 11, which is the second batch of a group.
            const std::uint64_t ready = (std::min)(10 * (seen + 7), std::uint64_t{120});
            while (data.state->reads < ready) std::this_thread::yield();
            CHECK(batch.number() == seen++);
          }
        };
        CHECK_THROWS_AS(consume(), std::exception);
        CHECK(seen == 11);
        REQUIRE(feed.last_failure().has_value());
        CHECK(feed.last_failure()->stage == "transfer");
        CHECK(feed.last_failure()->batch == 11);
        CHECK(samples_in(feed.epoch(1)) == 400);
      };
      if (is_a_copy) {
        ps::transfer feed{loader, stream, options};
        device.fail_copy(11);
        loop(feed);
      } else {
        gated_transform transform;
        transform.state->fails = 11;
        ps::transfer feed{loader, stream, transform, options};
        loop(feed);
      }
    }
  }
}
