// SPDX-License-Identifier: BSL-1.0
#include <penstock/transfer/any_transfer.hpp>

#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "transfer/ten_each.hpp"

namespace ps = penstock;

namespace {

using feed_type = ps::any_transfer<numbered::record_type>;
static_assert(std::is_nothrow_move_constructible_v<feed_type>);
static_assert(std::is_nothrow_move_assignable_v<feed_type>);
static_assert(!std::is_copy_constructible_v<feed_type>);

/// A class whose data members have types that a header can name.
struct trainer {
  feed_type feed;
};

ps::loader<numbered, ps::shuffled> shuffled_loader() {
  return ps::loader{numbered{50}, ps::shuffled{.seed = 5}, ten_each(2)};
}

template <class Range>
std::vector<std::uint64_t> all_labels(Range&& range) {
  std::vector<std::uint64_t> all;
  for (auto& batch : range) {
    for (const auto label : labels_of(batch)) all.push_back(label);
  }
  return all;
}

/// A transform that doubles the labels and has an output record of its own.
struct twice_of_labels {
  using record_type = ps::record<ps::field<"twice", std::uint64_t>>;
  void enqueue(ps::const_batch_view<numbered::record_type> in, ps::batch_view<record_type> out,
               ps::cpu_stream_ref stream) const {
    stream.launch([from = ps::get<"label">(in), to = ps::get<"twice">(out)] {
      for (std::size_t i = 0; i < from.size(); ++i) to[i] = 2 * from[i];
    });
  }
};

/// A source without batch counts and without states.
struct uncounted {
  using record_type = numbered::record_type;
  using device_type = ps::cpu_device;
  using batch_type = ps::host_batch<record_type, device_type>;

  [[nodiscard]] device_type device() const { return inner.device(); }
  [[nodiscard]] const ps::batch_layout<record_type>& layout() const { return inner.layout(); }
  void start(const ps::batch_position& from, std::uint64_t last) { inner.start(from, last); }
  batch_type next() { return inner.next(); }
  batch_type try_next() { return inner.try_next(); }
  void stop() noexcept { inner.stop(); }

  ps::any_loader<record_type> inner;
};

}  // namespace

TEST_CASE("an any_transfer delivers the batches of its transfer", "[transfer]") {
  auto loader = shuffled_loader();
  ps::transfer plain{loader};
  const auto expected = all_labels(plain.epochs(0, 2));
  REQUIRE(expected.size() == 100);

  trainer one;
  CHECK_FALSE(one.feed);
  one.feed = ps::any_transfer{ps::transfer{shuffled_loader()}};
  CHECK(one.feed);
  CHECK(all_labels(one.feed.epochs(0, 2)) == expected);
  CHECK(one.feed.batches_per_epoch() == 5);
  CHECK(one.feed.stats().bytes != 0);

  SECTION("through next and from a saved state") {
    std::vector<std::uint64_t> pulled;
    for (int i = 0; i != 7; ++i) {
      const auto& batch = one.feed.next();
      CHECK(one.feed.at_epoch_end() == (i == 4));
      for (const auto label : labels_of(batch)) pulled.push_back(label);
    }
    CHECK(pulled == std::vector(expected.begin(), expected.begin() + 70));
    const auto state = one.feed.state();
    one.feed.reset();
    CHECK(labels_of(one.feed.next()) == std::vector(expected.begin(), expected.begin() + 10));
    one.feed.resume(state);
    CHECK(labels_of(one.feed.next()) == std::vector(expected.begin() + 70, expected.begin() + 80));
    one.feed.reset();
    CHECK(all_labels(one.feed.resume(state, 2)) ==
          std::vector(expected.begin() + 70, expected.end()));
  }
  SECTION("after a move") {
    feed_type other = std::move(one.feed);
    CHECK(all_labels(other.epoch(1)) == std::vector(expected.begin() + 50, expected.end()));
  }
  SECTION("but only one range at a time") {
    auto first = one.feed.epoch(0);
    auto at = first.begin();
    auto second = one.feed.epoch(1);
    CHECK_THROWS_AS(second.begin(), std::logic_error);
    CHECK_THROWS_AS(one.feed.next(), std::logic_error);
    while (at != first.end()) ++at;
    CHECK(all_labels(std::move(second)).size() == 50);
  }
}

TEST_CASE("replacing an any_transfer cancels its loop", "[transfer]") {
  feed_type feed{ps::transfer{shuffled_loader()}};
  auto range = feed.epoch(0);
  auto at = range.begin();
  feed = feed_type{ps::transfer{shuffled_loader()}};
  CHECK_THROWS_AS(++at, ps::cancelled);
  CHECK_THROWS_AS((void)range.begin(), std::logic_error);
  CHECK(all_labels(feed.epoch(0)).size() == 50);
}

TEST_CASE("an empty any_transfer rejects every use", "[transfer]") {
  feed_type feed;
  CHECK_THROWS_WITH(feed.epoch(0), Catch::Contains("holds no transfer"));
  CHECK_THROWS_AS(feed.next(), std::logic_error);
  CHECK_THROWS_AS(feed.state(), std::logic_error);
}

TEST_CASE("an any_transfer has the record of the transform", "[transfer]") {
  auto stream = ps::cpu_device{}.make_stream();
  ps::any_transfer<twice_of_labels::record_type> feed{ps::transfer{
      ps::loader{numbered{20}, ps::sequential{}, ten_each(1)}, stream, twice_of_labels{}}};
  std::uint64_t sum = 0;
  for (auto& batch : feed.epoch(0)) {
    stream.synchronize();
    for (const auto value : ps::get<"twice">(batch).flat()) sum += value;
  }
  CHECK(sum == 380);
}

TEST_CASE("an any_transfer reports missing members of its source", "[transfer]") {
  feed_type feed{ps::transfer{uncounted{shuffled_loader()}}};
  CHECK_THROWS_WITH(feed.at_epoch_end(), Catch::Contains("batches_per_epoch()"));
  CHECK_THROWS_WITH(feed.state(), Catch::Contains("state_at(next)"));
  CHECK(all_labels(feed.epoch(0)).size() == 50);
}
