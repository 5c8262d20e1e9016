// SPDX-License-Identifier: BSL-1.0
// Tests reads that hang. The loader reports a hanging read, and abandons it after the timeout. If
// the loader owns the dataset, it detaches the thread.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/map_batch.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/hanging.hpp"
#include "support/numbered.hpp"
#include "support/threads.hpp"

namespace ps = penstock;
using std::chrono::milliseconds;

namespace {

/// A collector of a loader's stall reports.
class reports {
 public:
  [[nodiscard]] std::function<void(const ps::stall_report&)> sink() {
    return [this](const ps::stall_report& read) {
      {
        const std::lock_guard lock{mutex_};
        all_.push_back(read);
      }
      count_.advance();
    };
  }
  [[nodiscard]] std::vector<ps::stall_report> wait_for(std::uint32_t count) {
    count_.wait([count](std::uint32_t now) { return now >= count; });
    const std::lock_guard lock{mutex_};
    return all_;
  }
  [[nodiscard]] std::size_t count() const { return count_.load(); }

 private:
  std::mutex mutex_;
  std::vector<ps::stall_report> all_;
  ps::detail::waitable_counter count_;
};

// A stall threshold that only hanging reads exceed, even on a busy machine.
constexpr milliseconds soon{300};
// A stall threshold above any scheduling delay on a busy machine, for tests in which a report of
// another read is an error.
constexpr milliseconds late{1500};
constexpr milliseconds never{std::chrono::hours{24}};

/// A dataset with one value per sample. Some calls of `length` block until `release` is called.
struct hanging_length {
  using record_type = ps::record<ps::field<"values", std::uint8_t, ps::ragged>>;
  hanging inner;

  [[nodiscard]] std::uint64_t size() const { return inner.size(); }
  [[nodiscard]] static ps::record_extents<record_type> extents() { return {{.longest = 1}}; }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const {
    if (std::find(inner.bad.begin(), inner.bad.end(), index) != inner.bad.end()) {
      inner.life->around->gate.wait([](std::uint32_t closed) { return closed == 0; });
    }
    return 1;
  }
  static void read(std::uint64_t index, ps::sample<record_type> out) {
    ps::get<"values">(out).flat()[0] = static_cast<std::uint8_t>(index);
  }
};

}  // namespace

TEST_CASE("a hanging read is reported while it hangs, with its sample", "[flow][fault:hangs-1]") {
  const auto around = std::make_shared<hanging::outside>();
  reports seen;
  const std::size_t workers = GENERATE(0U, 1U, 3U);
  ps::loader loader{hanging{around, 40, {13}},
                    ps::sequential{},
                    {.batch_size = 8,
                     .workers = workers,
                     .faults = {.stall_warning = soon, .on_stall = seen.sink()},
                     .tuning = {.chunk = 4}}};
  std::thread rescuer{[&] {
    // The hanging read is reported repeatedly. Any other read is reported at most once, if its
    // thread was delayed.
    std::uint32_t count = 1;
    while (count < 4 && seen.wait_for(count)[count - 1].where.sample != 13) ++count;
    const auto found = seen.wait_for(count)[count - 1];
    CHECK(found.where.stage == "read");
    CHECK(found.where.epoch == 2);
    CHECK(found.where.batch == 1);
    CHECK(found.where.position == 5);
    CHECK(found.where.sample == 13);
    CHECK(found.where.exact);
    CHECK(found.worker < (std::max)(workers, std::size_t{1}));
    CHECK(found.elapsed >= soon);
    CHECK_FALSE(found.blocks_destruction);
    CHECK_THAT(found.str(), Catch::Matchers::Contains("sample 13 (position 5 of the batch)"));
    around->release();
  }};
  CHECK(samples_in(loader.epoch(2)) == 40);  // no sample is lost
  rescuer.join();
  CHECK(samples_in(loader.epoch(3)) == 40);
}

TEST_CASE("a hanging read is reported again each time its duration has doubled",
          "[flow][fault:hangs-1]") {
  const auto around = std::make_shared<hanging::outside>();
  reports seen;
  const auto note = seen.sink();
  ps::loader loader{
      hanging{around, 1, {0}},  // no other read exists, so every report concerns this read
      ps::sequential{},
      {.batch_size = 1,
       .workers = 1,
       .faults = {.stall_warning = milliseconds{5}, .on_stall = [&](const ps::stall_report& read) {
                    // Any other report concerns a delayed thread.
                    if (read.where.stage != "order") note(read);
                  }}}};
  loader.start({0, 0}, 1);
  const auto found = seen.wait_for(4);
  for (std::size_t i = 1; i < 4; ++i) {
    CHECK(found[i].where.sample == 0);
    CHECK(found[i].elapsed >= 2 * found[i - 1].elapsed);
  }
  around->release();
  CHECK(loader.next().size() == 1);
  loader.stop();
}

TEST_CASE("without a callback, a hanging read is reported on stderr", "[flow][fault:hangs-1]") {
  const auto around = std::make_shared<hanging::outside>();
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const int real = ::dup(STDERR_FILENO);
  REQUIRE(::dup2(ends[1], STDERR_FILENO) >= 0);
  std::string line;
  {
    ps::loader loader{hanging{around, 8, {3}},
                      ps::sequential{},
                      {.batch_size = 8, .workers = 1, .faults = {.stall_warning = late}}};
    loader.start({0, 0}, 1);
    for (char letter = 0; ::read(ends[0], &letter, 1) == 1 && letter != '\n';) line += letter;
    around->release();
    loader.stop();
  }
  ::dup2(real, STDERR_FILENO);
  for (const int file : {real, ends[0], ends[1]}) ::close(file);
  CHECK_THAT(line, Catch::Matchers::StartsWith("penstock: a read has not returned after "));
  CHECK_THAT(line, Catch::Matchers::Contains("epoch 0, batch 0, sample 3 (position 3"));
}

TEST_CASE("a long map_batch call is not a hanging read", "[flow][fault:hangs-2]") {
  const auto around = std::make_shared<hanging::outside>();
  reports seen;
  ps::detail::waitable_counter mapping;
  ps::detail::waitable_counter gate;
  const auto open = [](std::uint32_t times) { return times != 0; };
  const auto note = seen.sink();
  // The first batch is complete and inside `map_batch` when the read of the second batch hangs.
  ps::loader loader{hanging{around, 16, {8}} | ps::map_batch([&](auto) {
                      mapping.advance();
                      gate.wait(open);
                    }),
                    ps::sequential{},
                    {.batch_size = 8,
                     .workers = 2,
                     .faults = {.stall_warning = milliseconds{20},
                                .on_stall =
                                    [&](const ps::stall_report& read) {
                                      if (mapping.load() != 0) note(read);
                                    }},
                     .tuning = {.chunk = 8}}};
  loader.start({0, 0}, 1);
  mapping.wait(open);
  // The third report shows that the read has been blocked for at least 80 ms.
  std::size_t of_the_first = 0;
  for (const auto& read : seen.wait_for(4)) of_the_first += read.where.batch == 0 ? 1 : 0;
  CHECK(of_the_first <= 1);  // a report may have begun just before the read ended
  gate.advance();
  around->release();
  CHECK(loader.next().size() == 8);
  CHECK(loader.next().size() == 8);
  loader.stop();
}

TEST_CASE("an exception of the stall callback reaches the consumer", "[flow]") {
  const auto around = std::make_shared<hanging::outside>();
  int reports = 0;
  ps::loader loader{hanging{around, 8, {3}},
                    ps::sequential{},
                    {.batch_size = 8,
                     .workers = 1,
                     .faults = {.stall_warning = late, .on_stall = [&](const ps::stall_report&) {
                                  // The first report has already ended the range.
                                  if (++reports == 2) around->release();
                                  throw std::domain_error("enough");
                                }}}};
  CHECK_THROWS_AS(samples_in(loader.epoch(0)), std::domain_error);
  REQUIRE(loader.last_failure());
  CHECK(loader.last_failure()->sample == 3);
}

TEST_CASE("after the timeout the consumer gets an error, and the loader ends without the reader",
          "[flow][promise:bounded-7][fault:hangs-2]") {
  const auto around = std::make_shared<hanging::outside>();
  const auto threads = present_threads();
  {
    ps::loader loader{hanging{around, 40, {13}} | ps::subset(0, 40),
                      ps::sequential{},
                      {.batch_size = 8,
                       .workers = 2,
                       .prefetch = 2,
                       .faults = {.timeout = late},
                       .tuning = {.chunk = 4}}};
    std::optional<decltype(loader)::batch_type> kept;
    const auto error = test::error_of<ps::read_timeout>([&] {
      for (auto& batch : loader.epoch(0)) kept = std::move(batch);
    });
    CHECK(error.read().where.sample == 13);
    CHECK(error.read().elapsed >= late);
    CHECK_THAT(error.what(), Catch::Matchers::Contains("sample 13 (position 5 of the batch)"));
    REQUIRE(loader.last_failure());
    CHECK(loader.last_failure()->batch == 1);
    CHECK(loader.last_failure()->sample == 13);
    CHECK(loader.abandoned_readers() == 1);
    if (kept) CHECK(labels_of(*kept).front() == 0);  // leases stay valid
    CHECK_THROWS_AS(samples_in(loader.epoch(0)), ps::read_timeout);
    CHECK(around->gone.load() == 0);
  }
  // The loader is gone, but the read still hangs and its objects still exist.
  CHECK(threads_added_become(threads, 1));
  CHECK(around->gone.load() == 0);
  around->release();
  around->wait_until_gone();
  CHECK(threads_added_become(threads, 0));
}

TEST_CASE("an abandoned reader destroys its state on its own thread", "[flow][fault:hangs-2]") {
  const auto around = std::make_shared<hanging::outside>();
  std::weak_ptr<hanging::life_of> data;
  std::optional<ps::memory_budget> budget = ps::memory_budget::bytes(1 << 20);
  {
    hanging source{around, 8, {7}};
    data = source.life;
    ps::loader loader{std::move(source),
                      ps::sequential{},
                      {.batch_size = 8,
                       .workers = 1,
                       .prefetch = 1,
                       .faults = {.timeout = late},
                       .memory = {.budget = budget}}};
    CHECK_THROWS_AS(samples_in(loader.epoch(0)), ps::read_timeout);
  }
  CHECK_FALSE(data.expired());
  CHECK(budget->used() != 0);  // the slots still exist
  around->release();
  around->wait_until_gone();
  CHECK(data.expired());
  CHECK(around->destroyer.load() == around->last_reader.load());
  CHECK(around->destroyer.load() != std::this_thread::get_id());
  while (budget->used() != 0) std::this_thread::yield();
}

TEST_CASE("the loader survives if all readers hang", "[flow][fault:hangs-2]") {
  const auto around = std::make_shared<hanging::outside>();
  {
    ps::loader loader{
        hanging{around, 8, {0, 1, 2, 3}},
        ps::sequential{},
        {.batch_size = 4, .workers = 3, .faults = {.timeout = late}, .tuning = {.chunk = 1}}};
    loader.start({0, 0}, 1);
    around->wait_until_hung(3);
    CHECK_THROWS_AS(loader.next(), ps::read_timeout);
    CHECK(loader.abandoned_readers() == 3);
  }
  around->release();
  around->wait_until_gone();
}

TEST_CASE("a hanging length() is reported while it hangs, with its batch",
          "[flow][fault:hangs-2]") {
  const std::size_t workers = GENERATE(0U, 2U);
  const auto around = std::make_shared<hanging::outside>();
  std::optional<ps::stall_report> seen;
  ps::loader loader{hanging_length{{around, 40, {13}}},
                    ps::sequential{},
                    {.batch_size = 8,
                     .workers = workers,
                     .faults = {.stall_warning = soon, .on_stall = [&](const ps::stall_report& it) {
                                  // Any other report concerns a delayed thread.
                                  if (it.where.stage != "lengths") return;
                                  if (!seen) seen = it;
                                  around->release();
                                }}}};
  CHECK(samples_in(loader.epoch(2)) == 40);
  REQUIRE(seen);
  CHECK_THAT(seen->str(), Catch::Matchers::StartsWith(
                              "penstock: the length() of a sample has not returned after ") &&
                              Catch::Matchers::EndsWith("stage lengths, epoch 2, batch 1"));
}

TEST_CASE("after the timeout a length() call is abandoned, and a loader that owns its dataset ends",
          "[flow][promise:bounded-7][fault:hangs-2]") {
  const auto around = std::make_shared<hanging::outside>();
  const auto threads = present_threads();
  {
    ps::loader loader{hanging_length{{around, 40, {13}}},
                      ps::sequential{},
                      {.batch_size = 8, .workers = 2, .faults = {.timeout = late}}};
    CHECK_THROWS_AS(samples_in(loader.epoch(0)), ps::read_timeout);
    REQUIRE(loader.last_failure());
    CHECK(loader.last_failure()->str() == "stage lengths, epoch 0, batch 1");
    CHECK(loader.abandoned_readers() == 1);
  }
  CHECK(threads_added_become(threads, 1));
  around->release();
  around->wait_until_gone();
  CHECK(threads_added_become(threads, 0));
}

TEST_CASE("a loop that is left while a read hangs ends at the timeout",
          "[flow][promise:bounded-7]") {
  const auto around = std::make_shared<hanging::outside>();
  {
    ps::loader loader{hanging{around, 40, {13}},
                      ps::sequential{},
                      {.batch_size = 4, .workers = 1, .prefetch = 8, .faults = {.timeout = late}}};
    for (auto& batch : loader.epoch(0)) {
      CHECK(batch.number() == 0);
      around->wait_until_hung(1);
      break;
    }
    CHECK(loader.abandoned_readers() == 1);
  }
  around->release();
  around->wait_until_gone();
}

TEST_CASE("a stall callback may query the loader's state and failures", "[flow]") {
  const auto around = std::make_shared<hanging::outside>();
  std::optional<ps::loader<hanging, ps::sequential>> loader;
  std::uint64_t right = 0;
  loader.emplace(hanging{around, 40, {13}}, ps::sequential{},
                 ps::loader_options{
                     .batch_size = 8,
                     .workers = 1,
                     .faults = {.stall_warning = soon, .on_stall = [&](const ps::stall_report&) {
                                  const bool is_right =
                                      loader->state().epoch == 0 && loader->state().batch <= 1 &&
                                      !loader->last_failure() && loader->abandoned_readers() == 0;
                                  right += is_right ? 1 : 0;
                                  around->release();
                                }}});
  CHECK(samples_in(loader->epoch(0)) == 40);
  loader.reset();
  CHECK(right >= 1);
}

TEST_CASE("a transfer's loop ends at the timeout too", "[flow][fault:hangs-2]") {
  const auto around = std::make_shared<hanging::outside>();
  const ps::cpu_device device;
  auto stream = device.make_stream();
  {
    ps::transfer feed{ps::loader{hanging{around, 40, {33}},
                                 ps::sequential{},
                                 device,
                                 {.batch_size = 4, .workers = 2, .faults = {.timeout = late}}},
                      stream};
    CHECK_THROWS_AS(samples_in(feed.epoch(0)), ps::read_timeout);
  }
  CHECK(around->gone.load() == 0);
  around->release();
  around->wait_until_gone();
}

TEST_CASE("a loader over a borrowed dataset waits for the hanging read and reports it",
          "[flow][fault:hangs-2]") {
  const auto around = std::make_shared<hanging::outside>();
  reports seen;
  const hanging data{around, 40, {13}};
  std::thread rescuer;
  {
    ps::loader loader{
        data | ps::subset(0, 40),
        ps::sequential{},
        {.batch_size = 8, .workers = 2, .faults = {.timeout = late, .on_stall = seen.sink()}}};
    // The call does not wait for the read.
    CHECK_THROWS_AS(samples_in(loader.epoch(0)), ps::read_timeout);
    CHECK(loader.abandoned_readers() == 0);
    CHECK(seen.count() == 0);
    rescuer = std::thread{[&] {
      const auto found = seen.wait_for(1).front();
      CHECK(found.blocks_destruction);
      CHECK(found.where.sample == 13);
      CHECK_THAT(found.str(), Catch::Matchers::Contains("the loader's destructor waits for it"));
      CHECK(around->reads < 40);
      around->release();
    }};
  }
  // The destructor has waited for the read to finish.
  CHECK(around->gate.load() == 0);
  rescuer.join();
}

TEST_CASE("waiting for a retry is not a hanging read", "[flow]") {
  const numbered data{20};
  data.state->bad.store(7);
  reports seen;
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = 1,
                     .faults = {.on_error = {.retries = 1,
                                             .initial_backoff = 4 * soon,
                                             .action = ps::error_action::skip},
                                .stall_warning = 2 * soon,
                                .timeout = 3 * soon,
                                .on_stall = seen.sink()}}};
  CHECK(samples_in(loader.epoch(0)) == 19);
  CHECK(seen.count() == 0);
}

TEST_CASE("a stall report that never fires changes no batch", "[flow]") {
  reports seen;
  const std::size_t workers = GENERATE(1U, 4U);
  ps::loader loader{
      numbered{1000},
      ps::shuffled{.seed = 3},
      {.batch_size = 16,
       .workers = workers,
       .faults = {.stall_warning = never / 2, .timeout = never, .on_stall = seen.sink()}}};
  ps::loader plain{numbered{1000}, ps::shuffled{.seed = 3}, {.batch_size = 16}};
  auto expected = plain.epoch(0);
  auto other = expected.begin();
  for (auto& batch : loader.epoch(0)) {
    CHECK(labels_of(batch) == labels_of(*other));
    ++other;
  }
  CHECK(seen.count() == 0);
  CHECK(loader.abandoned_readers() == 0);
}

// A loader may detach a hanging reader of some datasets, and must wait for a reader of the others.
static_assert(!ps::detail::borrows<hanging>);
static_assert(ps::detail::borrows<ps::stored_dataset_t<hanging&>>);
static_assert(!ps::detail::borrows<ps::stored_dataset_t<hanging>>);
static_assert(!ps::detail::borrows<ps::idx_dataset<>>);
static_assert(ps::detail::borrows<ps::memory_dataset<hanging::record_type>>);
static_assert(
    ps::detail::borrows<decltype(ps::concat(std::declval<hanging&>(), std::declval<hanging>()))>);
static_assert(ps::detail::borrows<decltype(std::declval<hanging&>() | ps::subset(0, 1))>);
static_assert(!ps::detail::borrows<decltype(std::declval<hanging>() | ps::subset(0, 1))>);

namespace {

constexpr auto plain_map = [](auto&& sample) { return sample; };
struct scale {  // holds no reference
  static constexpr bool borrows = false;
  float by;
  template <class Sample>
  auto operator()(Sample&& sample) const {
    return sample;
  }
};
[[maybe_unused]] const auto map_with_reference = [&factor = never](auto&& sample) {
  return (void)factor, sample;
};

}  // namespace

static_assert(!ps::detail::function_borrows<decltype(plain_map)>);
static_assert(!ps::detail::function_borrows<scale>);
static_assert(ps::detail::function_borrows<decltype(map_with_reference)>);
