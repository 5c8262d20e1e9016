// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/batch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

using sentence =
    ps::record<ps::field<"tokens", std::uint16_t, ps::ragged>, ps::field<"label", std::uint8_t>>;
using speech = ps::record<ps::field<"wave", float, ps::ragged>, ps::field<"speaker", int>,
                          ps::field<"text", char, ps::ragged>>;
using plain = ps::record<ps::field<"x", float, 3>, ps::field<"y", int>>;

template <class Record>
struct ragged_slab {
  ps::batch_layout<Record> layout;
  std::vector<std::byte> bytes = std::vector<std::byte>(layout.bytes());

  [[nodiscard]] ps::batch_view<Record> view(std::size_t size) {
    return {bytes.data(), layout, 0, size};
  }
};

/// Returns a batch of three sentences with 3, 0 and 2 tokens: {10, 11, 12}, {} and {30, 31}.
ragged_slab<sentence> three_sentences() {
  ragged_slab<sentence> memory{.layout = {{{.longest = 4}, {}}, 3}};
  const auto batch = memory.view(3);
  const std::array<std::uint64_t, 3> lengths = {3, 0, 2};
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(ps::place_sample(batch, i, {lengths[i]}) == sentence::size);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const auto tokens = ps::get<"tokens">(batch[i]);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = static_cast<std::uint16_t>(10 * (i + 1) + t);
    }
    ps::get<"label">(batch[i]) = static_cast<std::uint8_t>(i);
  }
  return memory;
}

}  // namespace

TEST_CASE("a record without ragged fields has no ragged overhead", "[core][promise:bounded-5]") {
  struct as_before {
    std::array<std::byte*, 2> fields;
    const void* lengths;
  };
  struct layout_as_before {
    ps::record_extents<plain> lengths;
    std::size_t numbers[2 + 2 * 2];
  };
#if !PENSTOCK_CHECKED
  CHECK(sizeof(ps::sample<plain>) == sizeof(as_before));
#endif
  CHECK(sizeof(ps::batch_layout<plain>) == sizeof(layout_as_before));
  CHECK(plain::ragged_fields == 0);
  CHECK(speech::ragged_fields == 2);
  CHECK(sentence::has_dynamic_extents);
}

TEST_CASE("a sample's ragged field has the length of the sample", "[core][promise:exact-12]") {
  auto memory = three_sentences();
  const auto batch = memory.view(3);
  CHECK(ps::get<"tokens">(batch[0]).size() == 3);
  CHECK(ps::get<"tokens">(batch[1]).size() == 0);
  CHECK(ps::get<"tokens">(batch[2]).size() == 2);
  CHECK(ps::get<"tokens">(batch[2])(1) == 31);
  CHECK(ps::get<"tokens">(ps::const_sample<sentence>{batch[2]})(1) == 31);
}

TEST_CASE("a batch's ragged field has the values of all samples without gaps",
          "[core][promise:exact-12]") {
  auto memory = three_sentences();
  const auto tokens = ps::get<"tokens">(memory.view(3));
  CHECK(tokens.size() == 3);
  CHECK(std::vector<std::int32_t>(tokens.offsets().data(), tokens.offsets().data() + 4) ==
        std::vector<std::int32_t>{0, 3, 3, 5});
  CHECK(tokens.offsets().size() == 4);
  const auto all = tokens.values().flat();
  CHECK(std::vector<std::uint16_t>(all.begin(), all.end()) ==
        std::vector<std::uint16_t>{10, 11, 12, 30, 31});
  CHECK(tokens[2](0) == 30);
  CHECK(tokens.length(0) == 3);
  CHECK(tokens.max_length() == 3);
  CHECK(tokens.data() == tokens.values().data());
}

TEST_CASE("a part of a batch has the ragged values of its samples", "[core][promise:exact-12]") {
  auto memory = three_sentences();
  const auto part = memory.view(3).subchunk(1, 2);
  const auto tokens = ps::get<"tokens">(part);
  CHECK(tokens.size() == 2);
  CHECK(tokens.values().size() == 2);
  CHECK(tokens.values()(0) == 30);
  CHECK(tokens[1](1) == 31);
  CHECK(tokens.offsets()(0) == 3);
  CHECK(tokens.max_length() == 2);
  CHECK(ps::get<"tokens">(part[1])(0) == 30);
}

TEST_CASE("a mutable ragged view converts to a const view, but not the reverse", "[core]") {
  auto memory = three_sentences();
  const ps::const_batch_view<sentence> batch = memory.view(3);
  const ps::ragged_view<const std::uint16_t> tokens = ps::get<"tokens">(memory.view(3));
  CHECK(std::is_same_v<decltype(ps::get<"tokens">(batch)), ps::ragged_view<const std::uint16_t>>);
  CHECK_FALSE(std::is_convertible_v<ps::ragged_view<const int>, ps::ragged_view<int>>);
  CHECK(std::is_trivially_copyable_v<ps::ragged_view<int>>);
  CHECK(tokens[0](2) == 12);
}

TEST_CASE("a batch without samples has no values", "[core]") {
  ragged_slab<sentence> memory{.layout = {{{.longest = 4}, {}}, 3}};
  const auto tokens = ps::get<"tokens">(memory.view(0));
  CHECK(tokens.size() == 0);
  CHECK(tokens.values().size() == 0);
  CHECK(tokens.max_length() == 0);
  CHECK(tokens.offsets().size() == 1);
}

TEST_CASE(
    "offsets are at the position of their field, and values follow all fields at page boundaries",
    "[core][promise:bounded-5]") {
  const ps::batch_layout<speech> layout{{{.longest = 100}, {}, {.longest = 30}}, 64};
  CHECK(layout.offsets_at<0>() == 0);
  CHECK(layout.offset<1>() == 512);  // 65 * 4 = 260, rounded up
  CHECK(layout.offsets_at<2>() == 768);
  CHECK(layout.offset<0>() == 4096);             // 768 + 65 * 4, rounded up
  CHECK(layout.offset<2>() == 4096 + 28672);     // 64 * 100 * 4 = 25600, rounded up
  CHECK(layout.bytes() == 4096 + 28672 + 4096);  // 64 * 30 = 1920, rounded up
  CHECK(layout.capacity<0>() == 6400);
  CHECK(layout.sample_bytes<0>() == 400);
  CHECK(layout.used_bytes(64) == layout.bytes());
  CHECK(layout == ps::batch_layout<speech>{{{.longest = 100}, {}, {.longest = 30}}, 64});
}

TEST_CASE("a layout rejects invalid lengths and batch sizes with a reason", "[core]") {
  const auto rejected = [](sentence::field_at<0>::extents_type tokens,
                           std::size_t batch_size) -> std::string {
    return test::error_of<ps::layout_error>(
               [&] { ps::batch_layout<sentence>{{tokens, {}}, batch_size}; })
        .what();
  };
  CHECK(test::has(rejected({.longest = 4}, 0x7fffffff), "batch_size must be below 2^31 - 1"));
  CHECK(test::has(rejected({.longest = 0}, 3),
                  "the longest sample must have at least 1 value, but has 0"));
  CHECK(test::has(rejected({.longest = 4, .max_values_per_batch = 3}, 3),
                  "max_values_per_batch is 3, but the longest sample has 4: raise it"));
  CHECK(test::has(rejected({.longest = 1 << 30}, 3),
                  "3 samples of up to 1073741824 values exceed 32-bit offsets"));
}

TEST_CASE("the used bytes end with the last value", "[core][promise:bounded-5]") {
  auto memory = three_sentences();
  const auto& layout = memory.layout;
  CHECK(layout.used_bytes(3, memory.bytes.data()) == layout.offset<0>() + 5 * 2);
  CHECK(layout.used_bytes(1, memory.bytes.data()) == layout.offset<0>() + 3 * 2);
  CHECK(layout.used_bytes(0, memory.bytes.data()) == layout.offset<0>());
}

TEST_CASE("invalid offsets never report more bytes than the slab has",
          "[core][promise:bounded-5]") {
  auto memory = three_sentences();
  for (const std::int32_t wrong : {std::int32_t{-1}, std::int32_t{0x7fffffff}}) {
    std::memcpy(memory.bytes.data() + memory.layout.offsets_at<0>() + 3 * 4, &wrong, 4);
    CHECK(memory.layout.used_bytes(3, memory.bytes.data()) <= memory.layout.bytes());
  }
}

TEST_CASE("a batch may have room for fewer values than its longest samples need", "[core]") {
  const ps::batch_layout<sentence> layout{{{.longest = 100, .max_values_per_batch = 1000}, {}}, 64};
  CHECK(layout.capacity<0>() == 1000);
  const ps::batch_layout<sentence> roomy{{{.longest = 100, .max_values_per_batch = 9000}, {}}, 64};
  CHECK(roomy.capacity<0>() == 6400);  // a batch never needs more values
}

TEST_CASE("a sample without room is not placed", "[core][promise:bounded-5]") {
  ragged_slab<speech> memory{
      .layout = {{{.longest = 5, .max_values_per_batch = 8}, {}, {.longest = 5}}, 3}};
  const auto batch = memory.view(3);
  CHECK(ps::place_sample(batch, 0, {5, 1}) == speech::size);
  const auto offsets = ps::get<"wave">(batch).offsets();
  const auto before = offsets(2);
  CHECK(ps::place_sample(batch, 1, {4, 1}) == 0);
  CHECK(ps::place_sample(batch, 1, {3, 15}) == 2);
  CHECK(offsets(2) == before);  // the failed call places nothing
  CHECK(ps::place_sample(batch, 1, {3, 2}) == speech::size);
  CHECK(ps::get<"wave">(batch[1]).data() == ps::get<"wave">(batch[0]).data() + 5);
  CHECK(ps::get<"text">(batch[1]).data() == ps::get<"text">(batch[0]).data() + 1);
}

TEST_CASE("a layout with impossible ragged bounds is rejected", "[core][fault:samples-5]") {
  CHECK_THROWS_MATCHES((ps::batch_layout<sentence>{{{.longest = 0}, {}}, 4}), ps::layout_error,
                       Catch::Matchers::Message("batch_layout: field \"tokens\": the longest "
                                                "sample must have at least 1 value, but has 0"));
  CHECK_THROWS_MATCHES(
      (ps::batch_layout<sentence>{{{.longest = 9, .max_values_per_batch = 8}, {}}, 4}),
      ps::layout_error,
      Catch::Matchers::Message("batch_layout: field \"tokens\": max_values_per_batch is 8, but the "
                               "longest sample has 9: raise it to at least that"));
  CHECK_THROWS_WITH((ps::batch_layout<sentence>{{{.longest = 1U << 20}, {}}, 1U << 11}),
                    Catch::Matchers::Contains("set a smaller max_values_per_batch"));
  CHECK_NOTHROW(ps::batch_layout<sentence>{
      {{.longest = 1U << 20, .max_values_per_batch = 1U << 30}, {}}, 1U << 11});
  constexpr std::size_t huge = static_cast<std::size_t>(-1);
  CHECK_THROWS_AS((ps::batch_layout<sentence>{{{.longest = huge}, {}}, 3}), ps::layout_error);
  CHECK_THROWS_AS((ps::batch_layout<sentence>{{{.longest = 1}, {}}, huge}), ps::layout_error);
}

TEST_CASE("the values of a sample may be anywhere in memory", "[core]") {
  const std::uint16_t tokens[3] = {7, 8, 9};
  const std::uint8_t label = 1;
  const ps::record_extents<sentence> lengths{{.longest = 4}, {}};
  const ps::const_sample<sentence> in{
      {reinterpret_cast<const std::byte*>(tokens), reinterpret_cast<const std::byte*>(&label)},
      lengths,
      {3}};
  CHECK(ps::get<"tokens">(in).size() == 3);
  CHECK(ps::get<"tokens">(in)(2) == 9);
}
