// SPDX-License-Identifier: BSL-1.0
// Pushes clouds from several threads with random options and random endings. Each cloud arrives
// completely, once, and in the order of its producer, or counts as dropped. PENSTOCK_ROUNDS sets
// the number of rounds.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/transfer/transfer.hpp>

#include "ext/intake/clouds.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

namespace ps = penstock;

namespace {

using intake = ps::intake<cloud_record>;

constexpr std::uint64_t producers = 3;

/// The random choices of a round or of a thread.
class dice {
 public:
  explicit dice(std::uint64_t seed) : bits_(seed) {}
  std::uint64_t below(std::uint64_t end) { return bits_() % end; }
  bool is_one_of(std::uint64_t sides) { return below(sides) == 0; }

 private:
  std::mt19937_64 bits_;
};

struct plan {
  explicit plan(dice& of) {
    samples = 1 + of.below(3);
    longest = 1 + of.below(40);
    count = 20 + of.below(80);
    options = {.slot_count = 1 + of.below(6),
               .samples = samples,
               .when_full = static_cast<ps::when_full>(of.below(4))};
  }

  ps::intake_options options;
  std::size_t samples = 0;
  std::uint64_t longest = 0;
  std::uint64_t count = 0;
};

/// Writes a batch of a producer: `word` is the value of every element.
void write_cloud(const ps::intake_buffer<cloud_record>& to, std::uint64_t word, std::size_t samples,
                 std::uint64_t points) {
  for (std::size_t at = 0; at < samples; ++at) ps::get<"number">(to)[at] = word;
  for (std::uint64_t i = 0; i < points; ++i) ps::get<"points">(to)(i) = word;
}

/// Pushes batches until the plan is fulfilled or the intake is closed. Returns the number of
/// accepted commits. May keep a lease.
std::uint64_t produce(intake& in, const plan& of, std::uint64_t producer, std::uint64_t seed,
                      intake::slot_type& kept) {
  dice chance{seed};
  const ps::cpu_device device;
  const auto stream = device.make_stream();
  std::uint64_t accepted = 0;
  for (std::uint64_t number = 0; number < of.count && !in.was_closed(); ++number) {
    const auto way = chance.below(4);
    auto slot = way == 0   ? in.try_acquire()
                : way == 1 ? in.acquire_for(std::chrono::microseconds{50})
                           : in.acquire();
    if (!slot) {
      std::this_thread::yield();
      continue;
    }
    const std::uint64_t word = producer << 32 | number;
    const auto samples = static_cast<std::size_t>(1 + chance.below(of.samples));
    std::array<std::uint64_t, 3> lengths{};
    std::uint64_t points = 0;
    for (std::size_t at = 0; at < samples; ++at) {
      points += lengths[at] = chance.below(of.longest + 1);
    }
    const ps::commit_info what{
        .samples = samples, .lengths = std::span{lengths}.first(samples), .tag = word};
    const auto buffer = slot.buffer();
    const auto write = [buffer, word, samples, points] {
      write_cloud(buffer, word, samples, points);
    };
    switch (chance.below(5)) {
      case 0:
        write();
        slot = {};  // abandons the slot
        break;
      case 1: {
        const auto id = slot.detach();
        write_cloud(in.buffers()[id], word, samples, points);
        accepted += in.commit(id, what) ? 1U : 0U;
        break;
      }
      case 2:
        stream.launch(write);
        accepted += slot.commit_after(stream, what) ? 1U : 0U;
        break;
      default:
        write();
        accepted += slot.commit(what) ? 1U : 0U;
    }
    if (chance.is_one_of(40)) {
      if (auto more = in.try_acquire()) kept = std::move(more);
    }
  }
  return accepted;
}

/// Checks the batches that a consumer receives.
struct witness {
  std::array<std::uint64_t, producers> next{};  // the last number of each producer, plus 1
  std::uint64_t seen = 0;
  std::uint64_t skipped = 0;
  std::uint64_t wrong = 0;

  template <class Batch>
  void see(const Batch& batch) {
    ++seen;
    skipped += batch.skipped();
    const std::uint64_t word = batch.tag();
    const std::uint64_t producer = word >> 32;
    const std::uint64_t number = word & 0xFFFFFFFF;
    bool is_right = producer < producers && number + 1 > next[producer];
    if (is_right) next[producer] = number + 1;
    const auto points = ps::get<"points">(batch);
    for (std::size_t at = 0; at < batch.size(); ++at) {
      is_right = is_right && ps::get<"number">(batch)[at] == word;
      for (const auto point : points[at].flat()) is_right = is_right && point == word;
    }
    wrong += is_right ? 0 : 1;
  }
};

/// Consumes batches until the end or until `limit` batches, in loops that it sometimes leaves
/// early.
void consume(intake& in, dice chance, std::uint64_t limit, witness& by) {
  const ps::cpu_device device;
  const auto stream = device.make_stream();
  while (!in.at_end() && by.seen < limit) {
    std::uint64_t left = 1 + chance.below(60);
    const auto is_over = [&] { return --left == 0 || by.seen >= limit; };
    const std::size_t depth = 1 + chance.below(3);
    const bool keep_host = chance.is_one_of(3);
    const ps::transfer_tuning_options tuning{
        .zero_copy = chance.is_one_of(3) ? ps::zero_copy_use::always : ps::zero_copy_use::never};
    switch (chance.below(3)) {
      case 0:
        for (auto& batch : in.stream()) {
          by.see(std::as_const(batch));
          if (is_over()) break;
        }
        break;
      case 1: {
        ps::transfer feed{in, {.depth = depth, .keep_host = keep_host, .tuning = tuning}};
        for (auto& batch : feed.epoch(0)) {
          by.see(std::as_const(batch));
          if (is_over()) break;
        }
        break;
      }
      default: {
        ps::transfer feed{in, stream, {.depth = depth, .keep_host = keep_host, .tuning = tuning}};
        for (auto& batch : feed.epoch(0)) {
          device.synchronize(ps::cpu_stream_ref{stream});
          by.see(std::as_const(batch));
          if (is_over()) break;
        }
      }
    }
  }
}

void run_round(std::uint64_t seed) {
  INFO("seed " << seed);
  dice chance{seed};
  const plan of{chance};
  std::array<intake::slot_type, producers> kept;  // slots that outlive the intake
  std::array<std::uint64_t, producers> accepted{};
  witness by;
  ps::intake_stats stats;
  const auto ending = chance.below(3);
  {
    intake in{ps::cpu_device{}, {{}, {.longest = of.longest}}, of.options};
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < producers; ++i) {
      threads.emplace_back([&, i, own = chance.below(~std::uint64_t{0})] {
        accepted[i] = produce(in, of, i, own, kept[i]);
      });
    }
    const std::uint64_t limit = ending == 2 ? chance.below(60) : ~std::uint64_t{0};
    std::thread consumer{[&, own = chance] { consume(in, own, limit, by); }};
    if (ending == 0) {
      // Waits only briefly, because a producer may be waiting for slots that other producers have
      // kept.
      for (std::uint64_t turn = 20 + chance.below(2000); turn != 0; --turn) {
        std::this_thread::yield();
      }
      in.close();
    } else if (ending == 1) {
      for (std::uint64_t turn = chance.below(500); turn != 0; --turn) std::this_thread::yield();
      in.close(ps::discard);
    }
    if (ending == 2) {  // the consumer stops early
      for (std::uint64_t turn = 20 + chance.below(500); turn != 0; --turn) {
        std::this_thread::yield();
      }
      in.close();
    }
    consumer.join();
    for (auto& thread : threads) thread.join();
    stats = in.stats();
  }
  for (auto& slot : kept) {
    if (slot) CHECK_FALSE(slot.commit({.lengths = {0}}));
  }
  CHECK(by.wrong == 0);
  CHECK(by.seen == stats.delivered);
  CHECK(by.skipped <= stats.dropped);
  if (of.options.when_full == ps::when_full::drop_new) {
    CHECK(stats.committed <= stats.delivered + stats.dropped + stats.waiting);
  } else {
    CHECK(stats.committed == stats.delivered + stats.dropped + stats.waiting);
  }
  CHECK(stats.committed >= accepted[0] + accepted[1] + accepted[2]);
  if (ending == 0) CHECK(stats.waiting == 0);
}

}  // namespace

TEST_CASE("every pushed batch arrives complete, once and in order, or counts as dropped",
          "[intake][soak][promise:exact-27][promise:race-free-16][promise:honest-22]") {
  const std::uint64_t rounds = test::number_in_environment("PENSTOCK_ROUNDS", 700);
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) run_round(seed);
}
