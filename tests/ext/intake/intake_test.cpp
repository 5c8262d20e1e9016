// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/intake/intake.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/support/text_of_file.hpp>
#include <penstock/memory/detail/huge_pages.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/transfer.hpp>

#include "ext/intake/clouds.hpp"
#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/happens.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

using frames = ps::intake<frame_record>;
using clouds = ps::intake<cloud_record>;
using gated_frames = ps::intake<frame_record, gated_device>;

constexpr auto forever = std::chrono::hours{10'000};

/// The tag and `skipped()` of each batch that was ready.
using seen_batches = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
template <class Intake>
seen_batches take_ready(Intake& in) {
  seen_batches all;
  while (const auto batch = in.try_next()) all.emplace_back(batch.tag(), batch.skipped());
  return all;
}

/// A gate that blocks a stream until `open` is called.
struct gate {
  penstock::detail::waitable_counter opened;
  void hold(ps::cpu_stream_ref stream) {
    stream.launch([this] { opened.wait([](std::uint32_t now) { return now != 0; }); });
  }
  void open() { opened.advance(); }
};

/// Commits a frame that is written by work queued on `stream`. Returns false if no slot is free or
/// the commit is rejected.
template <class Intake>
bool push_frame_after(Intake& in, std::uint64_t number, ps::cpu_stream_ref stream) {
  auto slot = in.try_acquire();
  if (!slot) return false;
  stream.launch([buffer = slot.buffer(), number] { write_frame(buffer, number); });
  return slot.commit_after(stream, {.tag = number});
}

}  // namespace

TEST_CASE("a feed delivers pushed batches in the order of their commits",
          "[intake][promise:exact-27][promise:honest-22]") {
  frames in{ps::cpu_device{}, {.slot_count = 3}};
  ps::transfer feed{in};
  std::thread producer{[&] {
    for (std::uint64_t number = 0; number < 100; ++number) {
      auto slot = in.acquire();
      write_frame(slot, number);
      slot.commit({.tag = number});
    }
    in.close();
  }};
  std::uint64_t expected = 0;
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.tag() == expected);
    CHECK(batch.number() == expected);
    CHECK(batch.skipped() == 0);
    CHECK(has_frames(batch, expected++));
  }
  producer.join();
  CHECK(expected == 100);
  const auto stats = in.stats();
  CHECK(stats.committed == 100);
  CHECK(stats.delivered == 100);
  CHECK(stats.age.count() == 100);
}

TEST_CASE("a loop over an intake gets batches of varying length", "[intake][promise:exact-27]") {
  clouds in{ps::cpu_device{}, {{}, {.longest = 50}}, {.slot_count = 4}};
  for (std::uint64_t number = 1; number < 4; ++number) CHECK(push_cloud(in, number, number * 10));
  in.close();
  std::uint64_t expected = 1;
  for (auto& batch : in.stream()) {
    const auto points = ps::get<"points">(batch);
    REQUIRE(points.size() == 1);
    CHECK(points.length(0) == expected * 10);
    for (const auto point : points[0].flat()) CHECK(point == expected);
    ++expected;
  }
  CHECK(expected == 4);
}

TEST_CASE("a feed copies only the values in use, and a kernel gets the true extent",
          "[intake][promise:exact-27]") {
  const gated_device device;
  ps::intake<cloud_record, gated_device> in{device, {{}, {.longest = 10'000}}, {.slot_count = 2}};
  CHECK(push_cloud(in, 1, 3));
  CHECK(push_cloud(in, 2, 0));
  in.close();
  ps::transfer feed{in, device.inline_stream(), {.depth = 1}};
  std::size_t copied = 0;
  std::uint64_t points = 3;
  for (auto& batch : feed.epoch(0)) {
    const auto& layout = in.layout();
    CHECK(device.copied_bytes() - copied == layout.offset<1>() + points * sizeof(std::uint64_t));
    copied = device.copied_bytes();
    CHECK(ps::get<"points">(batch).length(0) == points);
    CHECK(ps::get<"points">(batch).values().size() == points);
    points = 0;
  }
}

TEST_CASE("a slot holds several samples with ragged fields", "[intake][promise:exact-27]") {
  clouds in{ps::cpu_device{}, {{}, {.longest = 5}}, {.samples = 3}};
  auto slot = in.acquire();
  const auto room = ps::get<"points">(slot);
  CHECK(room.size() == 15);
  for (std::size_t i = 0; i < 6; ++i) room(i) = i;
  CHECK(slot.commit({.samples = 3, .lengths = {1, 0, 5}}));
  const auto batch = in.next();
  REQUIRE(batch.size() == 3);
  const auto points = ps::get<"points">(batch);
  CHECK(points.length(0) == 1);
  CHECK(points.length(1) == 0);
  CHECK(points.length(2) == 5);
  CHECK(points[2](0) == 1);
  CHECK(points[2](4) == 5);
}

TEST_CASE("a commit with fewer samples than there is room for is a partial batch", "[intake]") {
  const gated_device device;
  gated_frames in{device, {.slot_count = 2, .samples = 4}};
  ps::transfer feed{in, device.inline_stream()};
  auto slot = in.acquire();
  for (std::size_t at = 0; at < 3; ++at) write_frame(slot, 10 + at, at);
  slot.commit({.samples = 3});
  in.close();
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.size() == 3);
    CHECK(batch.valid() == 3);
    CHECK(has_frames(batch, 10));
    CHECK(device.copied_bytes() == in.layout().used_bytes(3));
  }
  CHECK(device.copies() == 1);
}

TEST_CASE("a lease that ends without a commit returns its slot and delivers no batch",
          "[intake][fault:producers-4]") {
  frames in{ps::cpu_device{}, {.slot_count = 1}};
  for (int turn = 0; turn < 3; ++turn) {
    const auto slot = in.try_acquire();
    CHECK(slot);
    CHECK_FALSE(in.try_acquire());
  }
  CHECK(in.try_acquire());
  CHECK_FALSE(in.try_next());
  CHECK(in.stats().committed == 0);
}

TEST_CASE("a driver fills announced buffers at fixed addresses, several at a time",
          "[intake][promise:bounded-14]") {
  frames in{ps::cpu_device{}, {.slot_count = 4}};
  const auto buffers = in.buffers();
  REQUIRE(buffers.size() == 4);
  std::set<const std::byte*> places;
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(buffers[i].id() == i);
    CHECK(buffers[i].size() == in.layout().bytes());
    CHECK(buffers[i].bytes().data() == buffers[i].data());
    places.insert(buffers[i].data());
  }
  CHECK(places.size() == 4);
  std::vector<std::uint32_t> owned;
  for (int i = 0; i < 3; ++i) {
    auto slot = in.acquire();
    const std::uint32_t id = slot.id();
    CHECK(slot.bytes().data() == buffers[id].data());
    CHECK(slot.detach() == id);
    CHECK_FALSE(slot);
    owned.push_back(id);
  }
  for (std::uint64_t number = 0; number < 20; ++number) {
    const std::uint32_t id = owned[number % 3];
    write_frame(buffers[id], number);
    CHECK(in.commit(id, {.tag = number}));
    const auto batch = in.next();
    CHECK(batch.data() == buffers[id].data());
    CHECK(has_frames(batch, number));
    auto next = in.try_acquire();
    REQUIRE(next);
    owned[number % 3] = next.detach();
  }
  CHECK_FALSE(in.try_next());
  for (const auto id : owned) in.release(id);
  std::vector<frames::slot_type> all;
  for (int i = 0; i < 4; ++i) CHECK(all.emplace_back(in.try_acquire()));
}

TEST_CASE("the policy applies when all slots are in use", "[intake][promise:honest-22]") {
  const ps::cpu_device device;
  SECTION("wait: a producer has to wait, and nothing is dropped") {
    frames in{device, {.slot_count = 2}};
    CHECK(push_frame(in, 0));
    CHECK(push_frame(in, 1));
    CHECK_FALSE(push_frame(in, 2));
    CHECK_FALSE(in.acquire_for(1ms));
    CHECK(take_ready(in) == seen_batches{{0, 0}, {1, 0}});
    CHECK(in.stats().dropped == 0);
    CHECK(in.stats().rejected == 0);
    CHECK(in.stats().waits.count == 1);
  }
  SECTION("reject: acquire returns no slot and does not wait") {
    frames in{device, {.slot_count = 2, .when_full = ps::when_full::reject}};
    CHECK(push_frame(in, 0));
    CHECK(push_frame(in, 1));
    CHECK_FALSE(in.acquire());
    CHECK_FALSE(in.acquire_for(forever));
    CHECK(take_ready(in) == seen_batches{{0, 0}, {1, 0}});
    CHECK(in.stats().dropped == 0);
    CHECK(in.stats().rejected == 2);
  }
  SECTION("drop_oldest: the newest batches are kept") {
    frames in{device, {.slot_count = 2, .when_full = ps::when_full::drop_oldest}};
    for (std::uint64_t number = 0; number < 5; ++number) CHECK(push_frame(in, number));
    CHECK(in.stats().waiting == 2);
    CHECK(take_ready(in) == seen_batches{{3, 3}, {4, 0}});
    CHECK(in.stats().dropped == 3);
    const auto held = in.acquire();
    CHECK(push_frame(in, 5));
    CHECK(push_frame(in, 6));
    CHECK(take_ready(in) == seen_batches{{6, 1}});
    CHECK(in.stats().committed == 7);
    CHECK(in.stats().delivered == 3);
    CHECK(in.stats().dropped == 4);
  }
  SECTION("drop_oldest: no slot is free while producers and consumers hold all slots") {
    frames in{device, {.slot_count = 2, .when_full = ps::when_full::drop_oldest}};
    CHECK(push_frame(in, 0));
    const auto batch = in.next();
    const auto slot = in.acquire();
    CHECK_FALSE(in.try_acquire());
    CHECK(has_frames(batch, 0));
  }
  SECTION("drop_new: the oldest batches are kept") {
    frames in{device, {.slot_count = 2, .when_full = ps::when_full::drop_new}};
    CHECK(push_frame(in, 0));
    CHECK(push_frame(in, 1));
    CHECK_FALSE(in.acquire());
    CHECK_FALSE(in.try_acquire());
    CHECK(take_ready(in) == seen_batches{{0, 0}, {1, 0}});
    CHECK(push_frame(in, 4));
    CHECK(take_ready(in) == seen_batches{{4, 2}});
    CHECK(in.stats().dropped == 2);
    CHECK(in.stats().committed == 3);
  }
}

TEST_CASE("a producer waits for a slot until a consumer releases one", "[intake]") {
  frames in{ps::cpu_device{}, {.slot_count = 1}};
  CHECK(push_frame(in, 0));
  auto batch = in.next();
  sleeper producer{[&] {
    auto slot = in.acquire();
    write_frame(slot, 1);
    slot.commit({.tag = 1});
  }};
  producer.wait_until_it_sleeps();
  batch = {};
  CHECK(has_frames(in.next(), 1));
  producer.join();
  CHECK(in.stats().waits.count == 1);
  CHECK(in.stats().waits.time > 0ns);
}

TEST_CASE("a waiting producer with drop_oldest drops the batch that another producer commits",
          "[intake]") {
  frames in{ps::cpu_device{}, {.slot_count = 1, .when_full = ps::when_full::drop_oldest}};
  auto slot = in.acquire();
  sleeper patient{[&] {
    auto other = in.acquire();
    write_frame(other, 2);
    other.commit({.tag = 2});
  }};
  patient.wait_until_it_sleeps();
  slot.commit({.tag = 1});
  patient.join();
  CHECK(take_ready(in) == seen_batches{{2, 1}});
}

TEST_CASE("close delivers what was committed, and then the loops end",
          "[intake][promise:honest-22][fault:producers-3]") {
  frames in{ps::cpu_device{}, {.slot_count = 3}};
  CHECK(push_frame(in, 0));
  CHECK(push_frame(in, 1));
  auto late = in.acquire();
  SECTION("close") {
    in.close();
    CHECK(in.was_closed());
    CHECK_FALSE(in.at_end());
    CHECK_FALSE(in.acquire());
    CHECK_FALSE(in.acquire_for(forever));
    CHECK_FALSE(late.commit({.tag = 2}));
    in.fail(std::runtime_error{"too late"});
    std::uint64_t expected = 0;
    for (auto& batch : in.stream()) CHECK(batch.tag() == expected++);
    CHECK(expected == 2);
    CHECK(in.stats().dropped == 1);
  }
  SECTION("discard") {
    in.fail(std::runtime_error{"discarded"});
    in.close(ps::discard);
    CHECK(in.at_end());
    CHECK_FALSE(in.next());
    CHECK_FALSE(late.commit());
    CHECK(in.stats().delivered == 0);
    CHECK(in.stats().dropped == 3);
  }
  CHECK(in.at_end());
  CHECK(in.stats().committed == 3);
  CHECK(in.stats().waiting == 0);
}

TEST_CASE("a stop request closes an intake", "[intake]") {
  std::stop_source stop;
  frames in{ps::cpu_device{}, {.stop = stop.get_token()}};
  CHECK(push_frame(in, 0));
  stop.request_stop();
  CHECK(in.was_closed());
  CHECK(take_ready(in) == seen_batches{{0, 0}});
}

TEST_CASE("an error of a producer arrives at its turn and with its type",
          "[intake][fault:producers-1]") {
  frames in{ps::cpu_device{}, {.slot_count = 4}};
  CHECK(push_frame(in, 0));
  in.fail(std::domain_error{"no signal"});
  CHECK(push_frame(in, 1));
  in.fail(std::make_exception_ptr(7));
  CHECK_THROWS_AS(in.fail(std::exception_ptr{}), std::invalid_argument);
  std::vector<std::uint64_t> seen;
  const auto loop = [&](auto&& range) {
    for (auto& batch : range) seen.push_back(batch.tag());
  };
  SECTION("on the host") {
    CHECK_THROWS_AS(loop(in.stream()), std::domain_error);
    CHECK(seen == std::vector<std::uint64_t>{0});
    CHECK_THROWS_AS(loop(in.stream()), int);
    in.close();
    loop(in.stream());
  }
  SECTION("through a feed") {
    ps::transfer feed{in};
    CHECK_THROWS_AS(loop(feed.epoch(0)), std::domain_error);
    CHECK(seen == std::vector<std::uint64_t>{0});
    CHECK_THROWS_AS(loop(feed.epoch(0)), int);
    in.close();
    loop(feed.epoch(0));
  }
  CHECK(seen == std::vector<std::uint64_t>{0, 1});
}

TEST_CASE("an error before batches that are dropped still arrives", "[intake][fault:producers-1]") {
  frames in{ps::cpu_device{}, {.slot_count = 1, .when_full = ps::when_full::drop_oldest}};
  CHECK(push_frame(in, 0));
  in.fail(std::domain_error{"no signal"});
  CHECK(push_frame(in, 1));
  CHECK_THROWS_AS(in.next(), std::domain_error);
  CHECK(take_ready(in) == seen_batches{{1, 1}});
}

TEST_CASE("an intake may be destroyed while threads wait and leases live",
          "[intake][fault:producers-3]") {
  std::optional<frames> in{std::in_place, ps::cpu_device{}, ps::intake_options{.slot_count = 2}};
  auto slot = in->acquire();
  auto other = in->acquire();
  std::atomic<int> ended{0};
  sleeper producer{[&] { ended += in->acquire() ? 0 : 1; }};
  auto range = in->stream();
  sleeper consumer{[&] { ended += range.begin() == range.end() ? 1 : 0; }};
  producer.wait_until_it_sleeps();
  consumer.wait_until_it_sleeps();
  in.reset();
  producer.join();
  consumer.join();
  CHECK(ended == 2);
  write_frame(slot, 1);
  CHECK_FALSE(slot.commit());
}

TEST_CASE("a batch outlives its intake", "[intake][fault:producers-3]") {
  std::optional<frames> in{std::in_place, ps::cpu_device{}};
  CHECK(push_frame(*in, 3));
  const auto batch = in->next();
  in.reset();
  CHECK(has_frames(batch, 3));
}

TEST_CASE("a loop on the host waits for the stream that writes the batch",
          "[intake][promise:race-free-16]") {
  const ps::cpu_device device;
  frames in{device};
  auto stream = device.make_stream();
  gate writing;
  writing.hold(stream);
  CHECK(push_frame_after(in, 5, stream));
  in.close();
  bool is_right = false;
  sleeper consumer{[&] {
    for (auto& batch : in.stream()) is_right = has_frames(batch, 5);
  }};
  consumer.wait_until_it_sleeps();
  writing.open();
  consumer.join();
  CHECK(is_right);
}

TEST_CASE("the copy of a feed waits for the stream that writes the batch, and the host does not",
          "[intake][promise:race-free-16]") {
  const ps::cpu_device device;
  frames in{device};
  auto producer = device.make_stream();
  auto consumer = device.make_stream();
  gate writing;
  writing.hold(producer);
  SECTION("with a slot lease") { CHECK(push_frame_after(in, 5, producer)); }
  SECTION("with a detached slot") {
    auto slot = in.acquire();
    const auto buffer = in.buffers()[slot.detach()];
    producer.launch([buffer] { write_frame(buffer, 5); });
    CHECK(in.attach(buffer.id()).commit_after(producer, {.tag = 5}));
  }
  ps::transfer feed{in, consumer};
  std::atomic<bool> is_right{false};
  std::atomic<bool> has_run{false};
  auto range = feed.epoch(0);
  auto it = range.begin();  // delivered although the frame is not written yet
  CHECK(it->tag() == 5);
  consumer.launch([&, view = std::as_const(*it).view()] {
    is_right = has_frames(view, 5);
    has_run = true;
  });
  CHECK_FALSE(test::happens(has_run));
  writing.open();
  device.synchronize(ps::cpu_stream_ref{consumer});
  CHECK(is_right);
}

TEST_CASE("without a copy the consumer's stream reads the producer's slot after it is written",
          "[intake][zero_copy][promise:race-free-16][promise:exact-27]") {
  const ps::cpu_device device;
  frames in{device, {.slot_count = 2}};
  auto producer = device.make_stream();
  auto consumer = device.make_stream();
  auto second = device.make_stream();
  ps::transfer feed{in, consumer, {.depth = 4, .tuning = {.zero_copy = ps::zero_copy_use::always}}};
  CHECK(feed.zero_copy());
  CHECK(feed.device_bytes() == 0);
  CHECK(feed.depth() == 2);  // no more than the slots of the intake
  gate writing;
  writing.hold(producer);
  CHECK(push_frame_after(in, 5, producer));
  auto range = feed.epoch(0);
  auto it = range.begin();  // returns although nothing is written yet
  CHECK(std::as_const(*it).data() == in.buffers()[it->slot()].data());
  std::atomic<int> right{0};
  std::atomic<bool> has_run{false};
  const auto step = [&right, &has_run, view = std::as_const(*it).view()] {
    right += has_frames(view, 5) ? 1 : 0;
    has_run = true;
  };
  it->also_used_on(second);
  consumer.launch(step);
  second.launch(step);
  CHECK_FALSE(test::happens(has_run));
  writing.open();
  device.synchronize(ps::cpu_stream_ref{consumer});
  device.synchronize(ps::cpu_stream_ref{second});
  CHECK(right == 2);
  CHECK(feed.stats().copies == 0);
  CHECK(feed.stats().zero_copies == 1);
}

TEST_CASE("without a copy a transform reads the producer's slot after it is written",
          "[intake][zero_copy][promise:race-free-16]") {
  const ps::cpu_device device;
  frames in{device, {.slot_count = 2}};
  auto producer = device.make_stream();
  auto consumer = device.make_stream();
  const auto transform =
      ps::on_stream<frame_record>([](ps::const_batch_view<frame_record> from,
                                     ps::batch_view<frame_record> to, ps::cpu_stream_ref stream) {
        stream.launch([from, to] { write_frame(to, ps::get<"number">(from)[0]); });
      });
  ps::transfer feed{in, consumer, transform, {.tuning = {.zero_copy = ps::zero_copy_use::always}}};
  gate writing;
  writing.hold(producer);
  CHECK(push_frame_after(in, 5, producer));
  auto range = feed.epoch(0);
  auto it = range.begin();
  std::atomic<bool> is_right{false};
  std::atomic<bool> has_run{false};
  consumer.launch([&, view = std::as_const(*it).view()] {
    is_right = has_frames(view, 5);
    has_run = true;
  });
  CHECK_FALSE(test::happens(has_run));
  writing.open();
  device.synchronize(ps::cpu_stream_ref{consumer});
  CHECK(is_right);
}

TEST_CASE("without a copy a producer gets a slot again after the consumer's work on it",
          "[intake][zero_copy][promise:race-free-16]") {
  const ps::cpu_device device;
  frames in{device, {.slot_count = 1, .when_full = ps::when_full::drop_oldest}};
  auto stream = device.make_stream();
  ps::transfer feed{in, stream, {.tuning = {.zero_copy = ps::zero_copy_use::always}}};
  CHECK(push_frame(in, 1));
  auto range = feed.epoch(0);
  auto batch = std::move(*range.begin());
  CHECK_FALSE(in.try_acquire());
  gate step;
  step.hold(stream);
  batch = {};
  CHECK_FALSE(in.try_acquire());
  step.open();
  device.synchronize(ps::cpu_stream_ref{stream});
  CHECK(push_frame(in, 2));
}

TEST_CASE("with keep_host the host reads a pushed batch while the device works on its copy",
          "[intake][promise:exact-27]") {
  const ps::cpu_device device;
  frames in{device, {.slot_count = 2}};
  auto stream = device.make_stream();
  std::thread producer{[&] {
    for (std::uint64_t number = 0; number < 20; ++number) {
      auto slot = in.acquire();
      write_frame(slot, number);
      slot.commit({.tag = number});
    }
    in.close();
  }};
  ps::transfer feed{in, stream, {.depth = 2, .keep_host = true}};
  std::uint64_t expected = 0;
  for (auto& batch : feed.epoch(0)) {
    CHECK(has_frames(batch.host(), expected++));
    CHECK(batch.host().slab() != std::as_const(batch).data());
  }
  producer.join();
  CHECK(expected == 20);
}

TEST_CASE("a slot is not written again while its stream still writes it",
          "[intake][promise:race-free-16]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  gate writing;
  frames in{device, {.slot_count = 2, .when_full = ps::when_full::drop_oldest}};
  writing.hold(stream);
  CHECK(push_frame_after(in, 1, stream));
  SECTION("the oldest completely written batch is dropped instead") {
    CHECK(push_frame(in, 2));
    CHECK(push_frame(in, 3));
    writing.open();
    device.synchronize(ps::cpu_stream_ref{stream});
    CHECK(take_ready(in).front() == std::pair<std::uint64_t, std::uint64_t>{1, 0});
  }
  SECTION("nothing is dropped if all batches are being written") {
    CHECK(push_frame_after(in, 2, stream));
    CHECK_FALSE(in.try_acquire());
    CHECK(in.stats().dropped == 0);
    sleeper patient{[&] {
      auto slot = in.acquire();
      write_frame(slot, 3);
      slot.commit({.tag = 3});
    }};
    writing.open();
    patient.join();
    CHECK(take_ready(in) == seen_batches{{2, 1}, {3, 0}});
  }
  SECTION("the intake is closed before the batches are written") {
    auto slot = in.acquire();
    slot.commit_after(stream, {.tag = 2});
    in.close(ps::discard);
    writing.open();
  }
}

TEST_CASE("the memory of an intake is kept until no stream writes it", "[intake]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  gate writing;
  writing.hold(stream);
  std::atomic<bool> is_gone{false};
  auto in = std::make_unique<frames>(device);
  CHECK(push_frame_after(*in, 1, stream));
  std::thread destroyer{[&] {
    in.reset();
    is_gone = true;
  }};
  CHECK_FALSE(test::happens(is_gone));
  writing.open();
  destroyer.join();
}

TEST_CASE("misuse of a lease is rejected, and changes nothing", "[intake][fault:producers-2]") {
  clouds in{ps::cpu_device{}, {{}, {.longest = 4, .max_values_per_batch = 6}}, {.samples = 2}};
  auto slot = in.acquire();
  const auto rejects = [&](const ps::commit_info& what, const char* text) {
    const std::string said = test::error_of<ps::intake_error>([&] { slot.commit(what); }).what();
    INFO(said);
    CHECK(said.find(text) != std::string::npos);
    CHECK(slot);
  };
  rejects({.samples = 0}, "0 samples");
  rejects({.samples = 3, .lengths = {1, 1, 1}}, "3 samples, and a slot has room for 1 to 2");
  rejects({.samples = 2, .lengths = {1}}, "1 lengths for 2 samples");
  rejects({.samples = 1}, "0 lengths");
  rejects({.samples = 1, .lengths = {5}}, "field \"points\": sample 0 has 5 values");
  rejects({.samples = 2, .lengths = {4, 3}}, "sample 1 has 3 values, and there is room for 2");
  CHECK(slot.commit({.samples = 2, .lengths = {4, 2}}));
  CHECK_FALSE(slot);
  CHECK_THROWS_AS(slot.commit({.lengths = {1}}), ps::intake_error);
  CHECK_THROWS_AS(slot.bytes(), ps::intake_error);
  CHECK_THROWS_AS(slot.detach(), ps::intake_error);
  auto stream = ps::cpu_device{}.make_stream();
  CHECK_THROWS_AS(slot.commit_after(stream, {.lengths = {1}}), ps::intake_error);
  auto other = in.acquire();
  const auto moved = std::move(other);
  CHECK_THROWS_AS(other.id(), ps::intake_error);  // NOLINT: moved
  CHECK(in.stats().committed == 1);
}

TEST_CASE("a buffer is committed by number only if a driver owns it",
          "[intake][fault:producers-2]") {
  frames in{ps::cpu_device{}, {.slot_count = 3}};
  const auto is_foreign = [&](std::uint64_t id) {
    CHECK_THROWS_AS(in.commit(id), ps::intake_error);
    CHECK_THROWS_AS(in.attach(id), ps::intake_error);
    CHECK_THROWS_AS(in.release(id), ps::intake_error);
  };
  auto slot = in.acquire();
  const std::uint32_t id = slot.id();
  is_foreign(3);
  is_foreign(~std::uint64_t{0});
  is_foreign(id);               // a lease owns the slot
  is_foreign(id == 0 ? 1 : 0);  // the slot is free
  CHECK(slot.detach() == id);
  CHECK_THROWS_AS(slot.detach(), ps::intake_error);
  CHECK_THROWS_AS(in.commit(id, {.samples = 2}), ps::intake_error);
  CHECK(in.commit(id));
  is_foreign(id);  // the slot was committed
  const auto batch = in.next();
  is_foreign(id);  // a consumer holds the slot
  auto again = in.acquire();
  const std::uint32_t next = again.detach();
  in.release(next);
  is_foreign(next);
  CHECK(in.stats().committed == 1);
}

TEST_CASE("an intake rejects options that it cannot have", "[intake]") {
  const ps::cpu_device device;
  CHECK_THROWS_AS(frames(device, {.slot_count = 0}), ps::option_error);
  CHECK_THROWS_AS(frames(device, {.slot_count = 1025}), ps::option_error);
  CHECK_THROWS_AS(frames(device, {.samples = 0}), ps::layout_error);
  alignas(256) std::array<std::byte, 4 * 512> memory{};
  const std::span<std::byte> all{memory};
  CHECK_THROWS_AS(frames(device, {.slot_count = 5, .memory = all}), ps::option_error);
  CHECK_THROWS_AS(frames(device, {.slot_count = 1, .memory = all.subspan(8)}), ps::option_error);
  CHECK_THROWS_AS(gated_frames(gated_device{}, {.memory = all}), ps::option_error);
}

TEST_CASE("an intake uses memory of the caller", "[intake]") {
  const ps::cpu_device device;
  constexpr std::size_t bytes = 4 * 4096;
  void* const memory = device.allocate_pageable(bytes);
  {
    frames in{device, {.slot_count = 4, .memory = {static_cast<std::byte*>(memory), bytes}}};
    CHECK(in.buffers().front().data() == memory);
    CHECK(ps::intake_bytes<frame_record>({}, 1) == in.layout().bytes());
    for (std::uint64_t number = 0; number < 10; ++number) {
      CHECK(push_frame(in, number));
      const auto batch = in.next();
      CHECK(batch.pinned());
      CHECK(has_frames(batch, number));
    }
  }
  device.deallocate(memory, bytes);
}

TEST_CASE("an intake moves memory of the caller to huge pages and reports how much", "[intake]") {
  const ps::cpu_device device;
  // The size of a huge page, and about the size of a slot.
  constexpr std::size_t size = std::size_t{2} << 20;
  const std::size_t slot_bytes = ps::intake_bytes<frame_record>({}, size / 64);
  const std::unique_ptr<void, void (*)(void*)> memory{std::aligned_alloc(size, 4 * size),
                                                      &std::free};
  const std::span<std::byte> all{static_cast<std::byte*>(memory.get()), 4 * size};
  REQUIRE(2 * slot_bytes <= all.size());
  // The kernel moves only pages that were touched, and sanitizers make mlock do nothing.
  std::ranges::fill(all, std::byte{1});
  const frames in{device, {.slot_count = 2, .samples = size / 64, .memory = all}};
  const auto used = in.footprint();
  CHECK(used.bytes == 2 * slot_bytes);
  const std::size_t huge = ps::detail::huge_page_size();
  CHECK(used.huge_page_bytes == ps::detail::bytes_in_huge_pages(all.first(used.bytes), huge));
  // 25 is MADV_COLLAPSE, with which the kernel accepts an empty range.
  if (const auto enabled = ps::detail::text_of_file("/sys/kernel/mm/transparent_hugepage/enabled");
      huge == size && enabled.find("[never]") == std::string::npos &&
      ::madvise(nullptr, 0, 25) == 0) {
    CHECK(used.huge_page_bytes == used.bytes / size * size);
  } else {
    WARN("not tested: the kernel does not move touched pages to huge pages");
  }
  CHECK(frames{device, {.slot_count = 2}}.footprint().huge_page_bytes == 0);
}

TEST_CASE("an intake reserves its memory in a budget", "[intake]") {
  const auto budget = ps::memory_budget::bytes(4 * 512);
  {
    std::optional<frames> in{std::in_place, ps::cpu_device{},
                             ps::intake_options{.slot_count = 3, .budget = budget}};
    CHECK(budget.used() == in->footprint().bytes);
    CHECK(push_frame(*in, 1));
    const auto batch = in->next();
    in.reset();
    CHECK(budget.used() == 3 * 512);
  }
  CHECK(budget.used() == 0);
  const std::string said = test::error_of<ps::pinned_budget_exceeded>([&] {
                             frames(ps::cpu_device{}, {.slot_count = 5, .budget = budget});
                           }).what();
  CHECK(said.find("lower slot_count or samples, or raise budget") != std::string::npos);
}

TEST_CASE("batches that an ended feed had taken count as dropped",
          "[intake][promise:honest-22][fault:producers-4]") {
  frames in{ps::cpu_device{}, {.slot_count = 6}};
  for (std::uint64_t number = 0; number < 6; ++number) CHECK(push_frame(in, number));
  {
    ps::transfer feed{in, {.depth = 3}};
    for (auto& batch : feed.epoch(0)) {
      CHECK(batch.tag() == 0);
      break;
    }
  }
  const auto dropped = in.stats().dropped;
  CHECK(dropped == 2);
  CHECK(in.stats().delivered == 1);
  CHECK(take_ready(in) == seen_batches{{3, 0}, {4, 0}, {5, 0}});
}

TEST_CASE("skipped() travels with a batch to the device", "[intake][promise:honest-22]") {
  frames in{ps::cpu_device{}, {.slot_count = 2, .when_full = ps::when_full::drop_oldest}};
  for (std::uint64_t number = 0; number < 5; ++number) CHECK(push_frame(in, number));
  in.close();
  ps::transfer feed{in};
  seen_batches seen;
  for (auto& batch : feed.epoch(0)) seen.emplace_back(batch.tag(), batch.skipped());
  CHECK(seen == seen_batches{{3, 3}, {4, 0}});
}

TEST_CASE("the age of a batch counts from its timestamp", "[intake]") {
  frames in{ps::cpu_device{}};
  auto slot = in.acquire();
  slot.commit({.timestamp = std::chrono::steady_clock::now() - 1h});
  CHECK(in.next());
  CHECK(in.stats().age.quantile(0.5) > 50min);
  slot = in.acquire();
  slot.commit({.timestamp = std::chrono::steady_clock::now() + 1h});
  CHECK(in.next());
  CHECK(in.stats().age.count() == 2);
  CHECK(in.stats().age.quantile(0.1) == 0ns);
}

TEST_CASE("a slot is written again only after the copy out of it",
          "[intake][promise:race-free-16]") {
  const gated_device device;
  gated_frames in{device, {.slot_count = 1}};
  auto stream = device.make_stream();
  device.hold_copies();
  ps::transfer feed{in, stream};
  CHECK(push_frame(in, 1));
  auto range = feed.epoch(0);
  auto it = range.begin();
  CHECK_FALSE(in.try_acquire());
  CHECK_FALSE(in.acquire_for(1ms));
  std::thread patient{[&] {
    auto slot = in.acquire();
    write_frame(slot, 2);
    slot.commit();
    in.close();
  }};
  device.open_copies();
  device.synchronize(ps::cpu_stream_ref{stream});
  CHECK(has_frames(*it, 1));
  ++it;
  patient.join();
  device.synchronize(ps::cpu_stream_ref{stream});
  CHECK(has_frames(*it, 2));
}

TEST_CASE("slots and depth limit the frames that queue behind a running step", "[intake]") {
  const std::size_t slots = GENERATE(1U, 4U);
  const std::size_t depth = GENERATE(1U, 3U);
  const ps::cpu_device device;
  gate step;
  auto stream = device.make_stream();
  frames in{device, {.slot_count = slots, .when_full = ps::when_full::drop_oldest}};
  ps::transfer feed{in, stream, {.depth = depth}};
  std::uint64_t pushed = 0;
  const auto push = [&] {
    auto slot = in.acquire();  // waits for the copies
    write_frame(slot, pushed);
    slot.commit({.tag = pushed++});
  };
  push();
  auto range = feed.epoch(0);
  auto it = range.begin();
  step.hold(stream);
  while (pushed < slots + depth) {
    push();
    ++it;  // neither launches work nor waits for the step
    CHECK(it->tag() == pushed - 1);
  }
  CHECK_FALSE(in.try_acquire());
  CHECK(in.stats().dropped == 0);
  step.open();
  device.synchronize(ps::cpu_stream_ref{stream});
  CHECK(has_frames(*it, pushed - 1));
}

TEST_CASE("a slot whose work can't be waited for is never used again",
          "[intake][fault:producers-5]") {
  const gated_device device;
  auto stream = device.make_stream();
  gated_frames in{device, {.slot_count = 2}};
  const auto reject = [&](bool is_lost) {
    device.fail_record(0);
    if (is_lost) device.fail_stream_synchronize(0);
  };
  auto slot = in.acquire();
  reject(false);
  CHECK_THROWS_AS(slot.commit_after(stream), device_fault);
  CHECK_FALSE(slot);
  slot = in.acquire();
  reject(true);
  CHECK_THROWS_AS(slot.commit_after(stream), device_fault);
  CHECK(push_frame(in, 1));
  CHECK_FALSE(in.try_acquire());
  auto batch = in.next();
  std::atomic<bool> was_reported{false};
  sleeper patient{[&] {
    try {
      static_cast<void>(in.acquire());
    } catch (const ps::leases_exhausted&) {
      was_reported = true;
    }
  }};
  patient.wait_until_it_sleeps();
  reject(true);
  CHECK_THROWS_AS(batch.release_after(stream), device_fault);
  patient.join();
  CHECK(was_reported);
  CHECK_THROWS_AS(in.try_acquire(), ps::leases_exhausted);
  CHECK(in.stats().committed == 1);
  in.close();
  CHECK_FALSE(in.try_acquire());
}

TEST_CASE("a child made by fork can only destroy an intake", "[intake][fault:memory-7]") {
  auto in = std::make_unique<frames>(ps::cpu_device{});
  auto slot = in->acquire();
  CHECK(push_frame(*in, 1));
  CHECK(test::in_child([&] {
          int rejected = 0;
          const auto count = [&](auto call) {
            try {
              call();
            } catch (const std::logic_error&) {
              ++rejected;
            }
          };
          count([&] { static_cast<void>(in->acquire()); });
          count([&] { static_cast<void>(in->try_next()); });
          count([&] { in->release(0); });
          if (slot.commit() || !in->at_end() || !in->was_closed()) return 50;
          in->close();
          in.reset();
          return rejected;
        }) == 3);
  CHECK(has_frames(in->next(), 1));
  CHECK(slot.commit());
}
