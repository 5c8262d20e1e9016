// SPDX-License-Identifier: BSL-1.0
// Tests ragged fields from the dataset to the device. Batches do not depend on the number of
// workers, and no sample is truncated.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/adaptors/exclude.hpp>
#include <penstock_ext/adaptors/interleave.hpp>
#include <penstock_ext/adaptors/map_batch.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using ragged_text =
    ps::record<ps::field<"tokens", std::uint16_t, ps::ragged>, ps::field<"label", std::uint64_t>>;
using two_ragged = ps::record<ps::field<"a", std::uint8_t, ps::ragged>, ps::field<"i", int>,
                              ps::field<"b", double, ps::ragged>>;
// The label of each sample, followed by its tokens.
using batch_content = std::vector<std::vector<std::uint32_t>>;

/// A dataset in which sample i has (i * 7) % 11 tokens: i * 100, i * 100 + 1, and so on. Some
/// samples are bad.
struct sentences {
  using record_type = ragged_text;
  std::uint64_t count = 103;
  std::set<std::uint64_t> bad = {};
  std::uint64_t longest = 10;
  std::size_t room = 0;
  std::optional<std::uint64_t> without_length = {};
  std::shared_ptr<std::atomic<std::uint64_t>> last_read =
      std::make_shared<std::atomic<std::uint64_t>>(0);

  [[nodiscard]] std::uint64_t size() const { return count; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{.longest = longest, .max_values_per_batch = room}, {}};
  }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const {
    if (index == without_length) throw std::runtime_error("no length");
    return index * 7 % 11;
  }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    *last_read = index;
    const auto tokens = ps::get<"tokens">(out).flat();
    for (auto& token : tokens) token = 0xbad;
    ps::get<"label">(out) = index;
    if (bad.contains(index)) throw std::runtime_error("bad sample " + std::to_string(index));
    std::iota(tokens.begin(), tokens.end(), static_cast<std::uint16_t>(index * 100));
  }
};

/// Returns the samples of a batch through its public interface.
template <class Batch>
batch_content content_of(const Batch& batch) {
  batch_content all;
  const auto tokens = ps::get<"tokens">(batch);
  const auto labels = ps::get<"label">(batch);
  REQUIRE(tokens.size() == batch.size());
  REQUIRE(tokens.offsets()(0) == 0);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    std::vector<std::uint32_t> one{static_cast<std::uint32_t>(labels(i))};
    for (const auto token : tokens[i].flat()) one.push_back(static_cast<std::uint32_t>(token));
    all.push_back(std::move(one));
  }
  return all;
}

template <class Range>
std::vector<batch_content> contents_of(Range range) {
  std::vector<batch_content> all;
  for (auto& batch : range) all.push_back(content_of(std::as_const(batch)));
  return all;
}

std::vector<std::uint32_t> sentence_of(std::uint64_t index) {
  std::vector<std::uint32_t> one(1 + index * 7 % 11, static_cast<std::uint32_t>(index));
  std::iota(one.begin() + 1, one.end(), static_cast<std::uint32_t>(index * 100));
  return one;
}

/// A dataset with two ragged fields. The second field is often empty.
struct pairs {
  using record_type = two_ragged;
  [[nodiscard]] std::uint64_t size() const { return 40; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{.longest = 6}, {}, {.longest = 3}};
  }
  [[nodiscard]] ps::sample_lengths<record_type> lengths(std::uint64_t index) const {
    return {index % 7, index % 5 == 0 ? index % 4 : 0};
  }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    for (auto& value : ps::get<"a">(out).flat()) value = static_cast<std::uint8_t>(index);
    for (auto& value : ps::get<"b">(out).flat()) value = static_cast<double>(index) / 2;
    ps::get<"i">(out) = static_cast<int>(index);
  }
};

}  // namespace

TEST_CASE("every sample of a ragged field arrives complete and in its place",
          "[flow][promise:exact-12]") {
  ps::loader loader{sentences{}, ps::sequential{}, {.batch_size = 16, .workers = 2}};
  std::uint64_t index = 0;
  for (auto& batch : loader.epoch(0)) {
    for (const auto& one : content_of(batch)) CHECK(one == sentence_of(index++));
  }
  CHECK(index == 103);
}

TEST_CASE("ragged batches are the same for any workers and chunks", "[flow][promise:exact-12]") {
  const auto batches = [](std::size_t workers, std::size_t run, ps::last_batch last) {
    ps::loader loader{
        sentences{},
        ps::shuffled{.seed = 3},
        {.batch_size = 16, .workers = workers, .last_batch = last, .tuning = {.chunk = run}}};
    return contents_of(loader.epochs(0, 2));
  };
  for (const auto last : {ps::last_batch::keep, ps::last_batch::drop, ps::last_batch::pad}) {
    const auto expected = batches(0, 0, last);
    CHECK(expected.size() == (last == ps::last_batch::drop ? 12 : 14));
    CHECK(batches(1, 1, last) == expected);
    CHECK(batches(3, 1, last) == expected);
    CHECK(batches(4, 5, last) == expected);
  }
}

TEST_CASE("several ragged fields keep their samples apart", "[flow][promise:exact-12]") {
  ps::loader loader{
      pairs{}, ps::shuffled{.seed = 1}, {.batch_size = 8, .workers = 3, .tuning = {.chunk = 1}}};
  std::size_t seen = 0;
  for (auto& batch : loader.epoch(0)) {
    for (std::size_t i = 0; i < batch.size(); ++i, ++seen) {
      const int index = ps::get<"i">(batch)(i);
      const auto a = ps::get<"a">(batch)[i].flat();
      const auto b = ps::get<"b">(batch)[i].flat();
      CHECK(a.size() == static_cast<std::size_t>(index % 7));
      CHECK(b.size() == static_cast<std::size_t>(index % 5 == 0 ? index % 4 : 0));
      CHECK(std::all_of(a.begin(), a.end(), [&](int value) { return value == index; }));
      CHECK(std::all_of(b.begin(), b.end(), [&](double value) { return value == index / 2.0; }));
    }
  }
  CHECK(seen == 40);
}

TEST_CASE("a ragged batch without room is rejected in order, and no sample is cut",
          "[flow][promise:bounded-5][fault:samples-5]") {
  for (const std::size_t workers : {0U, 3U}) {
    CAPTURE(workers);
    ps::loader loader{
        sentences{},
        ps::sequential{},
        {.batch_size = 8, .workers = workers, .memory = {.max_values_per_batch = 41}}};
    std::size_t batches = 0;
    // Samples 8 to 15 have 1, 8, 4, 0, 7, 3, 10 and 6 tokens, 39 in total. The samples of the next
    // batch have 2, 9, 5, 1, 8, 4, 0 and 7 tokens, and so on. The loop finds the first sample at
    // which a batch exceeds 41 tokens.
    std::uint64_t sum = 0;
    std::uint64_t index = 0;
    for (; sum <= 41; ++index) sum = (index % 8 == 0 ? 0 : sum) + index * 7 % 11;
    const auto e = test::error_of<ps::ragged_overflow>([&] {
      for (auto& batch : loader.epoch(0)) batches += batch.size() / 8;
    });
    CHECK(e.field() == "tokens");
    CHECK(e.sample() == index - 1);
    CHECK(e.at() == ps::batch_position{0, (index - 1) / 8});
    CHECK(e.position() == (index - 1) % 8);
    CHECK(e.needed() == sum);
    CHECK(e.capacity() == 41);
    CHECK(batches == (index - 1) / 8);
    CHECK_THAT(e.what(), Catch::Matchers::Contains("raise memory.max_values_per_batch"));
    REQUIRE(loader.last_failure());
    CHECK(loader.last_failure()->stage == "length");
    CHECK(loader.last_failure()->sample == index - 1);
  }
}

TEST_CASE("a sample that is longer than its dataset permits is rejected",
          "[flow][promise:bounded-5][fault:samples-5]") {
  ps::loader loader{sentences{.longest = 9}, ps::sequential{}, {.batch_size = 8}};
  const auto e = test::error_of<ps::ragged_overflow>([&] { (void)contents_of(loader.epoch(0)); });
  CHECK(e.sample() == 3);  // 21 % 11
  CHECK(e.needed() == 10);
  CHECK(e.capacity() == 9);
  CHECK_THAT(e.what(),
             Catch::Matchers::Contains(
                 "sample 3 (position 3 of the batch): it has 10 "
                 "values, but according to the dataset's extents() the longest sample has 9"));
}

TEST_CASE("an exception of length() is thrown in batch order and names its sample",
          "[flow][fault:samples-5]") {
  const sentences data{.without_length = 37};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 8, .workers = 0}};
  std::size_t batches = 0;
  CHECK_THROWS_WITH(
      [&] {
        for (auto& batch : loader.epoch(0)) batches += batch.size() / 8;
      }(),
      "no length");
  CHECK(batches == 4);
  CHECK(*data.last_read == 31);  // samples are read only after all lengths of their batch are known
  REQUIRE(loader.last_failure());
  CHECK(loader.last_failure()->stage == "length");
  CHECK(loader.last_failure()->sample == 37);
  CHECK(loader.last_failure()->position == 5);
}

TEST_CASE("skipped samples leave no gap in a ragged batch", "[flow][promise:exact-12]") {
  const std::set<std::uint64_t> bad = {0, 3, 9, 10, 15, 16, 24, 25, 26, 27, 28, 29, 30, 31, 102};
  for (const std::size_t workers : {0U, 3U}) {
    ps::loader loader{
        sentences{.bad = bad},
        ps::sequential{},
        {.batch_size = 8,
         .workers = workers,
         .faults = {.on_error = {.action = ps::error_action::skip, .max_failure_rate = 1}},
         .tuning = {.chunk = 1}}};
    std::vector<std::vector<std::uint32_t>> all;
    std::vector<std::size_t> sizes;
    for (auto& batch : loader.epoch(0)) {
      sizes.push_back(batch.size());
      for (auto& one : content_of(batch)) all.push_back(std::move(one));
    }
    CHECK(sizes == std::vector<std::size_t>{6, 5, 7, 0, 8, 8, 8, 8, 8, 8, 8, 8, 6});
    std::vector<std::vector<std::uint32_t>> expected;
    for (std::uint64_t i = 0; i < 103; ++i) {
      if (!bad.contains(i)) expected.push_back(sentence_of(i));
    }
    CHECK(all == expected);
  }
}

TEST_CASE("error_action::replace is rejected for ragged fields", "[flow][fault:samples-5]") {
  CHECK_THROWS_WITH((ps::loader{sentences{},
                                ps::sequential{},
                                {.faults = {.on_error = {.action = ps::error_action::replace}}}}),
                    Catch::Matchers::Contains("choose error_action::skip"));
}

TEST_CASE("max_values_per_batch is rejected without a ragged field", "[flow][fault:samples-5]") {
  const std::vector<int> values(4);
  const ps::memory_dataset<ps::record<ps::field<"x", int>>> data{values};
  CHECK_THROWS_AS((ps::loader{data, ps::sequential{}, {.memory = {.max_values_per_batch = 4}}}),
                  ps::option_error);
}

TEST_CASE("adaptors keep the lengths of ragged samples", "[flow][promise:exact-12]") {
  const auto samples_of = [](auto& loader) {
    batch_content all;
    for (auto& batch : loader.epoch(0)) {
      for (auto& one : content_of(batch)) all.push_back(std::move(one));
    }
    return all;
  };
  // A shared loader type, because each type takes long to compile.
  const auto sequence = [&]<class Data>(Data data) {
    ps::loader loader{ps::any_dataset<typename Data::record_type>{std::move(data)},
                      ps::sequential{},
                      {.batch_size = 16, .workers = 2}};
    return samples_of(loader);
  };
  const auto of = [](std::uint64_t first, std::uint64_t last) {
    batch_content all;
    for (std::uint64_t i = first; i < last; ++i) all.push_back(sentence_of(i));
    return all;
  };
  SECTION("map in place") {
    const auto add_one = [](ps::sample<ragged_text> out) {
      for (auto& token : ps::get<"tokens">(out).flat()) ++token;
    };
    auto expected = of(0, 103);
    for (auto& one : expected) {
      for (std::size_t t = 1; t < one.size(); ++t) ++one[t];
    }
    CHECK(sequence(sentences{} | ps::map(add_one)) == expected);
  }
  SECTION("map into a record with a ragged field of the same name") {
    using wide =
        ps::record<ps::field<"label", std::int64_t>, ps::field<"tokens", std::int64_t, ps::ragged>>;
    const auto widen = [](ps::const_sample<ragged_text> in, ps::sample<wide> out) {
      const auto from = ps::get<"tokens">(in).flat();
      std::copy(from.begin(), from.end(), ps::get<"tokens">(out).flat().begin());
      ps::get<"label">(out) = static_cast<std::int64_t>(ps::get<"label">(in));
    };
    CHECK(sequence(sentences{} | ps::map<wide>(widen, {{}, {.longest = 10}})) == of(0, 103));
    CHECK_THROWS_AS(sequence(sentences{} | ps::map<wide>(widen, {{}, {.longest = 9}})),
                    ps::ragged_overflow);
  }
  SECTION("map into a record without a ragged field") {
    using sums = ps::record<ps::field<"sum", std::uint32_t>>;
    const auto sum = [](ps::const_sample<ragged_text> in, ps::sample<sums> out) {
      const auto from = ps::get<"tokens">(in).flat();
      ps::get<"sum">(out) = std::accumulate(from.begin(), from.end(), 0U);
    };
    ps::loader wrong{sentences{.longest = 9} | ps::map<sums>(sum), ps::sequential{}, {}};
    CHECK_THROWS_AS(samples_in(wrong.epoch(0)), ps::layout_error);
    REQUIRE(wrong.last_failure());
    CHECK(wrong.last_failure()->sample == 3);
    ps::loader loader{sentences{} | ps::map<sums>(sum), ps::sequential{}, {.batch_size = 103}};
    for (auto& batch : loader.epoch(0)) {
      const auto one = sentence_of(40);
      CHECK(ps::get<"sum">(batch)(40) == std::accumulate(one.begin() + 1, one.end(), 0U));
    }
  }
  SECTION("subset, exclude and any_dataset") {
    ps::any_dataset<ragged_text> part = sentences{} | ps::subset(20, 60);
    auto expected = of(20, 60);
    CHECK(sequence(part) == expected);
    expected.erase(expected.begin() + 5);
    CHECK(sequence(part | ps::exclude({25})) == expected);
  }
  SECTION("concat of datasets with different longest samples") {
    auto expected = of(0, 3);
    for (const auto& one : of(0, 103)) expected.push_back(one);
    const auto both = ps::concat(sentences{.count = 3, .longest = 8}, sentences{.room = 50});
    CHECK(both.extents().at<0>().longest == 10);
    CHECK(both.extents().at<0>().max_values_per_batch == 0);
    CHECK(sequence(both) == expected);
  }
  SECTION("interleave") {
    const auto both = ps::interleave({.weights = {1, 1}}, sentences{.count = 2}, sentences{});
    CHECK(sequence(both) ==
          batch_content{sentence_of(0), sentence_of(0), sentence_of(1), sentence_of(1)});
  }
  SECTION("map_batch") {
    const auto first_is_label = [](ps::batch_view<ragged_text> all) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto tokens = ps::get<"tokens">(all)[i];
        if (tokens.size() != 0) tokens[0] = static_cast<std::uint16_t>(ps::get<"label">(all)(i));
      }
    };
    auto expected = of(0, 103);
    for (auto& one : expected) {
      if (one.size() > 1) one[1] = one[0];
    }
    ps::loader loader{
        sentences{} | ps::map_batch(first_is_label), ps::sequential{}, {.batch_size = 16}};
    CHECK(samples_of(loader) == expected);
  }
}

TEST_CASE("a loop over ragged batches resumes in the middle of an epoch",
          "[flow][promise:exact-12]") {
  const auto make = [](std::size_t workers) {
    return ps::loader{sentences{}, ps::shuffled{.seed = 9}, {.batch_size = 16, .workers = workers}};
  };
  auto whole = make(2);
  const auto expected = contents_of(whole.epochs(0, 2));
  const auto state = whole.state_at({0, 3});
  auto again = make(3);
  const auto rest = contents_of(again.resume(state, 2));
  CHECK(rest == std::vector<batch_content>(expected.begin() + 3, expected.end()));
}

TEST_CASE("ragged batches reach a device in a single copy of their used bytes",
          "[flow][promise:exact-12]") {
  const std::size_t workers = GENERATE(0U, 2U);
  ps::loader host{sentences{}, ps::shuffled{.seed = 4}, {.batch_size = 16, .workers = workers}};
  const auto expected = contents_of(host.epochs(0, 2));
  ps::loader loader{sentences{}, ps::shuffled{.seed = 4}, {.batch_size = 16, .workers = workers}};
  ps::transfer feed{loader};
  CHECK(contents_of(feed.epochs(0, 2)) == expected);

  std::uint64_t values = 0;
  for (const auto& batch : expected) {
    for (const auto& one : batch) values += one.size() - 1;
  }
  const auto stats = loader.stats();
  CHECK(stats.read.bytes == 2 * 103 * 8 + values * 2);
  CHECK(stats.step.bytes == stats.read.bytes);
  const auto copied = feed.stats();
  CHECK(copied.copies == 14);
  CHECK(copied.bytes == stats.read.bytes);
  // The host cannot count values that are in device memory.
  CHECK(copied.step.bytes == 2 * 103 * 8);
}

TEST_CASE("the copy of several ragged fields ends after the last field's values",
          "[flow][promise:bounded-5]") {
  const gated_device device;
  ps::loader loader{pairs{}, ps::sequential{}, device, {.batch_size = 16, .workers = 1}};
  auto stream = device.make_stream();
  ps::transfer feed{loader, stream};
  std::size_t used = 0;
  std::size_t batches = 0;
  for (auto& batch : feed.epoch(0)) {
    stream.synchronize();
    const auto values = ps::get<"b">(batch).values();
    const auto* const end = reinterpret_cast<const std::byte*>(values.data() + values.size());
    used += static_cast<std::size_t>(end - batch.data());
    ++batches;
  }
  CHECK(device.copied_bytes() == used);
  CHECK(used < batches * loader.footprint().slot_bytes);
}

TEST_CASE("a device transform may read ragged fields", "[flow][promise:exact-12]") {
  using sums = ps::record<ps::field<"sum", std::uint32_t>>;
  const auto sum = [](ps::const_batch_view<ragged_text> in, ps::batch_view<sums> out,
                      ps::cpu_stream_ref stream) {
    const auto tokens = ps::get<"tokens">(in);
    const auto to = ps::get<"sum">(out);
    stream.launch([tokens, to] {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto one = tokens[i].flat();
        to(i) = std::accumulate(one.begin(), one.end(), 0U);
      }
    });
  };
  ps::loader loader{sentences{}, ps::sequential{}, {.batch_size = 16, .workers = 1}};
  ps::cpu_device device;
  auto stream = device.make_stream();
  ps::transfer feed{loader, stream, ps::on_stream<sums>(sum)};
  std::uint64_t index = 0;
  for (auto& batch : feed.epoch(0)) {
    device.synchronize(stream);
    for (std::size_t i = 0; i < batch.size(); ++i, ++index) {
      const auto one = sentence_of(index);
      CHECK(ps::get<"sum">(batch)(i) == std::accumulate(one.begin() + 1, one.end(), 0U));
    }
  }
  CHECK(index == 103);
}

TEST_CASE("the footprint counts the offsets and the room for ragged values",
          "[flow][promise:bounded-5]") {
  const ps::loader_options options{
      .batch_size = 16, .workers = 1, .memory = {.max_values_per_batch = 3000}};
  const sentences some{.count = 16, .longest = 1000};
  const auto need = ps::footprint<ragged_text>(some.extents(), options);
  // Offsets and labels, then 6000 bytes of values, rounded up to whole pages.
  CHECK(need.slot_bytes == 4096 + 8192);
  ps::loader loader{some, ps::sequential{}, options};
  CHECK(loader.footprint().slot_bytes == need.slot_bytes);
  CHECK(loader.footprint().bytes == need.bytes);
  CHECK(ps::footprint<ragged_text>(some.extents(), {.batch_size = 16}).slot_bytes == 4096 + 32768);
}
