// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/map.hpp>

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/data/memory_dataset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using named_number = ps::record<ps::field<"x", std::int32_t>, ps::field<"id", std::uint8_t>>;
using float_row = ps::record<ps::field<"row", float, 2>>;
using dynamic_row = ps::record<ps::field<"row", float, ps::dyn>>;
using numbers = std::vector<std::int32_t>;
using bits = ps::record<ps::field<"bits", std::uint32_t>>;

struct arrays {
  numbers x = numbers(100);
  std::vector<std::uint8_t> id = std::vector<std::uint8_t>(100);
  ps::memory_dataset<named_number> data;

  arrays() : data((std::iota(x.begin(), x.end(), 0), x), id) {
    std::iota(id.begin(), id.end(), std::uint8_t{0});
  }
  arrays(const arrays&) = delete;
  arrays& operator=(const arrays&) = delete;
};

// A dataset that draws random bits in its reads and provides no sample views.
struct drawn_source {
  using record_type = bits;
  std::uint64_t size() const { return 100; }
  void read(std::uint64_t, ps::sample<bits> out, ps::sample_generator& rng) const {
    ps::get<"bits">(out) = rng();
  }
};

constexpr auto twice = [](ps::sample<named_number> s) { ps::get<"x">(s) *= 2; };
constexpr auto to_row = [](ps::const_sample<named_number> in, ps::sample<float_row> out) {
  ps::get<"row">(out)(0) = static_cast<float>(ps::get<"x">(in));
  ps::get<"row">(out)(1) = -static_cast<float>(ps::get<"id">(in));
};

// A dataset that provides only reads, so that `map` needs scratch memory.
struct opaque {
  using record_type = named_number;
  const ps::memory_dataset<named_number>* data;
  std::uint64_t size() const { return data->size(); }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<named_number> out,
                  const ps::chunk_context& context) const {
    data->read_chunk(indices, out, context);
  }
};

}  // namespace

TEST_CASE("map changes the samples in place and leaves the dataset as it is", "[data]") {
  const arrays source;
  const auto mapped = source.data | ps::map(twice);
  CHECK(ps::dataset<decltype(mapped)>);
  CHECK(mapped.size() == 100);
  auto batch = test::read_batch(mapped, {3, 50, 3});
  CHECK(test::values<"x">(std::move(batch)) == numbers{6, 100, 6});
  CHECK(source.x[50] == 50);
}

TEST_CASE("map makes samples of another record, with and without a view below", "[data]") {
  const arrays source;
  const auto read = [](const auto& mapped) {
    return test::values<"row">(test::read_batch(mapped, {99, 5, 0, 1, 2, 3, 4}));
  };
  const std::vector<float> expected{99, -99, 5, -5, 0, 0, 1, -1, 2, -2, 3, -3, 4, -4};
  const auto viewed = source.data | ps::map<float_row>(to_row);
  CHECK(viewed.scratch_bytes() == 0);
  CHECK(read(viewed) == expected);
  const auto copied = opaque{&source.data} | ps::map<float_row>(to_row);
  CHECK(copied.scratch_bytes() == 512);
  CHECK(read(copied) == expected);
}

TEST_CASE("maps into other records can be stacked", "[data]") {
  const arrays source;
  const auto back = [](ps::const_sample<float_row> in, ps::sample<named_number> out) {
    ps::get<"x">(out) = -1;  // written before the read to detect overlapping memory
    ps::get<"x">(out) = static_cast<std::int32_t>(ps::get<"row">(in)(0));
    ps::get<"id">(out) = static_cast<std::uint8_t>(-ps::get<"row">(in)(1));
  };
  const auto mapped = source.data | ps::map(twice) | ps::map<float_row>(to_row) |
                      ps::map<named_number>(back) | ps::map(twice) | ps::map<float_row>(to_row);
  CHECK(mapped.scratch_bytes() == 512 + 256 + 512);
  CHECK(test::values<"row">(test::read_batch(mapped, {7, 8})) ==
        std::vector<float>{28, -7, 32, -8});
}

TEST_CASE("map accepts the extents of a dynamic record", "[data]") {
  const arrays source;
  const auto mapped = source.data | ps::map<dynamic_row>(
                                        [](auto in, auto out) {
                                          for (float& x : ps::get<"row">(out).flat()) {
                                            x = static_cast<float>(ps::get<"x">(in));
                                          }
                                        },
                                        {{3}});
  CHECK(mapped.extents().at<0>()[0] == 3);
  CHECK(test::values<"row">(test::read_batch(mapped, {4})) == std::vector<float>{4, 4, 4});
}

TEST_CASE("the random bits of a map depend on seed, epoch and sample alone",
          "[data][promise:exact-2]") {
  const arrays source;
  const auto draw = [](ps::const_sample<named_number>, ps::sample<bits> out,
                       ps::sample_generator& rng) { ps::get<"bits">(out) = rng(); };
  const auto mapped = source.data | ps::map<bits>(draw);
  const auto read = [&](const std::vector<std::uint64_t>& indices, std::uint64_t epoch) {
    return test::values<"bits">(
        test::read_batch(mapped, indices, {.seed = 1, .epoch = epoch, .stage = 0}));
  };
  const auto together = read({10, 11, 12}, 4);
  CHECK(read({12}, 4)[0] == together[2]);
  CHECK(read({11, 10}, 4)[0] == together[1]);
  CHECK(together[0] != together[1]);
  CHECK(read({10}, 5)[0] != together[0]);
}

TEST_CASE("every random stage has its own random bits", "[data][promise:exact-2]") {
  // Each stage stores its random numbers next to the existing fields.
  using one = ps::record<ps::field<"a", std::uint32_t>>;
  using two = ps::record<ps::field<"a", std::uint32_t>, ps::field<"b", std::uint32_t>>;
  const auto first = [](ps::const_sample<bits> in, ps::sample<one> out) {
    ps::get<"a">(out) = ps::get<"bits">(in);
  };
  const auto second = [](ps::const_sample<one> in, ps::sample<two> out, ps::sample_generator& rng) {
    ps::get<"a">(out) = ps::get<"a">(in);
    ps::get<"b">(out) = rng();
  };
  const auto third = [](ps::sample<two> s, ps::sample_generator& rng) {
    CHECK(rng() != ps::get<"b">(s));
  };
  const auto mapped = drawn_source{} | ps::map<one>(first) | ps::map<two>(second) | ps::map(third);
  auto batch = test::read_batch(mapped, {0, 1, 2});
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(batch.get<"a">()(i) != batch.get<"b">()(i));
  }
}

TEST_CASE("a map without random bits does not change the bits of the next map",
          "[data][promise:exact-2]") {
  const arrays source;
  const auto draw = [](ps::sample<named_number> s, ps::sample_generator& rng) {
    ps::get<"x">(s) = static_cast<std::int32_t>(rng() >> 1U);
  };
  CHECK(test::values<"x">(test::read_batch(source.data | ps::map(draw), {1, 2})) ==
        test::values<"x">(test::read_batch(source.data | ps::map(twice) | ps::map(draw), {1, 2})));
}

TEST_CASE("an exception of a map function keeps its type and names the sample",
          "[data][promise:honest-1][fault:samples-1]") {
  const arrays source;
  test::batch_memory<float_row> rows{{}, 3};
  test::batch_memory<named_number> same{{}, 3};
  const std::vector<std::uint64_t> indices{1, 13, 2};
  const auto throwing = [](ps::sample<named_number> s) {
    if (ps::get<"x">(s) == 13) throw std::domain_error("thirteen");
  };
  SECTION("in place") {
    const auto mapped = source.data | ps::map(throwing);
    ps::reader reader{mapped};
    CHECK_THROWS_AS(reader.read(indices, same.view(), {}), std::domain_error);
    CHECK(reader.failed_at() == 1);
  }
  SECTION("below a map into another record") {
    const auto mapped = source.data | ps::map(throwing) | ps::map<float_row>(to_row);
    ps::reader reader{mapped};
    CHECK_THROWS_AS(reader.read(indices, rows.view(), {}), std::domain_error);
    CHECK(reader.failed_at() == 1);
  }
  SECTION("in a map into another record") {
    const auto mapped = source.data | ps::map<float_row>([](auto in, auto) {
                          if (ps::get<"x">(in) == 13) throw std::domain_error("thirteen");
                        });
    ps::reader reader{mapped};
    CHECK_THROWS_AS(reader.read(indices, rows.view(), {}), std::domain_error);
    CHECK(reader.failed_at() == 1);
  }
  SECTION("an index beyond the end") {
    const std::vector<std::uint64_t> bad{1, 100, 2};
    const auto mapped = source.data | ps::map<float_row>(to_row);
    ps::reader reader{mapped};
    CHECK_THROWS_AS(reader.read(bad, rows.view(), {}), ps::index_error);
    CHECK(reader.failed_at() == 1);
  }
}

TEST_CASE("a function that can't be copied is moved into the map", "[data]") {
  const arrays source;
  auto mapped = source.data | ps::map([by = std::make_unique<int>(3)](ps::sample<named_number> s) {
                  ps::get<"x">(s) += *by;
                });
  CHECK(test::values<"x">(test::read_batch(mapped, {1})) == numbers{4});
  const auto moved = std::move(mapped);
  CHECK(test::values<"x">(test::read_batch(moved, {2})) == numbers{5});
}

TEST_CASE("a function pointer is a map function", "[data]") {
  const arrays source;
  void (*function)(ps::sample<named_number>) = twice;
  CHECK(test::values<"x">(test::read_batch(source.data | ps::map(function), {4})) == numbers{8});
}
