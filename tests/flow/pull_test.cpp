// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock/transfer/batch_source.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

constexpr std::uint64_t per_epoch = 5;

ps::loader<numbered, ps::shuffled> made_loader(const numbered& data, std::size_t workers) {
  return ps::loader{
      numbered{data}, ps::shuffled{.seed = 3}, {.batch_size = 10, .workers = workers}};
}

/// Returns the labels of `count` batches, starting at `from`, read through a range.
template <class Feed>
std::vector<std::uint64_t> by_range(Feed& feed, const ps::batch_position& from, std::size_t count) {
  std::vector<std::uint64_t> all;
  for (auto& batch : feed.batches(from, ps::until_epoch{10})) {
    if (count-- == 0) break;
    for (const auto label : labels_of(batch)) all.push_back(label);
  }
  return all;
}

/// Returns the labels of the next `count` batches, read with `next`.
template <class Feed>
std::vector<std::uint64_t> by_next(Feed& feed, std::size_t count) {
  std::vector<std::uint64_t> all;
  while (count-- != 0) {
    const auto& batch = feed.next();
    for (const auto label : labels_of(batch)) all.push_back(label);
  }
  return all;
}

/// Returns the labels of `count` batches in `all`, starting at batch `first`.
std::vector<std::uint64_t> part(const std::vector<std::uint64_t>& all, std::ptrdiff_t first,
                                std::ptrdiff_t count) {
  return {all.begin() + 10 * first, all.begin() + 10 * (first + count)};
}

/// A batch source that a program defines, which ends after epoch 0.
struct one_epoch {
  using record_type = numbered::record_type;
  using device_type = ps::cpu_device;
  using batch_type = ps::host_batch<record_type, device_type>;

  [[nodiscard]] device_type device() const { return inner.device(); }
  [[nodiscard]] const ps::batch_layout<record_type>& layout() const { return inner.layout(); }
  void start(const ps::batch_position& from, std::uint64_t) { inner.start(from, 1); }
  batch_type next() { return inner.next(); }
  batch_type try_next() { return inner.try_next(); }
  void stop() noexcept { inner.stop(); }

  ps::any_loader<record_type> inner;
};

/// Checks the properties that loaders and feeds share.
template <class Feed>
void pulls(Feed& feed) {
  const auto all = by_range(feed, {0, 0}, 3 * per_epoch);
  feed.reset();
  SECTION("next returns the batches of a range, across epoch boundaries") {
    for (std::uint64_t i = 0; i != 3 * per_epoch; ++i) {
      const auto& batch = feed.next();
      CHECK((batch.epoch() == i / per_epoch && batch.number() == i % per_epoch));
      CHECK(feed.at_epoch_end() == (i % per_epoch == per_epoch - 1));
      CHECK(labels_of(batch) == part(all, static_cast<std::ptrdiff_t>(i), 1));
    }
  }
  SECTION("reset starts at a position, at any time") {
    (void)by_next(feed, 7);
    feed.reset({1, 3});
    CHECK_FALSE(feed.at_epoch_end());
    CHECK(by_next(feed, 4) == part(all, 8, 4));
    feed.reset();
    CHECK(by_next(feed, 1) == part(all, 0, 1));
  }
  SECTION("resume continues after the last batch of the state") {
    (void)by_next(feed, 4);
    const auto in_epoch = feed.state();
    (void)by_next(feed, 1);
    const auto at_end = feed.state();
    (void)by_next(feed, 3);
    feed.resume(in_epoch);
    CHECK(by_next(feed, 2) == part(all, 4, 2));
    feed.resume(at_end);
    CHECK(by_next(feed, 2) == part(all, 5, 2));
  }
  SECTION("a range and a pulling loop exclude each other") {
    (void)by_next(feed, 2);
    CHECK_THROWS_WITH(by_range(feed, {0, 0}, 1), Catch::Contains("still live"));
    CHECK(by_next(feed, 1) == part(all, 2, 1));
  }
}

}  // namespace

TEST_CASE("a loader can be pulled", "[flow]") {
  auto loader = made_loader(numbered{50}, GENERATE(std::size_t{0}, std::size_t{2}));
  CHECK(loader.next().size() == 10);  // works without a call of reset
  loader.reset();
  loader.stop();
  pulls(loader);
}

TEST_CASE("a feed can be pulled", "[flow]") {
  auto loader = made_loader(numbered{50}, GENERATE(std::size_t{0}, std::size_t{2}));
  ps::transfer feed{loader};
  CHECK(feed.next().number() == 0);
  feed.reset();
  pulls(feed);
}

TEST_CASE("a loader that is assigned continues and can be reset", "[flow]") {
  using any = ps::any_loader<numbered::record_type>;
  any pulled = made_loader(numbered{50}, 1);
  CHECK(pulled.next().number() == 0);
  any other = made_loader(numbered{50}, 1);
  other = std::move(pulled);
  CHECK(other.next().number() == 1);
  other.reset({0, 3});
  CHECK(other.next().number() == 3);
}

TEST_CASE("a feed that is moved continues with the next batch", "[flow]") {
  auto loader = made_loader(numbered{50}, 1);
  ps::transfer feed{loader};
  CHECK(feed.next().number() == 0);
  ps::transfer moved{std::move(feed)};
  CHECK(moved.next().number() == 1);
}

TEST_CASE("a batch that failed is pulled again after resume", "[flow]") {
  const numbered data{50};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10}};
  ps::transfer feed{loader};
  data.state->bad = 25;
  CHECK(by_next(feed, 2).size() == 20);
  CHECK_THROWS_AS(feed.next(), bad_sample);
  CHECK_THROWS_WITH(feed.next(), Catch::Contains("call resume(state())"));
  CHECK_THROWS_AS(feed.next(), std::logic_error);
  data.state->bad = numbered::none;
  feed.resume(feed.state());
  CHECK(feed.next().number() == 2);
}

TEST_CASE("pulling gives empty batches after the end of a source", "[flow]") {
  ps::transfer feed{one_epoch{made_loader(numbered{50}, 1)}};
  CHECK(by_next(feed, per_epoch).size() == 50);
  CHECK_FALSE(feed.next());
  CHECK_FALSE(feed.next());
  feed.reset({0, 4});
  CHECK(feed.next().number() == 4);
}
