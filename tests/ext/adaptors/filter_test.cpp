// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/adaptors/filter.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::has;

namespace {
using filter_indices = std::vector<std::uint64_t>;
using by_index = std::function<bool(std::uint64_t)>;
using filter_row = ps::record<ps::field<"x", std::uint64_t>>;
using filter_words = ps::record<ps::field<"words", std::uint16_t, ps::ragged>>;

/// A dataset that computes its samples. Sample i has the value 3 * i. Reading sample `bad` throws.
struct triples {
  using record_type = filter_row;
  std::uint64_t count = 0;
  std::uint64_t bad = ~std::uint64_t{0};

  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<filter_row> out) const {
    if (index == bad) throw std::runtime_error("bad block");
    ps::get<"x">(out) = 3 * index;
  }
};

/// A dataset of the same samples that is read in chunks. A chunk with a bad sample fails as a
/// whole.
struct triple_chunks : triples {
  void read(std::uint64_t index, ps::sample<filter_row> out) const = delete;
  void read_chunk(std::span<const std::uint64_t> some, ps::batch_view<filter_row> out) const {
    for (std::size_t i = 0; i < some.size(); ++i) triples::read(some[i], out[i]);
  }
};

/// A dataset in which sample i has i % 7 words with the value i. The dataset accepts hints.
struct some_words {
  using record_type = filter_words;
  std::vector<std::uint64_t>* hinted = nullptr;

  [[nodiscard]] std::uint64_t size() const { return 500; }
  [[nodiscard]] ps::record_extents<filter_words> extents() const { return {{6}}; }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const { return index % 7; }
  void read(std::uint64_t index, ps::sample<filter_words> out) const {
    std::ranges::fill(ps::get<"words">(out).flat(), static_cast<std::uint16_t>(index));
  }
  void prefetch_hint(std::span<const std::uint64_t> some) const {
    hinted->insert(hinted->end(), some.begin(), some.end());
  }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const { return 1000 + index; }
};

/// Returns the indices in the source dataset of all samples.
template <class D>
filter_indices sources_of(const D& data) {
  filter_indices all(data.size());
  for (std::uint64_t i = 0; i < all.size(); ++i) all[i] = ps::origin_of(data, i).index;
  return all;
}

filter_indices kept_by_loop(std::uint64_t size, const by_index& predicate) {
  filter_indices all;
  for (std::uint64_t i = 0; i < size; ++i) {
    if (predicate(i)) all.push_back(i);
  }
  return all;
}

auto shuffled_part(int rank, int world) {
  return ps::sharded{ps::shuffled{.seed = 4}, {.rank = rank, .world = world, .global_batch = 32}};
}

/// Returns the values of the batches of epochs 0 and 1, starting at `position`, with -1 after each
/// batch.
template <class Loader>
std::vector<std::int64_t> filtered_values(Loader& loader, ps::batch_position position) {
  std::vector<std::int64_t> all;
  for (auto& batch : loader.batches(position, ps::until_epoch{2})) {
    for (const std::uint64_t value : ps::get<"x">(batch).flat()) {
      all.push_back(static_cast<std::int64_t>(value));
    }
    all.push_back(-1);
  }
  return all;
}

const by_index every_third = [](std::uint64_t i) { return i % 3 == 1; };
const by_index not_called_again = [](std::uint64_t) -> bool {
  throw std::logic_error("called again");
};

}  // namespace

TEST_CASE("a filter keeps the samples that a simple loop keeps", "[adaptors][promise:exact-1]") {
  for (const std::uint64_t size : {0U, 1U, 63U, 64U, 65U, 511U, 512U, 513U, 5000U, 100'000U}) {
    std::mt19937_64 bits{size};  // NOLINT: a fixed seed
    std::vector<char> drawn(size);
    for (char& one : drawn) one = bits() % 2 == 0;
    const auto check = [&](const by_index& predicate) {
      for (const std::size_t workers : {1U, 3U}) {
        const auto kept = triples{size} | ps::filter(predicate, {.workers = workers});
        REQUIRE(sources_of(kept) == kept_by_loop(size, predicate));
      }
    };
    CAPTURE(size);
    check([](std::uint64_t) { return false; });
    check([](std::uint64_t) { return true; });
    check([](std::uint64_t i) { return i % 2 == 0; });
    check([](std::uint64_t i) { return i % 4099 == 17; });     // mostly empty blocks
    check([](std::uint64_t i) { return i / 4096 % 2 == 1; });  // full and empty runs
    check([](std::uint64_t i) { return i % 512 == 511; });     // the last bit of each block
    check([size](std::uint64_t i) { return i + 1 == size; });  // only the last sample
    check([&](std::uint64_t i) { return drawn[i] != 0; });
  }
}

TEST_CASE("each set bit of a word is found", "[adaptors]") {
  std::mt19937_64 bits{3};  // NOLINT: a fixed seed
  for (std::size_t round = 0; round < 1000; ++round) {
    const std::uint64_t word = round == 0 ? ~std::uint64_t{0} : bits() & bits();
    unsigned rank = 0;
    for (unsigned at = 0; at < 64; ++at) {
      if ((word >> at & 1U) == 0) continue;
      REQUIRE(ps::detail::position_of_bit(word, rank) == at);
      ++rank;
    }
  }
}

TEST_CASE("a predicate takes the sample, the index, or both", "[adaptors]") {
  std::vector<std::uint64_t> values(1000);
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = 3 * i;
  const ps::memory_dataset<filter_row> viewed{values};
  const filter_indices expected = kept_by_loop(1000, every_third);
  const auto by_sample = [](ps::const_sample<filter_row> one) {
    return ps::get<"x">(one) % 9 == 3;
  };
  std::vector<std::atomic<int>> calls(1000);
  const auto by_both = [&](ps::const_sample<filter_row> one, std::uint64_t index) {
    ++calls[index];
    return ps::get<"x">(one) == 3 * index && every_third(index);
  };
  const auto check = [&](const auto& data) {
    CHECK(sources_of(data | ps::filter(by_sample)) == expected);
    CHECK(sources_of(data | ps::filter(every_third)) == expected);
    for (auto& one : calls) one = 0;
    CHECK(sources_of(data | ps::filter(by_both, {.workers = 4})) == expected);
    CHECK(std::all_of(calls.begin(), calls.end(), [](const auto& one) { return one == 1; }));
  };
  check(viewed);
  check(triples{1000});
  check(triple_chunks{{1000}});

  // A predicate may own memory that cannot be copied.
  auto owner = [held = std::make_unique<int>(3)](std::uint64_t i) {
    return every_third(i) && *held == 3;
  };
  CHECK(sources_of(triples{1000} | ps::filter(std::move(owner))) == expected);
}

TEST_CASE("a filter reads ragged and large samples", "[adaptors][promise:exact-12]") {
  std::vector<std::uint64_t> hinted;
  const auto kept = some_words{&hinted} | ps::filter([](ps::const_sample<filter_words> one) {
                      const auto all = ps::get<"words">(one).flat();
                      return all.size() > 4 && all.front() % 2 == 1;
                    });
  const filter_indices expected =
      kept_by_loop(500, [](std::uint64_t i) { return i % 7 > 4 && i % 2 == 1; });
  CHECK(sources_of(kept) == expected);
  // The filtered dataset forwards the members of its dataset.
  CHECK(ps::lengths_of(kept, 2)[0] == expected[2] % 7);
  CHECK(ps::storage_size_of(kept, 2) == 1000 + expected[2]);
  CHECK(ps::extents_of(kept).at<0>().longest == 6);
  ps::prefetch_hint(kept, filter_indices{4, 0, 7});
  CHECK(hinted == filter_indices{expected[4], expected[0], expected[7]});

  using image = ps::record<ps::field<"pixels", std::uint8_t, 400'000>>;
  struct images {
    using record_type = image;
    [[nodiscard]] std::uint64_t size() const { return 7; }
    void read(std::uint64_t index, ps::sample<image> out) const {
      std::ranges::fill(ps::get<"pixels">(out).flat(), static_cast<std::uint8_t>(index));
    }
  };
  CHECK(sources_of(images{} | ps::filter([](ps::const_sample<image> one, std::uint64_t index) {
                     const auto pixels = ps::get<"pixels">(one).flat();
                     return pixels.front() == index && pixels.back() == index && index != 3;
                   })) == filter_indices{0, 1, 2, 4, 5, 6});

  struct wrong_length : some_words {
    [[nodiscard]] std::uint64_t length(std::uint64_t index) const { return index == 77 ? 500 : 0; }
  };
  const auto all = [](ps::const_sample<filter_words>) { return true; };
  const auto problem = error_of<ps::filter_error>(
      [&] { static_cast<void>(wrong_length{{&hinted}} | ps::filter(all)); });
  CHECK(problem.index() == 77);
  CHECK_THROWS_AS(std::rethrow_if_nested(problem), ps::layout_error);
}

TEST_CASE("a filtered dataset has views if its dataset has views", "[adaptors]") {
  std::vector<std::uint64_t> values(100);
  std::iota(values.begin(), values.end(), std::uint64_t{0});
  const ps::memory_dataset<filter_row> data{values};
  const auto kept = data | ps::filter(every_third);
  static_assert(ps::detail::views_samples<decltype(kept)>);
  static_assert(!ps::detail::views_samples<decltype(triples{} | ps::filter(every_third))>);
  CHECK(&ps::get<"x">(kept.view(5)) == &values[16]);
  CHECK_THROWS_AS(kept.view(33), ps::index_error);
  const auto copy = kept;  // shares the bits
  CHECK(sources_of(copy) == sources_of(kept));
}

TEST_CASE("the error of a filter names the first sample that fails", "[adaptors][fault:files-31]") {
  const test::temp_dir folder;
  const by_index throws = [](std::uint64_t i) {
    if (i == 700 || i == 900) throw std::out_of_range("odd value");
    return true;
  };
  for (const std::size_t workers : {1U, 4U}) {
    const ps::filter_options options{.path = folder.path("f"), .key = "k", .workers = workers};
    const auto one = error_of<ps::filter_error>(
        [&] { static_cast<void>(triples{1000} | ps::filter(throws, options)); });
    CHECK(std::string{one.what()} == "filter: sample 700: odd value");
    CHECK(one.index() == 700);
    CHECK(one.origin() == ps::sample_origin{700, 0});
    CHECK_THROWS_AS(std::rethrow_if_nested(one), std::out_of_range);

    const auto keep = [](ps::const_sample<filter_row>) { return true; };
    const auto below = ps::concat(triples{10} | ps::subset(5, 10), triples{2000, 1200});
    const auto other =
        error_of<ps::filter_error>([&] { static_cast<void>(below | ps::filter(keep, options)); });
    CHECK(std::string{other.what()} == "filter: sample 1205 (1200 in part 1 below): bad block");
    CHECK(other.origin() == ps::sample_origin{1200, 1});
    const auto chunks = error_of<ps::filter_error>([&] {
      static_cast<void>(triple_chunks{{300, 77}} | ps::subset(50, 300) | ps::filter(keep, options));
    });
    CHECK(std::string{chunks.what()} == "filter: sample 27 (77 in the dataset below): bad block");
  }
  const by_index number = [](std::uint64_t) -> bool { throw 7; };
  CHECK(has(error_of<ps::filter_error>([&] {
              static_cast<void>(triples{9} | ps::filter(number));
            }).what(),
            "filter: sample 0: not a std::exception"));
  const by_index stop = [](std::uint64_t) -> bool { throw ps::cancelled("a stop was requested"); };
  CHECK_THROWS_AS(triples{9} | ps::filter(stop), ps::cancelled);
  const auto ends = [](const ps::filter_progress&) { throw std::domain_error("enough"); };
  CHECK_THROWS_AS(triples{9} | ps::filter(every_third, {.progress = ends}), std::domain_error);
  CHECK_THROWS_MATCHES(triples{9} | ps::filter(every_third, {.workers = 0}), ps::option_error,
                       Catch::Matchers::Message("workers: must be at least 1, but is 0"));
  CHECK(has(error_of<ps::option_error>([&] {
              static_cast<void>(triples{9} | ps::filter(every_third, {.path = folder.path("f")}));
            }).what(),
            "key: is empty: name the predicate, so that a stale "));
  CHECK(std::filesystem::is_empty(folder.path("")));
}

TEST_CASE("a filter file is created once, with progress", "[adaptors][promise:exact-6]") {
  const test::temp_dir folder;
  std::vector<std::uint64_t> done;
  ps::filter_progress last;
  ps::filter_options options{.path = folder.path("f"), .key = "thirds", .workers = 3};
  options.progress = [&](const ps::filter_progress& at) {
    done.push_back(at.done);
    last = at;
  };
  for (const std::uint64_t size : {0U, 1U, 64U, 10'000U}) {
    const filter_indices expected = kept_by_loop(size, every_third);
    CHECK(sources_of(triples{size} | ps::filter(every_third, options)) == expected);
    CHECK(std::filesystem::file_size(options.path) == 48 + (size + 63) / 64 * 8 + 6);
    options.on_stale = ps::stale_index::reject;
    CHECK(sources_of(triples{size} | ps::filter(not_called_again, options)) == expected);
    options.on_stale = ps::stale_index::rebuild;
    CHECK(test::files_in(folder) == 1);
  }
  CHECK(std::is_sorted(done.begin(), done.end(), [](auto a, auto b) { return a < b && b > 64; }));
  CHECK(last.done == 10'000);
  CHECK(last.total == 10'000);
  CHECK(last.kept == 3333);
  // The state of a run does not depend on the file.
  options.path.clear();
  CHECK((triples{10'000} | ps::filter(every_third, options)).fingerprint() ==
        (triples{10'000} | ps::filter(every_third, {.workers = 1})).fingerprint());
}

TEST_CASE("a stale filter file is rebuilt or rejected", "[adaptors][fault:files-31]") {
  const test::temp_dir folder;
  const auto options = [&](const std::string& key, ps::stale_index on_stale) {
    return ps::filter_options{.path = folder.path("f"), .key = key, .on_stale = on_stale};
  };
  const by_index odd = [](std::uint64_t i) { return i % 2 == 1; };
  static_cast<void>(triples{100} | ps::filter(every_third, options("k", {})));
  const auto check = [&](const auto& data, const std::string& key, std::uint64_t size,
                         const std::string& message) {
    const auto reject = options(key, ps::stale_index::reject);
    try {
      static_cast<void>(data | ps::filter(not_called_again, reject));
      FAIL("nothing thrown");
    } catch (const ps::file_format_error& problem) {
      CHECK(problem.what() ==
            folder.path("f") + message + ": remove the file, or set .on_stale = rebuild");
    }
    const filter_indices expected = kept_by_loop(size, odd);
    CHECK((data | ps::filter(odd, options(key, {}))).size() == expected.size());
    CHECK((data | ps::filter(not_called_again, reject)).size() == expected.size());
    static_cast<void>(triples{100} | ps::filter(every_third, options("k", {})));
  };
  check(triples{100}, "other", 100, ": at byte 64: expected the key \"other\", found \"k\"");
  check(triples{101}, "k", 101, ": at byte 16: expected a filter of 101 samples, found 100");
  const auto part = triples{200} | ps::subset(0, 100);
  check(part, "k", 100,
        ": at byte 32: expected the fingerprint " + std::to_string(ps::fingerprint_of(part)) +
            " of the selected samples, found 0");

  folder.write("f", {'m', 'y', ' ', 'n', 'o', 't', 'e', 's'});
  const auto problem = error_of<ps::file_format_error>(
      [&] { static_cast<void>(triples{100} | ps::filter(not_called_again, options("k", {}))); });
  CHECK(problem.found() == "other bytes: set .path to another file");
  CHECK(test::content_of(folder.path("f")) == "my notes");
}

TEST_CASE("any damage of a filter file is repaired or rejected", "[adaptors][fault:files-31]") {
  const test::temp_dir folder;
  const triples data{200};
  const ps::filter_options rebuild{.path = folder.path("f"), .key = "key", .workers = 1};
  ps::filter_options reject = rebuild;
  reject.on_stale = ps::stale_index::reject;
  const filter_indices expected = sources_of(data | ps::filter(every_third, rebuild));
  const std::string whole = test::content_of(rebuild.path);
  const auto check = [&](const std::string& damaged) {
    folder.write("f", {damaged.begin(), damaged.end()});
    REQUIRE_THROWS_AS(data | ps::filter(not_called_again, reject), ps::file_error);
    REQUIRE(test::content_of(rebuild.path) == damaged);
    if (damaged.size() < 8 || damaged.compare(0, 8, whole, 0, 8) != 0) {
      REQUIRE_THROWS_AS(data | ps::filter(not_called_again, rebuild), ps::file_format_error);
      REQUIRE(test::content_of(rebuild.path) == damaged);
    } else {
      REQUIRE(sources_of(data | ps::filter(every_third, rebuild)) == expected);
      REQUIRE(test::content_of(rebuild.path) == whole);
    }
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CAPTURE(at);
    check(damaged);
  }
  for (std::size_t size = 0; size < whole.size(); ++size) check(whole.substr(0, size));
  check(whole + '\0');

  // Bits beyond the last sample and a wrong count are detected even if the checksum is valid.
  const auto with_sum = [&](std::string bytes) {
    const std::uint64_t sum = ps::detail::checksum_of_index(std::as_bytes(std::span{bytes}));
    bytes.replace(8, 8, reinterpret_cast<const char*>(&sum), 8);
    return bytes;
  };
  CHECK(with_sum(whole) == whole);
  std::string longer = whole;
  longer[48 + 31] = 1;  // the last byte of the four words for 200 samples
  check(with_sum(longer));
  std::string counted = whole;
  counted[24] = static_cast<char>(counted[24] + 1);
  check(with_sum(counted));
  CHECK(has(error_of<ps::file_corrupt>([&] {
              folder.write("f", [&] {
                const std::string bytes = with_sum(counted);
                return test::file_bytes{bytes.begin(), bytes.end()};
              }());
              static_cast<void>(data | ps::filter(not_called_again, reject));
            }).what(),
            ": at byte 24: expected 67 kept samples, which are the bits of the file, found 68: "));
}

TEST_CASE("no predicate is called if the filter file cannot be created",
          "[adaptors][fault:files-31]") {
  const test::temp_dir folder;
  const std::string file = folder.write("file", {1});
  for (const std::string& path :
       {folder.path("no/f"), file + "/f", folder.path(std::string(300, 'x'))}) {
    CAPTURE(path);
    CHECK_THROWS_AS(triples{9} | ps::filter(not_called_again, {.path = path, .key = "k"}),
                    ps::file_unwritable);
  }
  CHECK_THROWS_AS(triples{9} | ps::filter(not_called_again, {.path = folder.path(""), .key = "k"}),
                  ps::file_unreadable);
}

TEST_CASE("a loader over a filter gives the same batches for any workers, and resumes",
          "[adaptors][promise:exact-1][promise:exact-6][promise:exact-8]") {
  const test::temp_dir folder;
  const triple_chunks data{{1000}};
  const auto predicate = [](ps::const_sample<filter_row> one) {
    return ps::get<"x">(one) % 5 != 0;
  };
  const auto options = [&](std::size_t workers) {
    return ps::filter_options{.path = folder.path("f"), .key = "k", .workers = workers};
  };
  const auto load = [&](std::size_t workers, ps::batch_position from) {
    const auto kept = data | ps::filter(predicate, options(workers));
    ps::loader loader{kept, shuffled_part(0, 1), {.batch_size = 32, .workers = workers}};
    return filtered_values(loader, from);
  };
  const auto whole = load(1, {});
  CHECK(load(4, {}) == whole);
  auto second = std::vector(whole.begin(), whole.begin() + 825);
  std::sort(second.begin(), second.end());
  const auto kept = data | ps::filter(predicate, {.workers = 2});
  filter_indices epoch;
  for (std::size_t i = 25; i < second.size(); ++i) {
    epoch.push_back(static_cast<std::uint64_t>(second[i]) / 3);
  }
  CHECK(epoch == sources_of(kept));  // 25 batches with each kept sample once
  const std::vector<std::int64_t> later(whole.begin() + 7 * 33, whole.end());
  CHECK(load(4, {0, 7}) == later);

  // Ranks divide the samples of an order among them. A state that was saved with a different filter
  // result is rejected.
  ps::loader one{kept, shuffled_part(0, 1), {.batch_size = 32}};
  std::vector<std::int64_t> joined;
  for (int rank = 0; rank < 2; ++rank) {
    ps::loader part{kept, shuffled_part(rank, 2), {.batch_size = 16, .workers = 2}};
    const auto some = filtered_values(part, {});
    joined.insert(joined.end(), some.begin(), some.end());
  }
  auto expected = filtered_values(one, {});
  std::erase(expected, -1);
  std::erase(joined, -1);
  std::sort(expected.begin(), expected.end());
  std::sort(joined.begin(), joined.end());
  CHECK(joined == expected);
}

TEST_CASE("the fingerprint of a filter depends only on the kept samples",
          "[adaptors][promise:exact-7]") {
  const triple_chunks data{{300}};
  const auto kept = [&](std::uint64_t offset, std::size_t workers) {
    const by_index shifted = [offset](std::uint64_t i) { return (i + offset) % 3 == 1; };
    return data | ps::filter(shifted, {.workers = workers});
  };
  const auto first = kept(0, 1);
  const auto other = kept(1, 1);
  REQUIRE(first.size() == other.size());
  CHECK(first.fingerprint() == kept(3, 4).fingerprint());
  CHECK(first.fingerprint() != other.fingerprint());
  ps::loader saved{first, shuffled_part(0, 1), {.batch_size = 32}};
  ps::loader resumed{other, shuffled_part(0, 1), {.batch_size = 32}};
  CHECK_THROWS_AS(resumed.resume(saved.state_at({0, 3}), 1), ps::state_mismatch);
  const auto none = data | ps::filter(by_index{[](std::uint64_t) { return false; }});
  CHECK_THROWS_AS((ps::loader{none, shuffled_part(0, 1), {.batch_size = 32}}), ps::empty_dataset);
}
