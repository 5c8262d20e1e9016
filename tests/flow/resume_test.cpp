// SPDX-License-Identifier: BSL-1.0
// Tests that a run which stops after any batch and resumes elsewhere delivers the remaining
// batches. Only the saved state specifies where the run continues.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/exclude.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using number = ps::record<ps::field<"x", std::uint64_t>>;

struct numbers {
  using record_type = number;
  std::uint64_t count = 101;
  std::uint64_t size() const { return count; }
  void read(std::uint64_t i, ps::sample<number> out, ps::sample_generator& rng) const {
    ps::get<"x">(out) = i << 32 | static_cast<std::uint32_t>(rng());
  }
};

constexpr std::uint64_t last_epoch = 3;

using values = std::vector<std::uint64_t>;

template <class Batch>
void append(values& all, const Batch& batch) {
  all.push_back(batch.epoch());
  all.push_back(batch.number());
  for (const std::uint64_t x : ps::get<"x">(batch).flat()) all.push_back(x);
}

template <class Range>
values all_of(Range range) {
  values all;
  for (auto& batch : range) append(all, batch);
  return all;
}

ps::loader_options with(std::size_t workers, std::size_t prefetch = 0,
                        ps::last_batch last = ps::last_batch::keep) {
  return {.batch_size = 8, .workers = workers, .prefetch = prefetch, .seed = 5, .last_batch = last};
}

/// A thread that repeatedly requests the position of a loop until `finish` is called, and checks
/// each result.
template <class Loop>
class asking {
 public:
  explicit asking(const Loop& loop) : thread_([this, &loop] { ask(loop); }) {}
  asking(asking&&) = delete;

  /// Stops the thread. Returns true if every result was a valid position and positions never
  /// decreased.
  bool finish() {
    is_over_ = true;
    thread_.join();
    return was_right_;
  }

 private:
  void ask(const Loop& loop) {
    std::pair<std::uint64_t, std::uint64_t> before{0, 0};
    for (bool is_last = false; !is_last;) {
      is_last = is_over_;
      const auto at = loop.state();
      const std::pair now{at.epoch, at.batch};
      was_right_ = was_right_ && now >= before && at.batch <= 13 && !loop.last_failure();
      before = now;
    }
    const std::pair<std::uint64_t, std::uint64_t> end{last_epoch - 1, 13};
    was_right_ = was_right_ && before == end;
  }

  bool was_right_ = true;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a run resumes after any batch, with other workers, prefetch and depth",
          "[flow][promise:exact-6]") {
  for (const auto last : {ps::last_batch::keep, ps::last_batch::drop, ps::last_batch::pad}) {
    ps::loader whole{numbers{}, ps::shuffled{.seed = 3}, with(0, 0, last)};
    const values expected = all_of(whole.epochs(0, last_epoch));
    const std::uint64_t batches = whole.batches_per_epoch() * last_epoch;

    for (std::uint64_t stop = 1; stop <= batches; ++stop) {
      INFO("stopped after " << stop << " batches, last_batch " << static_cast<int>(last));
      values got;
      std::optional<ps::loader_state> state;
      {
        ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(2, 5, last)};
        std::uint64_t done = 0;
        for (auto& batch : loader.epochs(0, last_epoch)) {
          append(got, batch);
          if (++done == stop) {
            state = loader.state();
            break;
          }
        }
      }
      ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(stop % 4, 1 + stop % 3, last)};
      ps::transfer feed{loader, ps::cpu_device{}.inline_stream(), {.depth = 1 + stop % 3}};
      // Converts the state to text and back, as a file would.
      const auto read = ps::from_text<ps::loader_state>(ps::to_text(*state));
      for (auto& batch : feed.resume(read, last_epoch)) append(got, batch);
      CHECK((got == expected));
    }
  }
}

TEST_CASE("a transfer's state is the state of the current batch, not of batches copied ahead",
          "[flow][promise:exact-6]") {
  ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(2, 6)};
  ps::transfer feed{loader, ps::cpu_device{}.inline_stream(), {.depth = 4}};
  CHECK(feed.state() == loader.state_at({0, 0}));
  std::uint64_t done = 0;
  for (auto& batch : feed.epochs(0, 2)) {
    ++done;
    CHECK(batch.position() == ps::batch_position{(done - 1) / 13, (done - 1) % 13});
    CHECK(feed.state() == loader.state_at({batch.epoch(), batch.number() + 1}));
    CHECK(feed.state_at(batch.position()) == loader.state_at({batch.epoch(), batch.number()}));
  }
  CHECK(done == 26);
  CHECK(feed.state() == loader.state_at({1, 13}));
  CHECK(all_of(feed.resume(feed.state(), 2)).empty());  // the state is at the end of the last epoch
}

TEST_CASE("after a failed batch, a resume starts with that batch", "[flow][promise:exact-6]") {
  struct failing : numbers {
    void read(std::uint64_t i, ps::sample<number> out) const {
      if (i == 20) throw std::runtime_error("no sample 20");
      ps::get<"x">(out) = i;
    }
  };
  for (const std::size_t workers : {0U, 2U}) {
    ps::loader loader{failing{}, ps::sequential{}, with(workers)};
    CHECK_THROWS_AS(all_of(loader.epochs(0, 1)), std::runtime_error);
    CHECK(loader.state() == loader.state_at({0, 2}));
    ps::transfer feed{loader, ps::cpu_device{}.inline_stream()};
    CHECK_THROWS_AS(all_of(feed.epochs(0, 1)), std::runtime_error);
    CHECK(feed.state() == loader.state_at({0, 2}));
  }
}

TEST_CASE("a resume takes constant time, whatever the position and the size",
          "[flow][promise:exact-6]") {
  ps::loader loader{numbers{std::uint64_t{1} << 60}, ps::shuffled{.seed = 3}, with(1)};
  const std::uint64_t far = loader.batches_per_epoch() - 2;
  auto range = loader.resume(loader.state_at({last_epoch, far}), last_epoch + 1);
  std::uint64_t done = 0;
  for (auto& batch : range) CHECK(batch.number() == far + done++);
  CHECK(done == 2);
}

TEST_CASE("a state of different data, batches or seeds is rejected with the differences",
          "[flow][promise:exact-7]") {
  ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(1)};
  const auto problem = [&](const auto& other) -> std::string {
    try {
      (void)loader.resume(other.state(), last_epoch);
      return "none";
    } catch (const ps::state_mismatch& error) {
      return error.what();
    }
  };
  const auto begins =
      std::string{"resume: this loader gives different batches than the loader of the state: "};
  CHECK(problem(ps::loader{numbers{}, ps::shuffled{.seed = 3}, with(4, 9)}) == "none");
  CHECK(problem(ps::loader{numbers{102}, ps::shuffled{.seed = 3}, with(1)})
            .starts_with(begins + "dataset: 102 in the state, 101 here; samples: 102 in the state, "
                                  "101 here; the order (the sampler's kind,"));
  CHECK(problem(ps::loader{numbers{}, ps::shuffled{.seed = 4}, with(1)})
            .starts_with(begins + "the order (the sampler's kind, seed or options, the "));
  CHECK(problem(ps::loader{numbers{}, ps::sequential{}, with(1)})
            .starts_with(begins + "the order (the sampler's kind, seed or options, the "));
  CHECK(problem(ps::loader{numbers{}, ps::shuffled{.seed = 3}, {.batch_size = 9, .seed = 5}}) ==
        begins + "batch_size: 9 in the state, 8 here");
  CHECK(problem(ps::loader{numbers{}, ps::shuffled{.seed = 3}, {.batch_size = 8, .seed = 6}}) ==
        begins + "seed: 6 in the state, 5 here");
  CHECK(problem(ps::loader{numbers{}, ps::shuffled{.seed = 3}, with(1, 0, ps::last_batch::drop)})
            .ends_with("last: drop in the state, keep here"));

  auto nowhere = loader.state();
  nowhere.batch = 14;
  CHECK_THROWS_AS(all_of(loader.resume(nowhere, last_epoch)), ps::option_error);
}

TEST_CASE("a loader with in_order = false has no state", "[flow][promise:exact-7]") {
  ps::loader loader{numbers{}, ps::sequential{}, {.batch_size = 8, .in_order = false}};
  CHECK_THROWS_MATCHES(
      loader.state(), ps::option_error,
      Catch::Matchers::Message("in_order: must be true for a state, but is false: batches in the "
                               "order of their completion have no position to continue from"));
}

TEST_CASE("a state after an epoch's last batch resumes in the next epoch",
          "[flow][promise:exact-6]") {
  ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(2)};
  const std::uint64_t behind = loader.batches_per_epoch();
  CHECK((all_of(loader.batches({0, behind}, ps::until_epoch{2})) == all_of(loader.epoch(1))));
  ps::transfer feed{loader, ps::cpu_device{}.inline_stream()};
  CHECK((all_of(feed.batches({0, behind}, ps::until_epoch{2})) == all_of(loader.epoch(1))));
}

TEST_CASE("the end of an epoch is a position of its own", "[flow][promise:exact-6]") {
  const std::size_t workers = GENERATE(0U, 1U, 4U);
  ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(workers)};
  ps::transfer feed{loader};
  const values second = all_of(loader.epoch(1));
  const auto look = [&](auto& loop) {
    all_of(loop.epoch(0));
    const ps::loader_state end = loop.state();
    CHECK(end == loader.state_at({0, 13}));
    CHECK(end != loader.state_at({1, 0}));
    CHECK(ps::from_text<ps::loader_state>(ps::to_text(end)) == end);
    // No batches of epoch 0 remain, so the position does not change.
    CHECK(all_of(loop.resume(end, 1)).empty());
    CHECK(loop.state() == end);
    CHECK((all_of(loop.resume(end, 2)) == second));
    CHECK((all_of(loop.resume(loop.state_at({1, 0}), 2)) == second));
  };
  SECTION("over a loader") { look(loader); }
  SECTION("over a transfer") { look(feed); }
}

TEST_CASE("a failed step is repeated from the state of its batch's position",
          "[flow][promise:exact-6]") {
  const std::size_t workers = GENERATE(0U, 1U, 4U);
  ps::loader whole{numbers{}, ps::shuffled{.seed = 3}, with(0)};
  const values expected = all_of(whole.epochs(0, 2));
  ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(workers)};
  ps::transfer feed{loader};
  values got;
  std::size_t failures = 0;
  ps::loader_state at = feed.state_at({});
  while (at != feed.state_at({1, 13})) {
    try {
      for (auto& batch : feed.resume(at, 2)) {
        at = feed.state_at(batch.position());
        if (batch.number() % 6 == failures % 6 && failures < 9 && ++failures != 0)
          throw std::runtime_error("a step fails");
        append(got, batch);
        at = feed.state();
      }
    } catch (const std::runtime_error&) {
    }
  }
  CHECK(failures == 9);
  CHECK((got == expected));
}

TEST_CASE("a state with different selections below the sampler is rejected",
          "[flow][promise:exact-7]") {
  const auto without = [](std::vector<std::uint64_t> out) {
    return ps::loader{numbers{} | ps::exclude(std::move(out)), ps::sequential{}, with(0)};
  };
  auto loader = without({3, 90});
  CHECK_NOTHROW((void)loader.resume(without({90, 3}).state(), 1));
  CHECK_THROWS_AS((void)loader.resume(without({3, 91}).state(), 1), ps::state_mismatch);
}

TEST_CASE("any thread may query the position of a loop", "[flow][promise:exact-6]") {
  ps::loader loader{numbers{}, ps::shuffled{.seed = 3}, with(GENERATE(0U, 2U))};
  SECTION("over a loader") {
    asking other{loader};
    all_of(loader.epochs(0, last_epoch));
    CHECK(other.finish());
  }
  SECTION("over a transfer") {
    ps::transfer feed{loader, ps::cpu_device{}.inline_stream()};
    asking other{feed};
    all_of(feed.epochs(0, last_epoch));
    CHECK(other.finish());
  }
}
