// SPDX-License-Identifier: BSL-1.0
#include <penstock/transfer/transfer.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"
#include "support/ledger_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using numbered_record = numbered::record_type;
using widened = ps::record<ps::field<"label", std::uint64_t>, ps::field<"wide", double, ps::dyn>>;

// Ten samples of 8 floats and one label. Each field is rounded up to a multiple of 256 bytes.
constexpr std::size_t slot_bytes = 512 + 256;

auto labels_plus_1000() {
  return ps::on_stream<widened>(
      [](ps::const_batch_view<numbered_record> in, ps::batch_view<widened> out,
         ps::cpu_stream_ref stream) {
        stream.launch([in, out] {
          for (std::size_t i = 0; i < in.size(); ++i) {
            ps::get<"label">(out)(i) = ps::get<"label">(in)(i) + 1000;
          }
        });
      },
      ps::record_extents<widened>{{}, {100}});
}

/// Appends the labels of each batch to `seen` by work on the stream.
template <class Feed>
void collect(Feed& feed, ps::cpu_stream& stream, std::vector<std::uint64_t>& seen) {
  for (auto& batch : feed.epochs(0, 3)) {
    stream.launch([&seen, view = ps::get<"label">(batch)] {
      for (const auto label : view.flat()) seen.push_back(label);
    });
  }
  stream.synchronize();
}

}  // namespace

TEST_CASE("a transfer's footprint is known before it allocates, and equals what it allocates",
          "[transfer][promise:bounded-1]") {
  for (const std::size_t depth : {1U, 2U, 5U}) {
    const ps::loader_options options{.batch_size = 10, .workers = 1, .prefetch = 2};
    const auto need =
        ps::footprint<numbered_record>({}, options, ps::transfer_options{.depth = depth});
    const ledger_device device;
    auto stream = device.make_stream();
    ps::loader loader{numbered{100}, ps::sequential{}, device, options};
    const ps::transfer feed{loader, stream, {.depth = depth}};
    CHECK(need.host == loader.footprint());
    CHECK(need.device_slots == feed.depth());
    CHECK(need.device_slot_bytes == slot_bytes);
    CHECK(need.staging_bytes == 0);
    CHECK(need.device_bytes == depth * slot_bytes);
    CHECK(feed.device_bytes() == need.device_bytes);
    CHECK(device.device_bytes() == need.device_bytes);
    CHECK(device.pinned_bytes() == need.host.pinned_bytes());
  }
}

TEST_CASE("with a transform both input and output count in the footprint", "[transfer]") {
  const ps::loader_options options{.batch_size = 10, .workers = 1, .prefetch = 2};
  const auto transform = labels_plus_1000();
  const auto need = ps::footprint<numbered_record>({}, options, transform, {.depth = 4});
  const ledger_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, options};
  const ps::transfer feed{loader, stream, transform, {.depth = 4}};
  CHECK(need.staging_bytes == 2 * slot_bytes);
  CHECK(need.device_slot_bytes == 256 + 8192);  // 10 labels, and 10 x 100 doubles
  CHECK(need.device_bytes == 4 * need.device_slot_bytes + need.staging_bytes);
  CHECK(device.device_bytes() == need.device_bytes);
}

TEST_CASE("a transfer's footprint rejects what loader and transfer reject", "[transfer]") {
  const ps::loader_options load{.batch_size = 10};
  const auto option = [&](const ps::loader_options& options, const ps::transfer_options& feed) {
    try {
      return std::to_string(ps::footprint<numbered_record>({}, options, feed).device_bytes);
    } catch (const ps::option_error& problem) {
      return problem.option();
    }
  };
  CHECK(option(load, {.depth = 3}) == std::to_string(3 * slot_bytes));
  CHECK(option(load, {.depth = 0}) == "depth");
  CHECK(option({.batch_size = 0}, {.depth = 3}) == "batch_size");
  CHECK_THROWS_AS(ps::footprint<numbered_record>({}, load, labels_plus_1000(), {.depth = 0}),
                  ps::option_error);
  const auto huge = ps::footprint<numbered_record>(
      {}, {.batch_size = std::numeric_limits<std::size_t>::max() / 128}, {.depth = 1000});
  CHECK(huge.device_bytes == std::numeric_limits<std::size_t>::max());
}

TEST_CASE("a transfer of a loader with a single slot delivers all batches in order", "[transfer]") {
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const std::size_t depth : {1U, 3U}) {
      INFO("workers " << workers << ", depth " << depth);
      const ledger_device device;
      auto stream = device.make_stream();
      ps::loader loader{numbered{95},
                        ps::sequential{},
                        device,
                        {.batch_size = 10,
                         .workers = workers,
                         .prefetch = 7,
                         .memory = {.budget = ps::memory_budget::bytes(slot_bytes),
                                    .on_budget_exceeded = ps::budget_action::fewer_slots},
                         .tuning = {.chunk = 3}}};
      REQUIRE(loader.footprint().slot_count == 1);
      std::vector<std::uint64_t> seen;
      std::vector<std::uint64_t> expected;
      for (std::uint64_t i = 0; i < 3 * 95; ++i) expected.push_back(i % 95);
      {
        ps::transfer feed{loader, stream, {.depth = depth}};
        for (auto& batch : feed.epoch(0)) {
          if (batch.number() == 4) break;  // discards the batches that were copied ahead
        }
        collect(feed, stream, seen);
        CHECK(seen == expected);
      }
      seen.clear();
      for (auto& label : expected) label += 1000;
      ps::transfer feed{loader, stream, labels_plus_1000(), {.depth = depth}};
      collect(feed, stream, seen);
      CHECK(seen == expected);
    }
  }
}
