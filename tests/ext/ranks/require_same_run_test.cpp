// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/ranks/require_same_run.hpp>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/load/options.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock/transfer/transfer.hpp>
#include <penstock_ext/ranks/world.hpp>
#include <penstock_ext/samplers/by_tokens.hpp>

#include "support/catch.hpp"
#include "support/has.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using exchange_function = std::function<void(std::span<const std::byte>, std::span<std::byte>)>;

/// Runs `body(world, exchange)` on `size` ranks, each in a thread. Returns the message of each
/// rank.
std::vector<std::string> said_by_ranks(
    int size, const std::function<void(const ps::world&, const exchange_function&)>& body) {
  std::vector<std::byte> gathered(static_cast<std::size_t>(size) * 1024);
  std::barrier all{size};
  std::vector<std::string> said(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto place = static_cast<std::size_t>(rank);
      const auto gather = [&](std::span<const std::byte> mine, std::span<std::byte> out) {
        std::copy(mine.begin(), mine.end(),
                  gathered.begin() + static_cast<std::ptrdiff_t>(place * mine.size()));
        all.arrive_and_wait();
        std::copy_n(gathered.begin(), out.size(), out.begin());
      };
      try {
        body({.rank = rank, .size = size}, gather);
        said[place] = "same";
      } catch (const std::exception& error) {
        said[place] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return said;
}

/// The configuration of a rank.
struct given {
  std::uint64_t samples = 1000;
  std::uint64_t seed = 1;
  std::uint64_t loader_seed = 2;
  std::size_t global_batch = 48;
  int ranks = 0;  // number of ranks of the sampler; 0 means the actual number
  ps::remainder_policy remainder = ps::remainder_policy::wrap;
};

/// Returns the messages of 8 ranks. The ranks in `odd` have the configuration `other`.
std::vector<std::string> compared(const given& usual, const given& other,
                                  const std::vector<int>& odd) {
  return said_by_ranks(8, [&](const ps::world& w, const exchange_function& exchange) {
    const given& mine = std::find(odd.begin(), odd.end(), w.rank) == odd.end() ? usual : other;
    const int ranks = mine.ranks == 0 ? w.size : mine.ranks;
    const ps::sharded order{ps::shuffled{.seed = mine.seed},
                            {.rank = w.rank % ranks,
                             .world = ranks,
                             .global_batch = mine.global_batch,
                             .remainder = mine.remainder}};
    const ps::loader loader{
        numbered{.count = mine.samples},
        order,
        {.batch_size = order.batch_size(), .workers = 0, .seed = mine.loader_seed}};
    ps::require_same_run(w, loader, exchange);
  });
}

/// Returns the message common to all ranks, or "not alike" if the messages differ.
std::string common(const std::vector<std::string>& said) {
  const bool alike = std::count(said.begin(), said.end(), said.front()) ==
                     static_cast<std::ptrdiff_t>(said.size());
  return alike ? said.front() : "not alike";
}

const std::string what_to_do =
    ": give all ranks the same data, sampler, seed, batch sizes and checkpoint";

}  // namespace

TEST_CASE("ranks with the same run continue", "[ranks][promise:honest-13]") {
  CHECK(common(compared({}, {}, {})) == "same");
}

TEST_CASE("a rank with a different run is named on all ranks with the differences",
          "[ranks][promise:honest-13]") {
  CHECK(common(compared({}, {.loader_seed = 3}, {5})) ==
        "run_mismatch: the ranks would train on different batches: seed: 2 on ranks 0-4, 6 and 7; "
        "3 on rank 5" +
            what_to_do);
  CHECK(common(compared({}, {.global_batch = 40}, {0, 1, 2})) ==
        "run_mismatch: the ranks would train on different batches: samples: 1000 on ranks 0-2; "
        "1008 on ranks 3-7; batch_size: 40 on ranks 0-2; 48 on ranks 3-7" +
            what_to_do);
  const auto data = common(compared({}, {.samples = 999}, {7}));
  CHECK(test::has(data, "dataset: 1000 on ranks 0-6; 999 on rank 7"));
  CHECK(test::has(data, "as a fingerprint: "));
  const auto order = common(compared({}, {.seed = 9}, {4}));
  CHECK(test::has(order, "the order (the sampler's kind, seed or options"));
  CHECK(test::has(order, " on rank 4"));
  CHECK(test::lacks(order, "dataset: "));
  CHECK(test::has(common(compared({}, {.remainder = ps::remainder_policy::drop}, {1})),
                  " on rank 1"));
}

TEST_CASE("ranks whose samplers are not sharded for this world are reported",
          "[ranks][promise:honest-13]") {
  CHECK(common(compared({.ranks = 1}, {}, {})) ==
        "run_mismatch: rank 0 reads batches of 48 and uses a global batch of 48, in a world of "
        "8: give its loader a ps::sharded with .world = 8, because otherwise all ranks read the "
        "same samples");
  CHECK(common(compared({}, {.ranks = 4}, {3})) ==
        "run_mismatch: rank 3 reads batches of 12 and uses a global batch of 48, in a world of "
        "8: give its loader a ps::sharded with .world = 8, because otherwise all ranks read the "
        "same samples");
}

TEST_CASE("a transfer's run is compared like its loader's", "[ranks][promise:honest-13]") {
  STATIC_REQUIRE(ps::stateful_loader<ps::transfer<ps::loader<numbered, ps::shuffled>&>>);
  // A type with the transfer members that the comparison uses. The batch size is that of the
  // source.
  struct transfer_like {
    ps::loader_options chosen{.batch_size = 8};
    struct {
      const ps::loader_options& chosen;
      [[nodiscard]] const ps::loader_options& options() const { return chosen; }
    } from{chosen};
    [[nodiscard]] const auto& source() const { return from; }
    [[nodiscard]] ps::loader_state state_at(const ps::batch_position&) const {
      return {.dataset = 1000, .samples = 1000, .batch_size = 8};
    }
  };
  const auto said = said_by_ranks(2, [](const ps::world& w, const exchange_function& exchange) {
    ps::require_same_run(w, transfer_like{}, exchange);
  });
  CHECK(test::has(common(said), "rank 0 reads batches of 8 and uses a global batch of 8"));
}

TEST_CASE("ranks that resume from different checkpoints are reported",
          "[ranks][promise:honest-13]") {
  const auto said = said_by_ranks(4, [](const ps::world& w, const exchange_function& exchange) {
    const ps::loader_state state{.epoch = 3,
                                 .batch = w.rank == 2 ? 10U : 11U,
                                 .dataset = 100,
                                 .samples = 100,
                                 .batch_size = 4};
    ps::require_same_run(w, state, exchange);
  });
  CHECK(common(said) ==
        "run_mismatch: the ranks would train on different batches: batch: 11 on ranks 0 and 1, 3; "
        "10 on rank 2" +
            what_to_do);
}

TEST_CASE("an exchange with a different rank numbering is detected", "[ranks][promise:honest-13]") {
  const auto said = said_by_ranks(2, [](const ps::world& w, const exchange_function& exchange) {
    const auto swapped = [&](std::span<const std::byte> mine, std::span<std::byte> all) {
      exchange(mine, all);
      std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()), all.end());
    };
    ps::require_same_run(w, ps::loader_state{}, swapped);
  });
  CHECK(test::has(common(said), "run_mismatch: position 0 of the exchange holds rank 1"));
  const auto smaller = said_by_ranks(2, [](ps::world w, const exchange_function& exchange) {
    const auto kept = [&](std::span<const std::byte> mine, std::span<std::byte> all) {
      ps::detail::run_record record;
      std::memcpy(&record, mine.data(), sizeof record);
      if (w.rank == 1) record.size = 4;
      exchange(std::as_bytes(std::span{&record, 1}), all);
    };
    ps::require_same_run(w, ps::loader_state{}, kept);
  });
  CHECK(test::has(common(smaller), "the size of the world: 2 on rank 0; 4 on rank 1"));
}

TEST_CASE("an exchange that fails is the caller's own error", "[ranks]") {
  const auto broken = [](std::span<const std::byte>, std::span<std::byte>) {
    throw std::runtime_error("the network is down");
  };
  CHECK_THROWS_MATCHES(ps::require_same_run({.rank = 1, .size = 2}, ps::loader_state{}, broken),
                       std::runtime_error, Catch::Matchers::Message("the network is down"));
  // A world with a single rank exchanges nothing.
  CHECK_NOTHROW(ps::require_same_run(ps::world{}, ps::loader_state{}, broken));
  CHECK_THROWS_AS(ps::require_same_run({.rank = 2, .size = 2}, ps::loader_state{}, broken),
                  ps::option_error);
}

TEST_CASE("long lists of ranks and values are cut short", "[ranks]") {
  std::vector<ps::detail::run_record> records(10'000);
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].rank = i;
    records[i].size = records.size();
    records[i].state.seed = i % 2 == 0 ? 1 : i;
  }
  std::string problem;
  try {
    ps::detail::require_equal(records);
  } catch (const ps::run_mismatch& error) {
    problem = error.what();
  }
  CHECK(test::has(problem,
                  "seed: 1 on ranks 0-2, 4, 6, 8, 10, 12, 14, 16, ... (5001 of them); 3 on rank 3; "
                  "5 on rank 5; 7 on rank 7; and others"));
  CHECK(problem.size() < 600);
}

TEST_CASE("ranks with variable batch sizes are compared", "[ranks][promise:honest-13]") {
  std::vector<std::uint32_t> lengths(1000);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::uint32_t>(i % 50);
  const ps::by_tokens order{lengths, {.seed = 1, .max_tokens = 200, .batches_per_step = 4}};
  for (const int world : {2, 4, 1}) {
    const auto said = said_by_ranks(2, [&](const ps::world& here, const auto& exchange) {
      const ps::sharded share{order, {.rank = here.rank % world, .world = world}};
      const ps::loader loader{numbered{}, share, {.batch_size = order.batch_size(), .workers = 0}};
      ps::require_same_run(here, loader, exchange);
    });
    CAPTURE(world, said);
    for (const std::string& text : said) CHECK((text == "same") == (world == 2));
  }
}
