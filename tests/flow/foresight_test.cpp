// SPDX-License-Identifier: BSL-1.0
// Tests that a loader announces the order of reads to the cache below its dataset, so that the
// cache retains the blocks that are needed next.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/subset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/store/cache/cached_store.hpp>

#include "ext/store/belady.hpp"
#include "ext/store/counting_store.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

constexpr std::uint64_t as_far_as_known = (std::numeric_limits<std::uint64_t>::max)();

// A list of blobs from any store that also forwards announcements.
struct any_blobs {
  virtual ~any_blobs() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  [[nodiscard]] virtual std::uint8_t first_byte(std::uint64_t index) const = 0;
  virtual void prefetch(std::span<const std::uint64_t> indices) const = 0;
  virtual void access_plan(std::span<const std::uint64_t> indices) const = 0;
  [[nodiscard]] virtual std::uint64_t prefetch_capacity() const = 0;
  [[nodiscard]] virtual std::uint64_t plan_capacity() const = 0;
};
template <class Store>
struct blobs_in : any_blobs {
  blobs_in(Store& store, const std::vector<ps::stored_blob>& list,
           const ps::stored_blobs_options& options)
      : source{store, list, options} {}
  [[nodiscard]] std::uint64_t size() const override { return source.size(); }
  [[nodiscard]] std::uint8_t first_byte(std::uint64_t index) const override {
    ps::blob_buffer buffer;
    return std::to_integer<std::uint8_t>(source.bytes(index, buffer)[0]);
  }
  void prefetch(std::span<const std::uint64_t> indices) const override { source.prefetch(indices); }
  void access_plan(std::span<const std::uint64_t> indices) const override {
    source.access_plan(indices);
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const override {
    return source.prefetch_capacity();
  }
  [[nodiscard]] std::uint64_t plan_capacity() const override { return source.plan_capacity(); }

  ps::stored_blobs<ps::detail::store_member<Store&>> source;
};

// A dataset of the first byte of each blob that forwards announcements to the blobs.
struct first_bytes {
  using record_type = ps::record<ps::field<"byte", std::uint8_t>>;

  [[nodiscard]] std::uint64_t size() const { return source->size(); }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"byte">(out) = source->first_byte(index);
  }
  void prefetch_hint(std::span<const std::uint64_t> indices) const { source->prefetch(indices); }
  void access_plan(std::span<const std::uint64_t> indices) const { source->access_plan(indices); }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t) const { return 10; }
  [[nodiscard]] std::uint64_t prefetch_capacity() const { return source->prefetch_capacity(); }
  [[nodiscard]] std::uint64_t plan_capacity() const { return source->plan_capacity(); }

  const any_blobs* source;
};

using cache_below = ps::cached_store<ps::detail::store_member<const test::counting_store&>>;
using cached_blobs = blobs_in<const cache_below>;

// An object whose blocks are the blobs. Each byte of block i has the value i.
struct numbered_blocks {
  explicit numbered_blocks(std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) {
      list.push_back({"x", 10 * i, 10});
      all += std::string(10, static_cast<char>(i));
    }
    store.add("x", all);
  }
  test::counting_store store;
  std::vector<ps::stored_blob> list;
};

constexpr ps::stored_blobs_options fetches_nothing{.read_ahead = 0};

// Returns a loader over the samples `chosen`, which may contain duplicates.
auto loader_over(const any_blobs& blobs, const std::vector<std::uint64_t>& chosen,
                 const ps::loader_options& options) {
  return ps::loader{first_bytes{&blobs} | ps::subset(chosen), ps::shuffled{.seed = 3}, options};
}
ps::loader_options one_by_one(std::size_t workers) {
  return {.batch_size = 1, .workers = workers, .lookahead_bytes = as_far_as_known};
}

template <class Range>
std::vector<std::uint64_t> bytes_in(Range&& range) {
  std::vector<std::uint64_t> all;
  for (auto& batch : range) {
    const auto bytes = ps::get<"byte">(batch).flat();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

std::vector<std::uint64_t> all_below(std::size_t count) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

// A dataset of a few blocks with a memory cache that can hold only some of them.
struct small_cache {
  small_cache(std::mt19937& random, std::size_t count)
      : blocks(count),
        room(1 + random() % 3),
        cache(blocks.store, {.block_bytes = 10, .memory_bytes = 10 * room}),
        blobs(cache, blocks.list, fetches_nothing),
        chosen(test::random_order(random, count, 7)) {}
  // Returns a loader without workers and with single-sample batches.
  [[nodiscard]] auto loader() const { return loader_over(blobs, chosen, one_by_one(0)); }

  numbered_blocks blocks;
  std::size_t room;
  cache_below cache;
  cached_blobs blobs;
  std::vector<std::uint64_t> chosen;
};

// A store that throws on every announcement.
struct deaf_store {
  [[nodiscard]] std::uint64_t size_of(std::string_view name) const { return store->size_of(name); }
  void read(const ps::byte_range& range) const { store->read(range); }
  void announce_reads(const void*, std::span<const ps::upcoming_range>) const { reject(); }
  void retract(const void*) const { reject(); }
  [[nodiscard]] std::uint64_t plan_capacity() const { return as_far_as_known; }

  void reject() const {
    ++*rejected;
    throw std::runtime_error("not now");
  }

  const test::counting_store* store;
  std::atomic<int>* rejected;
};

}  // namespace

TEST_CASE("a loader gives a cache the minimum number of misses across epochs",
          "[flow][promise:bounded-11]") {
  std::mt19937 random{21};
  for (int round = 0; round < 40; ++round) {
    const small_cache of{random, 3 + random() % 4};
    auto loader = of.loader();
    CAPTURE(round, of.room, of.chosen);
    const auto order = bytes_in(loader.epochs(0, 3));
    CHECK(order.size() == 21);
    CHECK(of.blocks.store.reads == test::fewest_misses(order, of.room));
    CHECK(loader.stats().ahead.failed == 0);
  }
}

TEST_CASE("announcements of an abandoned range keep no block for the next range",
          "[flow][promise:bounded-11]") {
  std::mt19937 random{22};
  for (int round = 0; round < 40; ++round) {
    const small_cache of{random, 4 + random() % 3};
    auto loader = of.loader();
    std::set<std::uint64_t> kept;
    for (auto& batch : loader.epochs(0, 2)) {
      kept.insert(ps::get<"byte">(batch).flat()[0]);
      break;
    }
    const int before = of.blocks.store.reads;
    CAPTURE(round, of.room, of.chosen);
    const auto order = bytes_in(loader.epochs(5, 7));
    CHECK(of.blocks.store.reads - before == test::fewest_misses(order, of.room, kept));
    CHECK(of.cache.stats().planned_uses == 0);
  }
}

TEST_CASE("workers and prefetch threads read the same data with announcements",
          "[flow][promise:bounded-11]") {
  const std::size_t workers = GENERATE(1U, 3U);
  const numbered_blocks of{120};
  const cache_below cache{of.store, {.block_bytes = 10, .memory_bytes = 300}};
  const cached_blobs blobs{cache, of.list, {.read_ahead = 50}};
  const auto all = all_below(120);
  ps::loader_options options = one_by_one(workers);
  options.batch_size = 4;
  auto loader = loader_over(blobs, all, options);
  auto plain = loader_over(blobs, all, {.batch_size = 4, .workers = 0});
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    for (auto& batch : loader.epochs(epoch, epoch + 4)) {  // the loop ends after the first batch
      CHECK(batch.size() == 4);
      break;
    }
    CHECK(bytes_in(loader.epochs(epoch, epoch + 2)) == bytes_in(plain.epochs(epoch, epoch + 2)));
  }
  // The cache has room for a quarter of all blocks. Within a range, it retains the blocks that the
  // following epochs use soon; an LRU cache would read nearly all blocks again. A thread that is
  // delayed at the wrong moment causes additional misses, so the test uses the best of up to ten
  // ranges.
  constexpr int max = 8 * 120 * 85 / 100;
  int misses = 8 * 120;
  for (std::uint64_t epoch = 8; epoch < 88 && misses >= max; epoch += 8) {
    const int before = of.store.reads;
    CHECK(bytes_in(loader.epochs(epoch, epoch + 8)).size() == 8 * 120);
    misses = std::min(misses, of.store.reads - before);
  }
  CAPTURE(misses);
  CHECK(misses < max);
}

TEST_CASE("two loaders over one cache withdraw only their own announcements",
          "[flow][promise:bounded-11]") {
  const numbered_blocks of{12};
  const cache_below cache{of.store, {.block_bytes = 10, .memory_bytes = 30}};
  const cached_blobs train{cache, of.list, fetches_nothing};
  const cached_blobs test{cache, of.list, fetches_nothing};
  auto training = loader_over(train, all_below(12), one_by_one(0));
  auto testing = loader_over(test, all_below(12), one_by_one(0));
  std::size_t samples = 0;
  for (auto& batch : training.epochs(0, 2)) {
    samples += batch.size();
    if (samples != 6) continue;
    CHECK(cache.stats().planned_uses == 18);
    for (auto& one : testing.epoch(0)) {
      CHECK(cache.stats().planned_uses == 18 + 11);
      CHECK(one.size() == 1);
      break;
    }
    CHECK(bytes_in(testing.epoch(1)).size() == 12);
    CHECK(cache.stats().planned_uses <= 18);
  }
  CHECK(samples == 24);
}

TEST_CASE("a store that throws when it receives prefetch hints costs no batch",
          "[flow][promise:bounded-11]") {
  const std::size_t workers = GENERATE(0U, 2U);
  const numbered_blocks of{20};
  std::atomic<int> rejected{0};
  const deaf_store store{&of.store, &rejected};
  const blobs_in<const deaf_store> blobs{store, of.list, {.threads = 1}};
  auto loader = loader_over(blobs, all_below(20), one_by_one(workers));
  auto plain = loader_over(blobs, all_below(20), {.batch_size = 1, .workers = 0});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    CHECK(bytes_in(loader.epochs(epoch, epoch + 2)) == bytes_in(plain.epochs(epoch, epoch + 2)));
  }
  if (workers == 0) CHECK(loader.stats().ahead.failed == static_cast<std::uint64_t>(rejected));
  CHECK((workers != 0 || rejected > 3));
}
