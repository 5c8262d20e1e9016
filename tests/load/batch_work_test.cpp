// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/batch_work.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/load/support/plan.hpp>
#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using work = ps::detail::batch_work;

void note(work& batch, std::size_t position) {
  try {
    throw std::runtime_error(std::to_string(position));
  } catch (...) {
    batch.record_failed({std::current_exception(), ps::failure{"read", 0, 0, position, position}});
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::runtime_error& found) {
    return found.what();
  }
}

}  // namespace

TEST_CASE("only the last chunk of a batch finishes it, and the slot can then be reopened",
          "[load]") {
  work batch;
  for (int round = 0; round < 2; ++round) {
    batch.reset(0, 3, 1);
    CHECK_FALSE(batch.finish_chunk());
    CHECK_FALSE(batch.finish_chunk());
    CHECK(batch.finish_chunk());
  }
}

TEST_CASE("the error at the lowest position is kept and retrieved once",
          "[load][fault:samples-1]") {
  work batch;
  CHECK_FALSE(batch.failed());
  note(batch, 5);
  note(batch, 2);
  note(batch, 9);
  REQUIRE(batch.failed());
  const auto first = std::exchange(batch.failed(), {});
  CHECK(first.place->position == 2);
  CHECK(text_of(first.error) == "2");
  CHECK_FALSE(batch.failed());
  note(batch, 9);  // a new batch in this slot may record an error at a higher position
  CHECK(batch.failed().place->position == 9);
}

TEST_CASE("a padded batch continues at the start of its epoch, for any number of samples",
          "[load]") {
  const std::uint64_t samples = GENERATE(~std::uint64_t{0}, std::uint64_t{25}, std::uint64_t{3});
  const ps::detail::epoch_plan plan{samples, 10, ps::last_batch::pad};
  const std::uint64_t last = plan.batches() - 1;
  for (std::size_t begin = 0; begin < 10; ++begin) {
    std::vector<std::uint64_t> found(10 - begin);
    ps::detail::pick_samples(ps::detail::identity_order{}, plan, plan.at({0, last}), begin, found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::uint64_t left = samples - last * 10;
      const std::uint64_t place = begin + i;
      CHECK(found[i] == (place < left ? last * 10 + place : (place - left) % samples));
    }
  }
}
