// SPDX-License-Identifier: BSL-1.0
// Tests that reading allocates no memory.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/adaptors/exclude.hpp>
#include <penstock_ext/adaptors/interleave.hpp>
#include <penstock_ext/adaptors/with_index.hpp>
#include <penstock_ext/adaptors/zip.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

namespace ps = penstock;

namespace {

using digit =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
using input = ps::record<ps::field<"x", float, 784>, ps::field<"label", std::int32_t>>;

template <ps::dataset D>
std::size_t allocations_while_reading(const D& data) {
  test::batch_memory<typename D::record_type> memory{ps::extents_of(data), 200};
  std::vector<std::uint64_t> indices(200);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i * 37 % data.size();
  ps::reader reader{data};
  const auto view = memory.view();
  const std::size_t before = test::allocations.load();
  reader.read(indices, view, {});
  return test::allocations.load() - before;
}

}  // namespace

TEST_CASE("operator new counts allocations", "[data]") {
  const std::size_t before = test::allocations.load();
  delete new int;
  // A compiler may optimize away the new and delete above, but not this allocation.
  std::vector<int> kept(100);
  CHECK(kept.size() == 100);
  CHECK(test::allocations.load() > before);
}

TEST_CASE("reading allocates nothing, through every adaptor", "[data][promise:bounded-2]") {
  const std::vector<std::uint8_t> pixels(784 * 100);
  const std::vector<std::uint8_t> labels(100);
  const ps::memory_dataset<digit> data{pixels, labels};
  const auto brighter = [](ps::sample<digit> s, ps::sample_generator& rng) {
    for (auto& p : ps::get<"image">(s).flat()) p = static_cast<std::uint8_t>(p + (rng() & 1U));
  };
  const auto convert = [](ps::const_sample<digit> in, ps::sample<input> out) {
    for (std::size_t j = 0; j < 784; ++j) ps::get<"x">(out)(j) = ps::get<"image">(in).flat()[j];
    ps::get<"label">(out) = ps::get<"label">(in);
  };
  using scalar = ps::record<ps::field<"sum", float>>;
  const auto measure = [](ps::const_sample<digit> in, ps::sample<scalar> out) {
    ps::get<"sum">(out) = static_cast<float>(ps::get<"label">(in));
  };
  CHECK(allocations_while_reading(data) == 0);
  CHECK(allocations_while_reading(data | ps::map(brighter)) == 0);
  CHECK(allocations_while_reading(data | ps::map<input>(convert)) == 0);
  CHECK(allocations_while_reading(data | ps::map(brighter) | ps::map<input>(convert)) == 0);
  CHECK(allocations_while_reading(data | ps::subset({1, 2, 3, 4, 99})) == 0);
  CHECK(allocations_while_reading(ps::concat(data, data | ps::map(brighter)) |
                                  ps::map<input>(convert) | ps::subset(10, 190)) == 0);
  CHECK(allocations_while_reading(data | ps::exclude({7, 8, 50})) == 0);
  CHECK(allocations_while_reading(ps::any_dataset{data} | ps::map(brighter)) == 0);
  CHECK(allocations_while_reading(ps::interleave({.weights = {3, 2}}, data, data)) == 0);
  CHECK(allocations_while_reading(ps::zip(data, data | ps::map<scalar>(measure)) |
                                  ps::with_index()) == 0);
}
