// SPDX-License-Identifier: BSL-1.0
// Counts allocations of the whole program with operator new. In steady state, delivering a batch
// allocates nothing. Construction, user code and exceptions may allocate. A loader or feed never
// uses more memory than its footprint states.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/map_batch.hpp>
#include <penstock_ext/results/results.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/ledger_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using digit =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
using floats = ps::record<ps::field<"image", float, 28, 28>, ps::field<"label", std::int32_t>>;

// Returns the number of allocations from the second batch of the first epoch to the end of the
// second epoch.
template <class Range>
std::size_t allocated_in(Range range) {
  auto it = range.begin();
  ++it;
  const std::size_t before = test::allocations.load();
  std::uint64_t sum = 0;
  for (; it != range.end(); ++it) sum += it->size();
  const std::size_t after = test::allocations.load();
  REQUIRE(sum > 0);
  return after - before;
}

}  // namespace

TEST_CASE("the path of a batch allocates nothing", "[flow][promise:bounded-2]") {
  if (ps::detail::checked) return;  // a checked build records each lease
  const std::vector<std::uint8_t> images(500 * 784, 7);
  const std::vector<std::uint8_t> labels(500, 1);
  const auto warp = [](ps::const_sample<digit> in, ps::sample<floats> out,
                       ps::sample_generator& rng) {
    ps::get<"image">(out)(0, 0) = ps::uniform(rng, 0.0F, 1.0F);
    ps::get<"label">(out) = ps::get<"label">(in);
  };
  const auto in_place = [](ps::sample<floats> sample) { ps::get<"label">(sample) += 1; };
  const auto whole = [](ps::batch_view<floats> all, ps::sample_generator& rng) {
    ps::get<"label">(all)(0) = static_cast<std::int32_t>(rng() >> 1U);
  };

  const std::size_t before = test::allocations.load();
  REQUIRE(std::vector<int>(3).size() == 3);
  REQUIRE(test::allocations.load() > before);  // checks that the counter works

  ps::trace_recorder recorder;
  for (const std::size_t workers : {0U, 1U, 2U, 4U}) {
    for (const bool in_order : {true, false}) {
      // Runs with and without a trace, but not in every combination of the options.
      ps::trace_recorder* const trace = in_order == (workers < 2) ? &recorder : nullptr;
      INFO("workers " << workers << ", in order " << in_order << ", traced " << (trace != nullptr));
      ps::cpu_device device;
      auto stream = device.make_stream();
      ps::loader loader{ps::memory_dataset<digit>{images, labels} | ps::map<floats>(warp) |
                            ps::map(in_place) | ps::map_batch(whole),
                        ps::shuffled{.seed = 1},
                        device,
                        {.batch_size = 32,
                         .workers = workers,
                         .in_order = in_order,
                         .instrumentation = {.indices = in_order, .trace = trace},
                         .tuning = {.chunk = 5}}};
      CHECK(allocated_in(loader.epochs(0, 2)) == 0);
      ps::transfer feed{loader, stream, {.instrumentation = {.trace = trace}}};
      CHECK(allocated_in(feed.epochs(0, 2)) == 0);
      ps::transfer inline_feed{
          loader, device.inline_stream(), {.depth = 1, .instrumentation = {.trace = trace}}};
      CHECK(allocated_in(inline_feed.epochs(0, 2)) == 0);
    }
  }
}

TEST_CASE("results allocate nothing after construction", "[flow][promise:bounded-14]") {
  if (ps::detail::checked) return;
  using score = ps::record<ps::field<"score", float>>;
  ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{320},
                    ps::sequential{},
                    device,
                    {.batch_size = 32, .workers = 1, .instrumentation = {.indices = true}}};
  ps::transfer feed{loader, stream};
  CHECK(allocated_in(feed.epochs(0, 2)) == 0);
  const std::size_t workers = GENERATE(std::size_t{1}, std::size_t{3});
  std::atomic<std::size_t> indices{0};
  std::size_t allocated = 0;
  {
    ps::results<score> out{device,
                           stream,
                           32,
                           [&](const auto& done) { indices += done.indices().size(); },
                           {.workers = workers}};
    // The measured range includes the first batch, and its batch numbers are too long for a short
    // string.
    auto range = feed.batches({1'000'000'000, 0}, ps::until_epoch{1'000'000'002});
    auto it = range.begin();
    const std::size_t before = test::allocations.load();
    for (; it != range.end(); ++it) out.acquire(*it).send();
    out.finish();
    for (std::uint64_t i = 0; i < 1000; ++i) {
      out.acquire(ps::batch_info{.batch = 1'000'000'000 + i, .size = 32, .valid_size = 32}).send();
    }
    out.finish();
    allocated = test::allocations.load() - before;
  }
  CHECK(indices == 2 * 320);
  CHECK(allocated == 0);
}

TEST_CASE("a loader with automatic options allocates nothing in steady state",
          "[flow][promise:bounded-4]") {
  if (ps::detail::checked) return;  // a checked build records leases
  const ps::loader_options options{.batch_size = 10,
                                   .workers = ps::automatic,
                                   .prefetch = ps::automatic,
                                   .tuning = {.max_workers = 4}};
  ps::loader loader{numbered{1000}, ps::shuffled{.seed = 1}, options};
  CHECK(allocated_in(loader.epochs(0, 5)) == 0);
  ps::transfer feed{loader};
  CHECK(allocated_in(feed.epochs(0, 5)) == 0);
}

TEST_CASE("slabs equal the footprint, and all other allocations stay under its bound", "[flow]") {
  if (ps::detail::checked) return;  // a checked build records leases
  using count = ps::count_or_automatic;
  const auto workers = GENERATE(count{0}, count{1}, count{16}, ps::automatic);
  const auto prefetch = GENERATE(count{0}, count{1}, count{100}, ps::automatic);
  const auto batch_size = GENERATE(std::size_t{1}, std::size_t{100});
  const auto then = GENERATE(ps::error_action::rethrow, ps::error_action::skip);
  INFO("workers " << workers.value() << ", prefetch " << prefetch.value() << ", batches of "
                  << batch_size << (then == ps::error_action::skip ? ", skips" : ""));
  const ps::loader_options options{
      .batch_size = batch_size,
      .workers = workers,
      .prefetch = prefetch,
      .faults = {.on_error = {.action = then}},
      .instrumentation = {.indices = batch_size == 100},
      .tuning = {.max_workers = workers == ps::automatic ? 16 : ps::automatic}};
  const auto unchanged = ps::on_stream<numbered::record_type>(
      [](ps::const_batch_view<numbered::record_type>, ps::batch_view<numbered::record_type>,
         ps::cpu_stream_ref) {});
  const auto need =
      ps::footprint<numbered::record_type>({}, options, unchanged, ps::transfer_options{});
  numbered data{500};
  data.state->bad = 123;
  const ledger_device device;
  const auto run = [](auto epoch) {
    try {
      for (auto& batch : epoch) static_cast<void>(batch);
    } catch (const bad_sample&) {
    }
  };

  // Avoids Catch2 macros here, because they would allocate.
  const std::size_t before = test::live_bytes;
  std::size_t stream_bytes = 0;
  {
    const auto stream = device.make_stream();
    stream_bytes = test::live_bytes - before;
  }
  test::peak_bytes = before;
  std::optional<ps::loader<numbered, ps::shuffled, ledger_device>> loader;
  loader.emplace(data, ps::shuffled{.seed = 1}, device, options);
  for (int turn = 0; turn < 2; ++turn) run(loader->epoch(0));
  const auto taken = loader->footprint();
  const std::size_t host_bytes = device.pinned_bytes();
  const std::size_t of_loader = test::peak_bytes - before;
  const std::size_t between = test::live_bytes;
  test::peak_bytes = between;
  std::size_t device_bytes = 0;
  {
    ps::transfer feed{*loader, device.inline_stream(), unchanged};
    run(feed.epoch(0));
    device_bytes = device.device_bytes();
  }
  const std::size_t of_feed = test::peak_bytes - between;
  loader.reset();
  const std::size_t after = test::live_bytes;

  CHECK(taken == need.host);
  CHECK(host_bytes == need.host.bytes);
  CHECK(of_loader > 0);
  CHECK(of_loader <= need.host.bookkeeping);
  CHECK(device_bytes == need.device_bytes);
  CHECK(of_feed > stream_bytes);
  // a stream for copies and a stream for transforms.
  CHECK(of_feed <= need.bookkeeping + 2 * stream_bytes);
  CHECK(device.requested() == 4);  // host slots, device slots, two places of arrival
  CHECK(after == before);
}
