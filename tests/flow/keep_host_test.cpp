// SPDX-License-Identifier: BSL-1.0
// Tests host slots that stay occupied until the device lease ends. The host slot has the same bits
// as the device batch, and is returned exactly once. A loop never holds so many host slots that it
// waits for itself.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock/transfer/any_transfer.hpp>
#include <penstock_ext/results/results.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/grouping.hpp"
#include "support/has.hpp"
#include "support/ledger_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using use = ps::zero_copy_use;
using record = numbered::record_type;
using doubled = ps::record<ps::field<"twice", std::uint64_t>>;

ps::loader_options tens(std::size_t workers, std::size_t prefetch) {
  return {.batch_size = 10, .workers = workers, .prefetch = prefetch};
}

/// Writes twice the label to a record of its own type.
auto double_labels() {
  return ps::on_stream<doubled>(
      [](ps::const_batch_view<record> in, ps::batch_view<doubled> out, ps::cpu_stream_ref stream) {
        stream.launch([from = ps::get<"label">(in), to = ps::get<"twice">(out)] {
          for (std::size_t i = 0; i < from.size(); ++i) to[i] = 2 * from[i];
        });
      });
}

/// Overwrites the labels of a batch, as an in-place step would.
void spoil(ps::batch_view<record> batch, ps::cpu_stream_ref stream) {
  stream.launch([labels = ps::get<"label">(batch).flat()] {
    for (auto& label : labels) label = ~std::uint64_t{0};
  });
}

/// Returns true if `host` is bit-identical to batch `number` of an in-order loader.
bool is_batch(const ps::const_batch_view<record>& host, std::uint64_t number) {
  bool same = true;
  for (std::size_t i = 0; i < host.size(); ++i) {
    const std::uint64_t index = 10 * number + i;
    same = same && ps::get<"label">(host)(i) == index;
    for (std::size_t k = 0; k < 8; ++k) {
      same = same && ps::get<"values">(host)(i, k) == static_cast<float>(index);
    }
  }
  return same;
}

/// A batch source that a program defines, with its own batch type.
struct own_source {
  using record_type = record;
  using device_type = ps::cpu_device;
  struct batch_type {
    using record_type = record;
    using device_type = ps::cpu_device;
    std::optional<ps::host_batch<record, ps::cpu_device>> of{};
    batch_type() = default;
    batch_type(batch_type&&) = default;
    batch_type& operator=(batch_type&&) = default;
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

}  // namespace

TEST_CASE("host() has the bits of the device batch for any workers, prefetch, depth and group",
          "[flow][keep_host]") {
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const std::size_t prefetch : {0U, 1U, 5U}) {
      for (const std::size_t depth : {1U, 2U, 5U}) {
        for (const auto zero_copy : {use::never, use::always}) {
          INFO("workers " << workers << ", prefetch " << prefetch << ", depth " << depth);
          ps::cpu_stream stream;
          const grouping<ps::cpu_device> device;
          ps::loader loader{numbered{95}, ps::sequential{}, device, tens(workers, prefetch)};
          device.grouped_bytes = 3 * loader.layout().bytes();
          ps::transfer feed{
              loader,
              stream,
              {.depth = depth, .keep_host = true, .tuning = {.zero_copy = zero_copy}}};
          std::size_t right = 0;
          for (auto& batch : feed.epochs(0, 3)) {
            bool is_same_on_device = false;
            stream.launch([&, view = std::as_const(batch).view(), number = batch.number()] {
              is_same_on_device = is_batch(view, number);
            });
            if (zero_copy == use::never) spoil(batch.view(), stream);
            right += is_batch(batch.host(), batch.number()) ? 1U : 0U;
            CHECK(batch.host().size() == batch.size());
            stream.synchronize();
            right += is_same_on_device ? 1U : 0U;
            CHECK((batch.host().slab() == std::as_const(batch).data()) == feed.zero_copy());
          }
          CHECK(right == 60);
          CHECK(loader.held() == 0);
        }
      }
    }
  }
}

TEST_CASE("host() of a named record returns the batch before the transform", "[flow][keep_host]") {
  for (const auto zero_copy : {use::never, use::always}) {
    for (const std::size_t workers : {0U, 2U}) {
      ps::loader loader{numbered{95}, ps::sequential{}, tens(workers, 2)};
      ps::transfer feed{loader,
                        ps::cpu_device{},
                        double_labels(),
                        {.depth = 2, .keep_host = true, .tuning = {.zero_copy = zero_copy}}};
      std::size_t right = 0;
      for (auto& batch : feed.epochs(0, 2)) {
        const auto host = batch.host<record>();
        right += is_batch(host, batch.number()) ? 1U : 0U;
        for (std::size_t i = 0; i < host.size(); ++i) {
          CHECK(ps::get<"twice">(batch)(i) == 2 * ps::get<"label">(host)(i));
        }
        CHECK_THROWS_AS(batch.host(), std::logic_error);
      }
      CHECK(right == 20);
      CHECK(loader.held() == 0);
    }
  }
}

TEST_CASE("host() rejects records that differ from the source in a name, a type or an extent",
          "[flow][keep_host]") {
  ps::loader loader{numbered{20}, ps::sequential{}, tens(1, 2)};
  ps::transfer feed{loader, {.keep_host = true}};
  const auto& batch = feed.next();
  CHECK(is_batch(batch.host(), 0));
  using label = ps::field<"label", std::uint64_t>;
  CHECK_THROWS_AS((batch.host<ps::record<ps::field<"values", float, 8>>>()), std::logic_error);
  CHECK_THROWS_AS((batch.host<ps::record<label, ps::field<"values", float, 8>>>()),
                  std::logic_error);
  CHECK_THROWS_AS((batch.host<ps::record<ps::field<"value", float, 8>, label>>()),
                  std::logic_error);
  CHECK_THROWS_AS((batch.host<ps::record<ps::field<"values", int, 8>, label>>()), std::logic_error);
  CHECK_THROWS_AS((batch.host<ps::record<ps::field<"values", float, 2, 4>, label>>()),
                  std::logic_error);
  CHECK_THROWS_AS((batch.host<ps::record<ps::field<"values", float, ps::dyn>, label>>()),
                  std::logic_error);
}

TEST_CASE("a host slot is not refilled while its lease is held",
          "[flow][keep_host][promise:race-free-1]") {
  for (const std::size_t workers : {0U, 2U}) {
    for (const bool transforms : {false, true}) {
      ps::loader loader{numbered{200}, ps::sequential{}, tens(workers, 2)};
      const ps::transfer_options options{.depth = 2, .keep_host = true};
      const auto run = [&](auto feed) {
        CHECK(feed.depth() == 2);
        std::optional<typename decltype(feed)::batch_type> kept;
        std::size_t seen = 0;
        for (auto& batch : feed.epochs(0, 2)) {
          if (batch.number() == 3 && !kept) kept.emplace(std::move(batch));
          if (kept) CHECK(is_batch(kept->template host<record>(), 3));
          ++seen;
        }
        CHECK(seen == 40);
        CHECK(loader.held() == 1);
        CHECK(is_batch(kept->template host<record>(), 3));
        kept.reset();
        CHECK(loader.held() == 0);
      };
      if (transforms) {
        run(ps::transfer{loader, ps::cpu_device{}, double_labels(), options});
      } else {
        run(ps::transfer{loader, options});
      }
    }
  }
}

TEST_CASE("every end of a lease returns its host slot", "[flow][keep_host]") {
  const std::size_t group = GENERATE(1U, 2U);
  ps::cpu_stream stream;
  ps::cpu_stream second;
  const grouping<ps::cpu_device> device;
  ps::loader loader{numbered{200}, ps::sequential{}, device, tens(1, 5)};
  device.grouped_bytes = group * loader.layout().bytes();
  std::optional feed{ps::transfer{loader, stream, {.depth = 4, .keep_host = true}}};
  // The loop ends early, while batches that were copied but not delivered remain.
  for (auto& batch : feed->epoch(0)) {
    CHECK(loader.held() >= 1);
    if (batch.number() == 4) break;
  }
  CHECK(loader.held() == 0);
  // The body moves a lease out and destroys it, optionally after use on a second stream.
  for (auto& batch : feed->epoch(0)) {
    auto own = std::move(batch);
    const std::size_t before = loader.held();
    if (own.number() % 2 == 1) own.also_used_on(second);
    spoil(own.view(), stream);
    CHECK(is_batch(own.host(), own.number()));
    own = {};
    CHECK(loader.held() == before - 1);
  }
  // Another thread destroys a lease.
  for (auto& batch : feed->epoch(0)) {
    CHECK(is_batch(batch.host(), batch.number()));
    std::thread{[own = std::move(batch)] { CHECK(is_batch(own.host(), own.number())); }}.join();
  }
  CHECK(loader.held() == 0);
  // Work on a stream destroys a lease.
  for (auto& batch : feed->epoch(0)) {
    stream.launch([own = std::make_shared<std::remove_cvref_t<decltype(batch)>>(
                       std::move(batch))]() mutable { own.reset(); });
    stream.synchronize();
  }
  CHECK(loader.held() == 0);
  // The loop body throws.
  const auto throwing = [&] {
    for (auto& batch : feed->epoch(0)) {
      if (batch.number() == 5) throw 5;
    }
  };
  CHECK_THROWS_AS(throwing(), int);
  CHECK(loader.held() == 0);
  // A call of `reset` ends a loop that uses `next`.
  for (int i = 0; i < 3; ++i) CHECK(is_batch(feed->next().host(), static_cast<std::uint64_t>(i)));
  feed->reset();
  CHECK(loader.held() == 0);
  // A replay delivers each lease repeatedly.
  for (const auto& batch : feed->replay({0, 0}, ps::batch_count{9})) {
    CHECK(batch.host().size() == 10);
  }
  CHECK(loader.held() == 0);
  // The feed is destroyed before the lease, and the lease before the loader.
  auto last = std::move(feed->next());
  feed.reset();
  CHECK(loader.held() == 1);
  CHECK(is_batch(last.host(), 0));
  last = {};
  CHECK(loader.held() == 0);
}

TEST_CASE("host() of a lease is valid after the feed and the loader have ended",
          "[flow][keep_host]") {
  std::optional loader{ps::loader{numbered{100}, ps::sequential{}, tens(2, 3)}};
  std::optional feed{ps::transfer{*loader, {.keep_host = true}}};
  auto kept = std::move(feed->next());
  feed.reset();
  loader.reset();
  CHECK(is_batch(kept.host(), 0));
}

TEST_CASE("a feed never waits for a host slot that it keeps itself",
          "[flow][keep_host][promise:bounded-1]") {
  for (const auto on_slots_exhausted : {ps::exhausted_action::fail, ps::exhausted_action::wait}) {
    for (const std::size_t workers : {0U, 1U, 2U}) {
      for (const std::size_t prefetch : {0U, 1U, 3U}) {
        for (const ps::count_or_automatic depth :
             {ps::count_or_automatic{1}, {3}, {7}, ps::automatic}) {
          const grouping<ledger_device> device;
          auto how = tens(workers, prefetch);
          how.on_slots_exhausted = on_slots_exhausted;
          ps::loader loader{numbered{200}, ps::sequential{}, device, how};
          device.grouped_bytes = 4 * loader.layout().bytes();
          const ps::transfer_options options{
              .depth = depth, .on_slots_exhausted = on_slots_exhausted, .keep_host = true};
          const auto need = ps::footprint<record>({}, loader.options(), options);
          ps::transfer feed{loader, device.inline_stream(), options};
          std::size_t right = 0;
          for (const auto& batch : feed.epochs(0, 2)) {
            right += is_batch(batch.host(), batch.number()) ? 1U : 0U;
          }
          CHECK(right == 40);
          const std::size_t slots = loader.footprint().slot_count;
          CHECK(need.device_slots <= slots);
          CHECK(feed.depth() <= need.device_slots);
          CHECK(feed.device_bytes() <= need.device_bytes);
          CHECK(device.device_bytes() == feed.device_bytes());
          if (depth != ps::automatic) CHECK(feed.device_bytes() == need.device_bytes);
          // Retained leases exhaust the device slots first.
          if (on_slots_exhausted == ps::exhausted_action::wait) continue;
          std::vector<decltype(feed)::batch_type> kept;
          const auto keep = [&] {
            for (auto& batch : feed.epoch(0)) kept.push_back(std::move(batch));
          };
          const auto rejected = test::error_of<ps::leases_exhausted>(keep);
          CHECK(test::has(rejected.what(), "device slots"));
          CHECK(loader.held() == kept.size());
          for (const auto& batch : kept) CHECK(is_batch(batch.host(), batch.number()));
        }
      }
    }
  }
}

TEST_CASE("with a transform a kept host slot counts as well", "[flow][keep_host]") {
  const ledger_device device;
  ps::loader loader{numbered{95}, ps::sequential{}, device, tens(1, 1)};
  const ps::transfer_options options{.depth = 5, .keep_host = true};
  const auto need = ps::footprint<record>({}, loader.options(), double_labels(), options);
  ps::transfer feed{loader, device.inline_stream(), double_labels(), options};
  CHECK(feed.depth() == 2);
  CHECK(need.device_slots == 2);
  CHECK(feed.device_bytes() == need.device_bytes);
  std::size_t count = 0;
  for (const auto& batch : feed.epoch(0)) count += is_batch(batch.host<record>(), batch.number());
  CHECK(count == 10);
}

TEST_CASE("host() without the option throws an error that names it", "[flow][keep_host]") {
  for (const auto zero_copy : {use::never, use::always}) {
    ps::loader loader{numbered{20}, ps::sequential{}, tens(1, 2)};
    ps::transfer feed{loader, {.tuning = {.zero_copy = zero_copy}}};
    const auto& batch = feed.next();
    const auto rejected =
        test::error_of<ps::option_error>([&] { static_cast<void>(batch.host()); });
    CHECK(rejected.option() == "keep_host");
  }
}

TEST_CASE("keep_host requires a source whose batches may outlive it", "[flow][keep_host]") {
  own_source own;
  const auto rejected =
      test::error_of<ps::option_error>([&] { const ps::transfer feed{own, {.keep_host = true}}; });
  CHECK(rejected.option() == "keep_host");
  CHECK(test::has(rejected.what(), "a source whose batches may outlive it"));
}

TEST_CASE("a loader with fewer host slots can't follow one whose host slots are kept",
          "[flow][keep_host]") {
  using any = ps::any_loader<record>;
  const auto made = [](std::size_t prefetch) {
    return any{ps::loader{numbered{95}, ps::sequential{}, tens(1, prefetch)}};
  };
  any loader = made(3);
  ps::transfer feed{loader, {.depth = 4, .keep_host = true}};
  CHECK(samples_in(feed.epoch(0)) == 95);
  loader = made(1);
  const auto rejected = test::error_of<ps::source_mismatch>([&] { samples_in(feed.epoch(0)); });
  CHECK(test::has(rejected.what(), "fewer slots"));
  loader = made(5);
  CHECK(samples_in(feed.epoch(0)) == 95);
}

TEST_CASE("host() works through any_transfer, and beside results", "[flow][keep_host]") {
  const ps::cpu_device device;
  std::size_t right = 0;
  {
    ps::any_transfer<record> any{
        ps::transfer{ps::loader{numbered{95}, ps::sequential{}, tens(1, 3)}, {.keep_host = true}}};
    for (auto& batch : any.epoch(0)) right += is_batch(batch.host(), batch.number()) ? 1U : 0U;
  }
  CHECK(right == 10);
  ps::loader loader{numbered{95}, ps::sequential{}, tens(1, 3)};
  ps::transfer feed{loader, {.keep_host = true}};
  std::size_t results_right = 0;
  ps::results<doubled> out{device, 10, [&](const auto& done) {
                             for (std::size_t i = 0; i < done.size(); ++i) {
                               results_right +=
                                   ps::get<"twice">(done)(i) == 2 * (10 * done.number() + i);
                             }
                           }};
  for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
    const auto host = batch.host();
    for (std::size_t i = 0; i < host.size(); ++i) {
      ps::get<"twice">(slot)(i) = 2 * ps::get<"label">(host)(i);
    }
  }
  out.finish();
  CHECK(results_right == 95);
  CHECK(loader.held() == 0);
}

TEST_CASE("a transform that throws returns the host slot of its batch", "[flow][keep_host]") {
  struct failing {
    using record_type = doubled;
    int* calls;
    void enqueue(ps::const_batch_view<record>, ps::batch_view<doubled>, ps::cpu_stream_ref) const {
      if (++*calls % 5 == 0) throw bad_sample(5);
    }
  };
  const std::size_t group = GENERATE(1U, 2U);
  int calls = 0;
  ps::cpu_stream stream;
  const grouping<ps::cpu_device> device;
  ps::loader loader{numbered{200}, ps::sequential{}, device, tens(1, 5)};
  device.grouped_bytes = group * loader.layout().bytes();
  ps::transfer feed{loader, stream, failing{&calls}, {.depth = 4, .keep_host = true}};
  for (int round = 0; round < 8; ++round) {
    std::uint64_t right = 0;
    std::uint64_t seen = 0;
    const auto loop = [&] {
      for (const auto& batch : feed.epoch(0)) {
        right += is_batch(batch.host<record>(), batch.number()) ? 1U : 0U;
        ++seen;
      }
    };
    CHECK_THROWS_AS(loop(), bad_sample);
    CHECK(right == seen);
    CHECK(loader.held() == 0);
  }
}
