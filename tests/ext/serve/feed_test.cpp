// SPDX-License-Identifier: BSL-1.0
// Tests a batcher with a transfer, and failures of both. Each request must be served or returned.
#include <penstock_ext/serve/batcher.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/observe/trace_recorder.hpp>
#include <penstock/transfer/transfer.hpp>
#include <penstock_ext/results/results.hpp>

#include "ext/serve/requests.hpp"
#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/hand_over.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

using gated_batcher = ps::batcher<request, gated_device>;

/// Submits `count` requests with tags starting at `first`. Some writes throw and are then repeated.
template <class Batcher>
void submit_share(Batcher& requests, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t tag = first; tag != first + count; ++tag) {
    if (tag % 7 == 0) {
      try {
        requests.submit(tag, [](ps::sample<request>) { throw std::domain_error{"unreadable"}; });
      } catch (const std::domain_error&) {
      }
    }
    switch (tag % 3) {
      case 0:
        requests.submit(tag, written(tag));
        break;
      case 1:
        while (!requests.submit_for(1us, tag, written(tag))) {
        }
        break;
      default:
        while (!requests.try_submit(tag, written(tag))) std::this_thread::yield();
    }
  }
}

}  // namespace

TEST_CASE("a feed's batches have the tags of their requests, in both memories",
          "[serve][promise:honest-14]") {
  const ps::cpu_device device;
  fates known{100};
  const auto zero_copy = GENERATE(ps::zero_copy_use::never, ps::zero_copy_use::always);
  const bool keep_host = GENERATE(false, true);
  ps::batcher<request> requests{device, {.max_batch_size = 8, .fill = 0ns, .depth = 2}};
  ps::transfer feed{requests, {.keep_host = keep_host, .tuning = {.zero_copy = zero_copy}}};
  std::thread submitter{[&] {
    submit_share(requests, 0, 100);
    requests.close();
  }};
  std::uint64_t number = 0;
  bool is_numbered = true;
  for (auto& batch : feed.epoch(0)) {
    is_numbered = is_numbered && batch.number() == number++ && batch.epoch() == 0;
    known.record_served(batch);
  }
  submitter.join();
  CHECK(is_numbered);
  CHECK(known.ended_once() == 100);
  CHECK(known.wrong == 0);
  CHECK(requests.stats().handed_out == 100);
  CHECK(requests.stats().failed == 15);
}

TEST_CASE("a padded batch arrives with its padding, and with the tags of its requests",
          "[serve][promise:honest-14]") {
  ps::batcher<request> requests{
      ps::cpu_device{},
      {.max_batch_size = 4, .fill = 0ns, .depth = 1, .allowed_batch_sizes = {2, 4}}};
  ps::transfer feed{requests, {.depth = 1}};
  std::vector<std::size_t> sizes;
  std::vector<std::uint64_t> answered;
  bool are_valid = true;
  const auto submit = [&](std::uint64_t first, std::uint64_t end) {
    for (; first != end; ++first) requests.submit(first, written(first));
  };
  submit(1, 5);
  ps::results<request> out{ps::cpu_device{}, 4, [&](const auto& done) {
                             const auto tags = tags_of(done);
                             answered.insert(answered.end(), tags.begin(), tags.end());
                             are_valid = are_valid && done.valid() == tags.size();
                           }};
  for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
    sizes.push_back(batch.size());
    CHECK(batch.valid() == batch.tags().size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const bool is_padding = i >= batch.valid();
      CHECK(ps::get<"number">(batch)[i] == (is_padding ? 0 : batch.tags()[i]));
    }
    static_cast<void>(slot);
    if (sizes.size() == 1) submit(5, 8);
    if (sizes.size() == 2) submit(8, 9);
    if (sizes.size() == 3) requests.close();
  }
  out.close();
  CHECK(sizes == std::vector<std::size_t>{4, 4, 2});
  CHECK(answered == std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(are_valid);
}

TEST_CASE("the trace of a feed over a batcher has each batch, its copy and its lease", "[serve]") {
  ps::trace_recorder recorder;
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 2, .depth = 4}};
  for (std::uint64_t tag = 0; tag < 8; ++tag) requests.submit(tag, written(tag));
  requests.close();
  std::uint64_t copies = 0;
  std::uint64_t leases = 0;
  std::uint64_t flow = 0;
  bool has_one_flow = true;
  {
    ps::transfer feed{requests, {.depth = 2, .instrumentation = {.trace = &recorder}}};
    for (auto& batch : feed.epoch(0)) CHECK(is_as_tagged(batch));
  }
  for (const auto& track : recorder.snapshot().tracks) {
    if (flow == 0) flow = track.flow;
    has_one_flow = has_one_flow && track.flow == flow;
    for (const auto& event : track.events) {
      copies += event.stage == ps::trace_stage::copy ? event.samples : 0;
      leases += event.stage == ps::trace_stage::lease ? 1 : 0;
      if (event.stage == ps::trace_stage::copy || event.stage == ps::trace_stage::lease) {
        CHECK(event.batch.value().batch < 4);
      }
    }
  }
  CHECK(copies == 8);  // one copy per request
  CHECK(leases == 4);
  CHECK(flow != 0);
  CHECK(has_one_flow);
}

TEST_CASE("a feed that runs out of leases loses no request", "[serve][promise:honest-14]") {
  const ps::cpu_device device;
  fates known{12};
  {
    ps::batcher<request> requests{device,
                                  {.max_batch_size = 2, .depth = 6, .on_unserved = known.noting()}};
    for (std::uint64_t tag = 0; tag < 12; ++tag) requests.submit(tag, written(tag));
    {
      ps::transfer feed{requests, {.depth = 2}};
      std::vector<decltype(feed)::batch_type> held;
      const auto hoard = [&] {
        for (auto& batch : feed.epoch(0)) held.push_back(std::move(batch));
      };
      CHECK_THROWS_AS(hoard(), ps::leases_exhausted);
      CHECK(held.size() == 2);
      for (const auto& batch : held) known.record_served(batch);
      CHECK(fates::sum(known.returned) == 0);  // no request is returned
    }
    ps::transfer again{requests, {.depth = 2}};
    for (auto& batch : again.epoch(0)) {
      known.record_served(batch);
      break;  // the batch that was copied ahead is returned
    }
    CHECK(fates::sum(known.served) == 6);
    CHECK(fates::sum(known.returned) == 2);
    CHECK(known.abandoned == 0);
    CHECK(requests.stats().waiting == 4);
    CHECK(requests.stats().handed_out == 6);
  }
  CHECK(known.ended_once() == 12);
  CHECK(known.abandoned == 4);
  CHECK(known.wrong == 0);
}

TEST_CASE("a batch that could not be copied is returned", "[serve][promise:honest-14]") {
  const gated_device device;
  fates known{8};
  {
    gated_batcher requests{device,
                           {.max_batch_size = 2, .depth = 4, .on_unserved = known.noting()}};
    for (std::uint64_t tag = 0; tag < 8; ++tag) requests.submit(tag, written(tag));
    ps::transfer feed{requests, device.inline_stream(), {.depth = 2}};
    SECTION("the copy fails") { device.fail_copy(1); }
    SECTION("recording the arrival event fails") { device.fail_record(0); }
    SECTION("recording the release event fails") { device.fail_record(1); }
    const auto serve = [&] {
      for (auto& batch : feed.epoch(0)) known.record_served(batch);
    };
    CHECK_THROWS_AS(serve(), device_fault);
    CHECK(fates::sum(known.returned) >= 2);
    requests.close();
    serve();  // serves the remaining requests without failures
  }
  CHECK(known.ended_once() == 8);
  CHECK(known.abandoned == 0);
  CHECK(known.wrong == 0);
}

TEST_CASE("a slot whose copy failed accepts requests again", "[serve]") {
  const gated_device device;
  gated_batcher requests{device, {.max_batch_size = 1, .depth = 1}};
  ps::transfer feed{requests, device.inline_stream(), {.depth = 1}};
  requests.submit(1, written(1));
  SECTION("the copy fails") { device.fail_copy(0); }
  SECTION("recording the arrival event fails") { device.fail_record(0); }
  auto range = feed.epoch(0);
  CHECK_THROWS_AS(range.begin(), device_fault);
  CHECK(requests.stats().returned == 1);
  CHECK(requests.try_submit(2, written(2)));
}

TEST_CASE("a slot whose copy cannot be waited for is never written again", "[serve]") {
  const gated_device device;
  auto stream = device.make_stream();
  gated_batcher requests{device, {.max_batch_size = 1, .depth = 2}};
  const auto lose_one = [&](std::uint64_t tag) {
    requests.submit(tag, written(tag));
    auto batch = requests.next();
    const std::byte* const slot = batch.data();
    device.fail_record(0);
    device.fail_stream_synchronize(0);
    CHECK_THROWS_AS(batch.release_after(stream), device_fault);
    return slot;
  };
  const std::byte* const lost = lose_one(1);
  for (std::uint64_t tag = 2; tag < 6; ++tag) {
    requests.submit(tag, written(tag));
    const auto batch = requests.next();
    CHECK(batch.data() != lost);
    CHECK(is_as_tagged(batch));
    CHECK_FALSE(requests.try_submit(tag, written(tag)));  // the only other slot is lost
  }
  lose_one(6);
  CHECK_THROWS_AS(requests.submit(7, written(7)), ps::leases_exhausted);
  CHECK_THROWS_AS(requests.try_submit(7, written(7)), ps::leases_exhausted);
  requests.close();
  CHECK_THROWS_AS(requests.submit(7, written(7)), ps::batcher_closed);
  CHECK_FALSE(requests.next());
}

TEST_CASE("a lost slot leaves a slot for requests of each priority", "[serve]") {
  const gated_device device;
  auto stream = device.make_stream();
  gated_batcher requests{device, {.max_batch_size = 1, .depth = 2, .reserved_slots = 1}};
  requests.submit(1, written(1));
  auto batch = requests.next();
  CHECK_FALSE(requests.try_submit(2, written(2)));
  std::thread patient{[&] { requests.submit(2, written(2)); }};
  device.fail_record(0);
  device.fail_stream_synchronize(0);
  CHECK_THROWS_AS(batch.release_after(stream), device_fault);
  patient.join();
  CHECK(tags_of(requests.next()) == std::vector<std::uint64_t>{2});
}

TEST_CASE("a waiting submitter gets an error when the last slot is lost", "[serve]") {
  const gated_device device;
  auto stream = device.make_stream();
  gated_batcher requests{device, {.max_batch_size = 1, .depth = 1}};
  requests.submit(1, written(1));
  auto batch = requests.next();
  std::atomic<bool> was_reported{false};
  std::thread patient{[&] {
    try {
      requests.submit(2, written(2));
    } catch (const ps::leases_exhausted&) {
      was_reported = true;
    }
  }};
  device.fail_record(0);
  device.fail_stream_synchronize(0);
  CHECK_THROWS_AS(batch.release_after(stream), device_fault);
  patient.join();
  CHECK(was_reported);
}

TEST_CASE("requests wait for the copy out of their slot, or until their deadline", "[serve]") {
  const gated_device device;
  gated_batcher requests{device, {.max_batch_size = 1, .depth = 1}};
  auto stream = device.make_stream();
  device.hold_copies();
  ps::transfer feed{requests, stream};
  requests.submit(1, written(1));
  auto range = feed.epoch(0);
  auto it = range.begin();
  CHECK_FALSE(requests.try_submit(2, written(2)));
  CHECK_FALSE(requests.submit_for(1ms, 2, written(2)));
  std::thread patient{[&] { requests.submit(2, written(2)); }};
  std::thread limited{[&] {
    if (!requests.submit_for(1h, 3, written(3))) std::terminate();
  }};
  device.open_copies();
  std::vector<std::uint64_t> seen;
  for (; it != range.end(); ++it) {
    device.synchronize(stream);
    seen.push_back(it->tags().front());
    CHECK(is_as_tagged(*it));
    if (seen.size() == 3) requests.close();
  }
  patient.join();
  limited.join();
  CHECK(seen.size() == 3);
}

TEST_CASE("a device failure is thrown to the submitter that waits for it", "[serve]") {
  const gated_device device;
  gated_batcher requests{device, {.max_batch_size = 1, .depth = 1}};
  auto stream = device.make_stream();
  device.hold_copies();
  ps::transfer feed{requests, stream};
  requests.submit(1, written(1));
  auto range = feed.epoch(0);
  auto it = range.begin();
  device.fail_query(0);
  CHECK_THROWS_AS(requests.submit(2, written(2)), device_fault);
  device.open_copies();
  requests.submit(2, written(2));  // works as if nothing had failed
  requests.close();
  CHECK(it->tags().front() == 1);
  ++it;
  CHECK(it->tags().front() == 2);
  ++it;
  CHECK(it == range.end());
}

TEST_CASE("every submitted request is served or returned after any failure",
          "[serve][promise:honest-14]") {
  constexpr std::uint64_t each = 1500;
  constexpr std::uint64_t submitters = 3;
  const auto max = GENERATE(std::size_t{1}, std::size_t{8});
  const bool is_abandoned = GENERATE(false, true);
  const gated_device device;
  fates known{submitters * each};
  std::atomic<std::uint64_t> rejected{0};
  {
    gated_batcher requests{
        device, {.max_batch_size = max, .fill = 1us, .depth = 3, .on_unserved = known.noting()}};
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < submitters; ++i) {
      threads.emplace_back([&, i] {
        for (std::uint64_t tag = i * each; tag != (i + 1) * each; ++tag) {
          try {
            submit_share(requests, tag, 1);
          } catch (const ps::batcher_closed&) {
            ++known.returned[tag];
            ++rejected;
          }
        }
      });
    }
    // Each of two threads has a feed whose copies sometimes fail, and leaves its loops at random. A
    // third thread uses the leases.
    hand_over<ps::device_batch<request, gated_device>> ready{2};
    std::thread worker{[&] {
      while (const auto batch = ready.pop()) known.record_served(*batch);
    }};
    std::atomic<std::uint64_t> rounds{0};
    std::vector<std::thread> feeds;
    for (int i = 0; i < 2; ++i) {
      feeds.emplace_back([&, i] {
        ps::transfer feed{requests,
                          device.inline_stream(),
                          {.depth = 3, .on_slots_exhausted = ps::exhausted_action::wait}};
        while (!requests.at_end()) {
          const std::uint64_t round = ++rounds;
          if (round % 5 == 0) device.fail_copy(round % 3);
          if (is_abandoned && round == 10) requests.abandon();
          try {
            std::uint64_t left = round % 11;
            for (auto& batch : feed.epoch(0)) {
              if (i == 0) {
                known.record_served(batch);
              } else {
                ready.push(std::move(batch));
              }
              if (left-- == 0) break;
            }
          } catch (const device_fault&) {
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    requests.close();
    for (auto& thread : feeds) thread.join();
    ready.close();
    worker.join();
    const auto now = requests.stats();
    CHECK(now.accepted == now.handed_out + now.returned);
    CHECK(now.accepted + rejected == submitters * each);
    CHECK(now.waiting == 0);
  }
  CHECK(known.ended_once() == submitters * each);
  CHECK(known.wrong == 0);
  CHECK((known.abandoned + rejected != 0) == is_abandoned);
}
