// SPDX-License-Identifier: BSL-1.0
// Tests that loaded rows of packed documents do not depend on the number of workers, ranks or
// resumes.
#include <penstock_ext/text/packed_documents.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>

#include "ext/text/token_lists.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;

namespace {

const ps::packing_options packing{.length = 64, .seed = 2, .window = 40, .cached_windows = 2};

// A common sampler type with batches of 8 rows, so that the tests instantiate only one loader type.
ps::sharded<ps::block_shuffled> order_of(int rank, int world) {
  return {ps::block_shuffled{.seed = 1, .block = 16},
          {.rank = rank, .world = world, .global_batch = 8}};
}

template <class Batch>
void append_row(std::vector<std::int64_t>& all, const Batch& batch, std::size_t row) {
  for (std::size_t i = 0; i < packing.length; ++i) {
    all.push_back(ps::get<"tokens">(batch)(row, i));
    all.push_back(ps::get<"labels">(batch)(row, i));
  }
  all.push_back(ps::get<"sequences">(batch)(row));
}

template <class Range>
std::vector<std::int64_t> rows_in(Range range) {
  std::vector<std::int64_t> all;
  for (auto& batch : range) {
    for (std::size_t row = 0; row < batch.size(); ++row) append_row(all, batch, row);
  }
  return all;
}

}  // namespace

TEST_CASE("packed rows are the same for any number of workers, and after a resume",
          "[packed][promise:exact-13]") {
  const test::numbered_documents documents{test::mixed_lengths(400)};
  const auto rows = ps::pack_documents<std::uint32_t>(documents, packing);
  const auto order = order_of(0, 1);
  ps::loader one{rows, order, {.batch_size = 8, .workers = 0}};
  const auto expected = rows_in(one.epoch(1));
  for (const std::size_t workers : {1U, 4U}) {
    ps::loader several{rows, order, {.batch_size = 8, .workers = workers}};
    CHECK(rows_in(several.epoch(1)) == expected);
  }
  std::vector<std::int64_t> parts;
  for (auto& batch : one.epoch(1)) {
    for (std::size_t row = 0; row < batch.size(); ++row) append_row(parts, batch, row);
    if (batch.number() == 5) break;
  }
  const ps::loader_state state = one.state();
  const auto again = ps::pack_documents<std::uint32_t>(documents, packing);
  ps::loader next{again, order, {.batch_size = 8, .workers = 3}};
  const auto rest = rows_in(next.resume(state, 2));
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == expected);

  ps::packing_options other = packing;
  other.seed = 3;
  const auto packed_anew = ps::pack_documents<std::uint32_t>(documents, other);
  ps::loader rejecting{packed_anew, order, {.batch_size = 8, .workers = 0}};
  CHECK_THROWS_AS(rejecting.resume(state, 2), ps::state_mismatch);
}

TEST_CASE("packed rows of all ranks equal the rows of a single rank",
          "[packed][promise:exact-13]") {
  const test::numbered_documents documents{test::mixed_lengths(300)};
  const auto rows = ps::pack_documents<std::uint32_t>(documents, packing);
  std::vector<std::vector<std::int64_t>> worlds;
  for (const int world : {1, 2, 4}) {
    std::vector<std::vector<std::int64_t>> steps;
    for (int rank = 0; rank < world; ++rank) {
      const auto order = order_of(rank, world);
      ps::loader loader{rows, order, {.batch_size = order.batch_size(), .workers = 2}};
      for (auto& batch : loader.epoch(0)) {
        if (steps.size() <= batch.number()) steps.resize(batch.number() + 1);
        for (std::size_t row = 0; row < batch.size(); ++row) {
          append_row(steps[batch.number()], batch, row);
        }
      }
    }
    auto& all = worlds.emplace_back();
    for (const auto& step : steps) all.insert(all.end(), step.begin(), step.end());
  }
  CHECK(worlds[1] == worlds[0]);
  CHECK(worlds[2] == worlds[0]);
}
