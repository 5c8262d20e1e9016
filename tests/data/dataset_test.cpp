// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/dataset.hpp>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/planned.hpp"

namespace ps = penstock;

namespace {

using counted_number = ps::record<ps::field<"x", std::uint32_t>>;
using one_row = ps::record<ps::field<"x", std::uint32_t, ps::dyn>>;

struct plain_source {
  using record_type = counted_number;
  std::uint64_t size() const { return 100; }
  void read(std::uint64_t i, ps::sample<counted_number> out) const {
    if (i == 13) throw std::domain_error("thirteen");
    ps::get<"x">(out) = static_cast<std::uint32_t>(10 * i);
  }
};

struct random_source {
  using record_type = counted_number;
  std::uint64_t size() const { return 100; }
  void read(std::uint64_t, ps::sample<counted_number> out, ps::sample_generator& rng) const {
    ps::get<"x">(out) = rng();
  }
};

struct run_source {
  using record_type = counted_number;
  std::uint64_t size() const { return 100; }
  void read(std::uint64_t, ps::sample<counted_number>) const {
    throw std::logic_error("not the best");
  }
  void read_chunk(std::span<const std::uint64_t> indices,
                  ps::batch_view<counted_number> out) const {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] == 13) throw std::domain_error("thirteen");
      ps::get<"x">(out)(i) = static_cast<std::uint32_t>(10 * indices[i]);
    }
  }
};

struct dynamic_source {
  using record_type = one_row;
  std::uint64_t size() const { return 3; }
  ps::record_extents<one_row> extents() const { return {{4}}; }
  void read(std::uint64_t i, ps::sample<one_row> out) const {
    for (auto& x : ps::get<"x">(out).flat()) x = static_cast<std::uint32_t>(i);
  }
};

struct without_extents {
  using record_type = one_row;
  std::uint64_t size() const;
  void read(std::uint64_t, ps::sample<one_row>) const;
};

struct without_size {
  using record_type = counted_number;
  void read(std::uint64_t, ps::sample<counted_number>) const;
};

struct not_const {
  using record_type = counted_number;
  std::uint64_t size() const;
  void read(std::uint64_t, ps::sample<counted_number>);
};

/// A dataset of the samples of `first`, followed by those of `second` in reverse order.
template <class First>
struct there_and_back {
  using record_type = planned::record_type;
  First first;
  planned second;

  [[nodiscard]] std::uint64_t size() const { return first.size() + second.size(); }
  void read(std::uint64_t, ps::sample<record_type>) const {}
  template <class F>
  void each_base(std::span<const std::uint64_t> indices, const F& f) const {
    std::vector<std::uint64_t> before;
    std::vector<std::uint64_t> after;
    for (const std::uint64_t i : indices) {
      if (i < first.size()) before.push_back(i);
      if (i >= first.size() && i < size()) after.push_back(size() - 1 - i);
    }
    f(first, before);
    f(second, after);
  }
};

}  // namespace

TEST_CASE("a record, a size and a const read make a dataset", "[data]") {
  CHECK(ps::dataset<plain_source>);
  CHECK(ps::dataset<random_source>);
  CHECK(ps::dataset<run_source>);
  CHECK(ps::dataset<dynamic_source>);
  CHECK_FALSE(ps::dataset<without_extents>);
  CHECK_FALSE(ps::dataset<without_size>);
  CHECK_FALSE(ps::dataset<not_const>);
  CHECK_FALSE(ps::dataset<std::vector<int>>);
}

TEST_CASE("a chunk is read sample by sample if the dataset has no read_chunk", "[data]") {
  CHECK(test::values<"x">(test::read_batch(plain_source{}, {3, 1, 2})) ==
        std::vector<std::uint32_t>{30, 10, 20});
}

TEST_CASE("a dataset's own read_chunk is preferred", "[data]") {
  CHECK(test::values<"x">(test::read_batch(run_source{}, {3, 1, 2})) ==
        std::vector<std::uint32_t>{30, 10, 20});
}

TEST_CASE("a dataset reports its dynamic extents, and fixed extents are known", "[data]") {
  CHECK(ps::extents_of(dynamic_source{}).at<0>()[0] == 4);
  CHECK(ps::extents_of(plain_source{}).at<0>().size() == 1);
  CHECK(test::values<"x">(test::read_batch(dynamic_source{}, {2})) ==
        std::vector<std::uint32_t>{2, 2, 2, 2});
}

TEST_CASE("random reading depends on seed, epoch and sample and not on the place in the run",
          "[data]") {
  const auto read = [](const std::vector<std::uint64_t>& indices, ps::random_key key) {
    return test::values<"x">(test::read_batch(random_source{}, indices, key));
  };
  const ps::random_key key{.seed = 7, .epoch = 2, .stage = 0};
  const auto forward = read({1, 2, 3}, key);
  CHECK(read({3, 2, 1}, key) == std::vector<std::uint32_t>{forward[2], forward[1], forward[0]});
  CHECK(read({3}, key)[0] == forward[2]);
  CHECK(forward[0] != forward[1]);
  CHECK(read({1}, {.seed = 8, .epoch = 2, .stage = 0})[0] != forward[0]);
  CHECK(read({1}, {.seed = 7, .epoch = 3, .stage = 0})[0] != forward[0]);
}

TEST_CASE("the context of a part keeps the generator and the place of every sample", "[data]") {
  const std::vector<std::uint64_t> samples{10, 11, 12, 13, 14};
  std::atomic<std::size_t> progress{0};
  std::vector<std::byte> scratch(512);
  const ps::chunk_context whole{{.seed = 1, .epoch = 2, .stage = 0}, samples, scratch, progress};
  const auto part = whole.subchunk(1, 4).subchunk(2, 2);

  part.at(1);
  CHECK(progress == 4);
  auto from_whole = whole.generator(3, 5);
  auto from_part = part.generator(0, 5);
  CHECK(from_whole() == from_part());
  auto other_stage = whole.generator(3, 6);
  CHECK(ps::sample_generator{whole.generator(3, 5)}() != other_stage());

  CHECK(part.scratch().size() == 512);
  CHECK(part.below(256).scratch().data() == scratch.data() + 256);
  CHECK(part.below(256).scratch().size() == 256);
}

TEST_CASE("a reference to a dataset reads like it", "[data]") {
  const dynamic_source source;
  const ps::detail::dataset_ref<dynamic_source> reference{source};
  CHECK(ps::dataset<ps::detail::dataset_ref<dynamic_source>>);
  CHECK(reference.size() == 3);
  CHECK(reference.extents().at<0>()[0] == 4);
  CHECK(test::values<"x">(test::read_batch(reference, {1})) ==
        std::vector<std::uint32_t>{1, 1, 1, 1});
}

TEST_CASE("a sample's origin is found through every adaptor", "[data][promise:honest-1]") {
  const plain_source whole;  // a dataset of 100 samples
  const auto in_place = [](ps::sample<counted_number>) {};
  const auto into = [](ps::const_sample<counted_number>, ps::sample<counted_number>) {};
  const auto some =
      whole | ps::subset({7, 5, 9}) | ps::map(in_place) | ps::map<counted_number>(into);
  CHECK(ps::origin_of(whole, 8) == ps::sample_origin{8, 0});
  CHECK(ps::origin_of(some, 2) == ps::sample_origin{9, 0});
  CHECK(ps::origin_of(some | ps::subset(1, 2), 0) == ps::sample_origin{5, 0});
  CHECK(ps::base_sizes_of(some) == std::vector<std::uint64_t>{100});

  const auto all = ps::concat(some, ps::concat(whole, some), whole | ps::subset(90, 100));
  CHECK(ps::base_sizes_of(all) == std::vector<std::uint64_t>{100, 100, 100, 100});
  CHECK(ps::origin_of(all, 0) == ps::sample_origin{7, 0});
  CHECK(ps::origin_of(all, 3) == ps::sample_origin{0, 1});
  CHECK(ps::origin_of(all, 104) == ps::sample_origin{5, 2});
  CHECK(ps::origin_of(all | ps::subset(100, 110), 9) == ps::sample_origin{93, 3});
  CHECK(ps::origin_of(all, 1000) == ps::sample_origin{1000, 0});  // an index out of range
}

TEST_CASE("a user's adaptor forwards everything through each_base", "[data][promise:bounded-12]") {
  const planned one{10};
  planned two{20};
  two.keeps = 300;
  two.plans = 200;
  auto parts = ps::concat(planned{5}, one | ps::subset({7, 8, 9}));
  const auto all = there_and_back<decltype(parts)>{parts, two} | ps::map([](auto) {});
  CHECK(ps::base_sizes_of(all) == std::vector<std::uint64_t>{5, 10, 20});
  CHECK(ps::origin_of(all, 2) == ps::sample_origin{2, 0});
  CHECK(ps::origin_of(all, 6) == ps::sample_origin{8, 1});
  CHECK(ps::origin_of(all, 8) == ps::sample_origin{19, 2});
  CHECK(ps::origin_of(all, 28) == ps::sample_origin{28, 0});  // an index out of range
  CHECK(ps::prefetch_capacity_of(all) == 300);
  CHECK(ps::plan_capacity_of(all) == 200);
  CHECK(ps::storage_size_of(all, 6) == one.storage_size(8));
  CHECK(ps::storage_size_of(all, 28) == 0);
  ps::prefetch_hint(all, std::vector<std::uint64_t>{5, 9, 28, 7});
  CHECK(one.seen->reported() == std::vector<std::uint64_t>{7, 9});
  CHECK(two.seen->reported() == std::vector<std::uint64_t>{18});
  ps::access_plan(all, std::vector<std::uint64_t>{8, 6, 10});
  CHECK(two.seen->foreseen == std::vector<std::uint64_t>{19, 17});
  // The call does not change the plan of `two`.
  ps::access_plan(all, std::vector<std::uint64_t>{5});
  CHECK(two.seen->foreseen == std::vector<std::uint64_t>{19, 17});
  ps::access_plan(all, {});
  CHECK(two.seen->foreseen.empty());

  const auto list = ps::concat(std::vector{planned{5}, two}) | ps::map([](auto) {});
  CHECK(ps::prefetch_capacity_of(list) == 300);
  CHECK(ps::storage_size_of(list, 8) == two.storage_size(3));
  ps::access_plan(list, std::vector<std::uint64_t>{4, 8});
  CHECK(two.seen->foreseen == std::vector<std::uint64_t>{3});
  ps::access_plan(list, std::vector<std::uint64_t>{4});
  CHECK(two.seen->foreseen == std::vector<std::uint64_t>{3});
  ps::access_plan(list, {});
  CHECK(two.seen->foreseen.empty());
}

TEST_CASE("an adaptor refers to an lvalue and owns an rvalue", "[data]") {
  CHECK(std::is_same_v<ps::stored_dataset_t<plain_source&>, ps::detail::dataset_ref<plain_source>>);
  CHECK(std::is_same_v<ps::stored_dataset_t<const plain_source&>,
                       ps::detail::dataset_ref<plain_source>>);
  CHECK(std::is_same_v<ps::stored_dataset_t<plain_source>, plain_source>);
}
