// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/batch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using digit = ps::record<ps::field<"image", std::uint16_t, 2, 3>, ps::field<"label", std::uint8_t>>;
using text = ps::record<ps::field<"tokens", std::int32_t, ps::dyn>, ps::field<"length", int>>;

template <class Record>
struct slab {
  ps::batch_layout<Record> layout;
  alignas(256) std::array<std::byte, 2048> bytes{};

  ps::batch_view<Record> view() {
    REQUIRE(layout.bytes() <= bytes.size());
    return {bytes.data(), layout, 0, layout.batch_size()};
  }
};

void write_label(ps::sample<digit> out) { ps::get<"label">(out) = 9; }
int read_label(ps::const_sample<digit> in) { return ps::get<"label">(in); }

}  // namespace

TEST_CASE("a view of a batch has one more extent than its field", "[core]") {
  slab<digit> memory{.layout = {{}, 4}};
  const auto image = ps::get<"image">(memory.view());
  CHECK(std::is_same_v<decltype(image), const ps::tensor_view<std::uint16_t, ps::dyn, 2, 3>>);
  CHECK(image.extent(0) == 4);
  CHECK(image.size() == 24);
  const auto label = ps::get<"label">(memory.view());
  CHECK(label.size() == 4);
}

TEST_CASE("a sample refers to its own place in each field", "[core]") {
  slab<digit> memory{.layout = {{}, 4}};
  const auto batch = memory.view();
  const auto third = batch[2];
  ps::get<"image">(third)(1, 2) = 77;
  ps::get<"label">(third) = 5;
  CHECK(ps::get<"image">(batch)(2, 1, 2) == 77);
  CHECK(ps::get<"label">(batch)(2) == 5);
  CHECK(ps::get<"label">(batch)(1) == 0);
  CHECK(third.get<"image">().data() == batch.get<"image">()[2].data());
}

TEST_CASE("a field without extents is a reference in a sample", "[core]") {
  slab<digit> memory{.layout = {{}, 1}};
  const auto one = memory.view()[0];
  CHECK(std::is_same_v<decltype(ps::get<"label">(one)), std::uint8_t&>);
  const ps::const_sample<digit> fixed = one;
  CHECK(std::is_same_v<decltype(ps::get<"label">(fixed)), const std::uint8_t&>);
}

TEST_CASE("a sample converts to a const sample and not back", "[core]") {
  slab<digit> memory{.layout = {{}, 2}};
  const auto batch = memory.view();
  write_label(batch[1]);
  CHECK(read_label(batch[1]) == 9);
  CHECK(read_label(batch[0]) == 0);
  CHECK_FALSE(std::is_convertible_v<ps::const_sample<digit>, ps::sample<digit>>);
  CHECK_FALSE(std::is_convertible_v<ps::const_batch_view<digit>, ps::batch_view<digit>>);
}

TEST_CASE("the fields of a sample may be in different arrays", "[core]") {
  const std::uint16_t pixels[6] = {1, 2, 3, 4, 5, 6};
  const std::uint8_t label = 3;
  const ps::record_extents<digit> lengths;
  const ps::const_sample<digit> in{
      {reinterpret_cast<const std::byte*>(pixels), reinterpret_cast<const std::byte*>(&label)},
      lengths};
  CHECK(ps::get<"image">(in)(1, 0) == 4);
  CHECK(ps::get<"label">(in) == 3);
  CHECK(in.address(1) == reinterpret_cast<const std::byte*>(&label));
}

TEST_CASE("a subchunk counts from its own start", "[core]") {
  slab<digit> memory{.layout = {{}, 5}};
  const auto batch = memory.view();
  const auto run = batch.subchunk(1, 3).subchunk(1, 2);
  CHECK(run.size() == 2);
  CHECK(run.first() == 2);
  ps::get<"label">(run[1]) = 42;
  CHECK(ps::get<"label">(batch)(3) == 42);
  CHECK(ps::get<"label">(run).size() == 2);
  CHECK(ps::get<"label">(run)(1) == 42);
}

TEST_CASE("a const batch view has const elements", "[core]") {
  slab<digit> memory{.layout = {{}, 2}};
  const ps::const_batch_view<digit> batch = memory.view();
  CHECK(std::is_same_v<decltype(batch.get<"image">()),
                       ps::tensor_view<const std::uint16_t, ps::dyn, 2, 3>>);
  CHECK(batch.size() == 2);
}

TEST_CASE("views of batches and samples have the dynamic extents", "[core]") {
  slab<text> memory{.layout = {{{7}, {}}, 3}};
  const auto batch = memory.view();
  const auto tokens = ps::get<"tokens">(batch);
  CHECK(tokens.extent(0) == 3);
  CHECK(tokens.extent(1) == 7);
  ps::get<"tokens">(batch[2])(6) = -5;
  CHECK(tokens(2, 6) == -5);
  CHECK(ps::get<"tokens">(batch[2]).extent(0) == 7);
}
