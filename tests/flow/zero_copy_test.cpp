// SPDX-License-Identifier: BSL-1.0
// Tests batches that the device reads directly from their host slots. The bits and the leases are
// the same as with a copy, and the feed uses no device memory.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/transfer.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/ledger_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using use = ps::zero_copy_use;
using record = numbered::record_type;
using widened = ps::record<ps::field<"label", std::uint64_t>, ps::field<"wide", double, 8>>;

/// The contents of a batch as a loop sees them.
struct copied_batch {
  std::uint64_t number;
  std::size_t valid;
  std::vector<std::uint64_t> labels;
  std::vector<double> values;
  std::vector<std::uint64_t> indices;
  friend bool operator==(const copied_batch&, const copied_batch&) = default;
};

template <ps::name Values, class Batch>
copied_batch seen_of(const Batch& batch) {
  copied_batch all{batch.number(), batch.valid(), labels_of(batch), {}, {}};
  for (const auto value : ps::get<Values>(batch).flat()) all.values.push_back(value);
  all.indices.assign(batch.indices().begin(), batch.indices().end());
  return all;
}

auto widen() {
  return ps::on_stream<widened>(
      [](ps::const_batch_view<record> in, ps::batch_view<widened> out, ps::cpu_stream_ref stream) {
        stream.launch([in, out] {
          for (std::size_t i = 0; i < in.size(); ++i) {
            ps::get<"label">(out)(i) = ps::get<"label">(in)(i);
            for (std::size_t k = 0; k < 8; ++k) {
              ps::get<"wide">(out)(i, k) = 0.5 + static_cast<double>(ps::get<"values">(in)(i, k));
            }
          }
        });
      });
}

ps::loader_options listing(std::size_t workers, std::size_t prefetch) {
  return {.batch_size = 10,
          .workers = workers,
          .prefetch = prefetch,
          .last_batch = ps::last_batch::pad,
          .instrumentation = {.indices = true}};
}

/// Returns the batches of three epochs. Work on a separate stream reads each batch and then
/// overwrites its memory.
std::vector<copied_batch> all_of(use zero_copy, std::size_t workers, std::size_t prefetch,
                                 std::size_t depth) {
  std::vector<copied_batch> all;
  ps::cpu_stream stream;
  ps::loader loader{numbered{95}, ps::shuffled{.seed = 5}, listing(workers, prefetch)};
  ps::transfer feed{loader, stream, {.depth = depth, .tuning = {.zero_copy = zero_copy}}};
  for (auto& batch : feed.epochs(0, 3)) {
    stream.launch(
        [&all, labels = ps::get<"label">(batch), values = ps::get<"values">(batch),
         number = batch.number(), valid = batch.valid(),
         indices = std::vector<std::uint64_t>(batch.indices().begin(), batch.indices().end())] {
          all.push_back({number,
                         valid,
                         {labels.flat().begin(), labels.flat().end()},
                         {values.flat().begin(), values.flat().end()},
                         indices});
          for (auto& label : labels.flat()) label = ~std::uint64_t{0};
        });
  }
  stream.synchronize();
  const auto stats = feed.stats();
  CHECK(stats.copies == (zero_copy == use::always ? 0U : 30U));
  CHECK(stats.bytes == stats.samples * (8 * sizeof(float) + sizeof(std::uint64_t)));
  CHECK(stats.zero_copies == (zero_copy == use::always ? 30U : 0U));
  CHECK(stats.step.batches == 30);
  return all;
}

}  // namespace

TEST_CASE("without a copy batches are bit-identical for any workers, prefetch and depth",
          "[flow][zero_copy][promise:exact-1]") {
  const auto expected = all_of(use::never, 1, 2, 3);
  REQUIRE(expected.size() == 30);
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const std::size_t prefetch : {0U, 1U, 5U}) {
      for (const std::size_t depth : {1U, 3U}) {
        INFO("workers " << workers << ", prefetch " << prefetch << ", depth " << depth);
        CHECK(all_of(use::always, workers, prefetch, depth) == expected);
      }
    }
  }
}

TEST_CASE("without a copy the loop body may be the step", "[flow][zero_copy]") {
  for (const std::size_t workers : {0U, 2U}) {
    std::vector<std::vector<copied_batch>> found;
    for (const auto zero_copy : {use::never, use::always}) {
      ps::loader loader{numbered{95}, ps::shuffled{.seed = 5}, listing(workers, 2)};
      ps::transfer feed{
          loader, {.instrumentation = {.time_device = true}, .tuning = {.zero_copy = zero_copy}}};
      auto& all = found.emplace_back();
      for (const auto& batch : feed.epochs(0, 20)) all.push_back(seen_of<"values">(batch));
      CHECK(feed.stats().device.batches != 0);
      CHECK((feed.stats().device.copy.count() == 0) == (zero_copy == use::always));
      for (const auto& batch : feed.replay({0, 0}, ps::batch_count{7}))
        CHECK(batch.number() < feed.depth());
    }
    CHECK(found[0] == found[1]);
  }
}

TEST_CASE("a transform reads the host slot and writes to a device slot", "[flow][zero_copy]") {
  for (const std::size_t workers : {0U, 2U}) {
    for (const std::size_t prefetch : {0U, 2U}) {
      std::vector<std::vector<copied_batch>> found;
      for (const auto zero_copy : {use::never, use::always}) {
        const ledger_device device;
        ps::loader loader{numbered{95}, ps::shuffled{.seed = 5}, device,
                          listing(workers, prefetch)};
        const ps::transfer_options options{.depth = 4, .tuning = {.zero_copy = zero_copy}};
        const auto need = ps::footprint<record>({}, loader.options(), widen(), options);
        ps::transfer feed{loader, device.inline_stream(), widen(), options};
        CHECK(feed.zero_copy() == (zero_copy == use::always));
        CHECK(feed.depth() == 4);
        CHECK(need.staging_bytes == (feed.zero_copy() ? 0 : 2 * need.host.slot_bytes));
        CHECK(feed.device_bytes() == need.device_bytes);
        CHECK(device.device_bytes() == need.device_bytes);
        auto& all = found.emplace_back();
        for (const auto& batch : feed.epochs(0, 3)) all.push_back(seen_of<"wide">(batch));
        CHECK(feed.stats().transforms == 30);
        CHECK(feed.stats().copies == (feed.zero_copy() ? 0U : 30U));
      }
      CHECK(found[0] == found[1]);
    }
  }
}

TEST_CASE("without a copy a footprint has no device memory, and no more slots than the loader",
          "[flow][zero_copy][promise:bounded-1]") {
  for (const std::size_t prefetch : {0U, 1U, 6U}) {
    const ledger_device device;
    auto stream = device.make_stream();
    ps::loader loader{numbered{95}, ps::sequential{}, device, listing(1, prefetch)};
    for (const ps::count_or_automatic depth : {ps::count_or_automatic{1}, {3}, ps::automatic}) {
      const ps::transfer_options options{.depth = depth, .tuning = {.zero_copy = use::always}};
      const auto need = ps::footprint<record>({}, loader.options(), options);
      ps::transfer feed{loader, stream, options};
      CHECK(feed.zero_copy());
      CHECK(need.device_bytes == 0);
      CHECK(feed.device_bytes() == 0);
      CHECK(device.device_bytes() == 0);
      if (depth != ps::automatic) CHECK(feed.depth() == need.device_slots);
      CHECK(need.device_slots <= need.host.slot_count);
      for (auto& batch : feed.epoch(0)) stream.launch([view = ps::get<"label">(batch)] {});
      CHECK(feed.depth() <= loader.footprint().slot_count);
      CHECK(feed.device_bytes() == 0);
    }
  }
}

TEST_CASE("kept leases hold host slots, and a loop without a slot reports it",
          "[flow][zero_copy][fault:consumers-2]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  const auto depth = GENERATE(ps::count_or_automatic{5}, ps::automatic);
  std::optional<ps::loader<numbered, ps::sequential, ps::cpu_device>> loader;
  loader.emplace(numbered{95}, ps::sequential{}, ps::cpu_device{}, listing(workers, 2));
  std::optional feed{ps::transfer{*loader, {.depth = depth, .tuning = {.zero_copy = use::always}}}};
  CHECK(feed->depth() == (depth == ps::automatic ? 2 : 3));
  std::vector<decltype(feed)::value_type::batch_type> kept;
  const auto keep = [&] {
    for (auto& batch : feed->epoch(0)) kept.push_back(std::move(batch));
  };
  CHECK_THROWS_AS(keep(), ps::leases_exhausted);
  CHECK(kept.size() == 3);
  CHECK(feed->depth() == 3);  // the depth equals the number of the loader's slots
  CHECK(loader->held() == 3);
  kept.erase(kept.begin() + 1);
  std::uint64_t seen = 0;
  for (const auto& batch : feed->epoch(1)) seen += labels_of(batch).front() == 10 * seen;
  CHECK(seen == 10);
  feed.reset();
  loader.reset();
  CHECK(labels_of(kept[0]).back() == 9);  // the memory is still valid
  CHECK(labels_of(kept[1]).back() == 29);
}

TEST_CASE("copies are omitted only if requested and possible",
          "[flow][zero_copy][promise:honest-7]") {
  // The CPU device behaves like a GPU and copies batches unless zero_copy is requested.
  ps::loader loader{numbered{95}, ps::sequential{}, listing(1, 2)};
  CHECK_FALSE(ps::transfer{loader}.zero_copy());

  /// A batch source with its own batch type.
  struct own_source {
    using record_type = record;
    using device_type = ps::cpu_device;
    struct batch_type {
      using record_type = record;
      using device_type = ps::cpu_device;
      std::unique_ptr<int> unused{};
      explicit operator bool() const { return false; }
      [[nodiscard]] const std::byte* data() const { return nullptr; }
      [[nodiscard]] ps::batch_info info() const { return {}; }
      void release_after(ps::cpu_stream_ref) {}
    };
    ps::batch_layout<record> places{{}, 10};
    [[nodiscard]] ps::cpu_device device() const { return {}; }
    [[nodiscard]] const ps::batch_layout<record>& layout() const { return places; }
    void start(const ps::batch_position&, std::uint64_t) {}
    batch_type next() { return {}; }
    batch_type try_next() { return {}; }
    void stop() noexcept {}
  };
  own_source own;
  CHECK_FALSE(ps::transfer{own}.zero_copy());
  const auto rejected = test::error_of<ps::option_error>(
      [&] { const ps::transfer feed{own, {.tuning = {.zero_copy = use::always}}}; });
  CHECK(rejected.option() == "tuning.zero_copy");
  CHECK(test::has(rejected.what(), "needs a source whose batches may outlive it"));
}

TEST_CASE("a loader with fewer host slots cannot replace the source of a feed",
          "[flow][zero_copy][fault:consumers-13]") {
  using any = ps::any_loader<record>;
  const auto made = [](std::size_t prefetch) {
    return any{ps::loader{numbered{95}, ps::sequential{}, listing(1, prefetch)}};
  };
  any loader = made(3);
  ps::transfer feed{loader, {.depth = 4, .tuning = {.zero_copy = use::always}}};
  const auto batches = [&] {
    std::size_t count = 0;
    for (auto& batch : feed.epoch(0)) count += batch ? 1U : 0U;
    return count;
  };
  CHECK(batches() == 10);
  loader = made(1);
  const auto rejected = test::error_of<ps::source_mismatch>([&] { batches(); });
  CHECK(test::has(rejected.what(), "fewer slots"));
  loader = made(5);
  CHECK(batches() == 10);
}

TEST_CASE("views that work on a stream holds outlive the feed and the loader, copied or not",
          "[flow][zero_copy]") {
  const auto requested = GENERATE(use::never, use::always);
  const ps::cpu_device device;
  auto stream = device.make_stream();
  ps::detail::waitable_counter gate{0};
  std::vector<std::uint64_t> seen;
  std::vector<std::string> others;
  {
    ps::loader loader{numbered{40}, ps::sequential{}, device, listing(1, 3)};
    {
      ps::transfer feed{loader, stream, {.tuning = {.zero_copy = requested}}};
      CHECK(feed.zero_copy() == (requested == use::always));
      stream.launch([&] { gate.wait([](std::uint32_t open) { return open != 0; }); });
      for (auto& batch : feed.epoch(0)) {
        stream.launch([&seen, all = batch.view()] {
          for (const auto label : ps::get<"label">(all).flat()) seen.push_back(label);
        });
        if (batch.number() == 1) break;
      }
      if (requested == use::never) gate.store(1);  // the feed's destructor would otherwise hang
    }
    // Overwrites the memory that the feed has freed before the work continues.
    for (std::size_t i = 0; i < 4096; ++i) others.emplace_back(16 + i % 1024, '\xff');
    gate.store(1);
  }
  stream.synchronize();
  CHECK(seen.size() == 20);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == i);
}
