// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/batch_work.hpp>

#include <exception>
#include <stdexcept>
#include <string>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using work = ps::detail::batch_work<int>;

void note(work& batch, std::size_t position) {
  try {
    throw std::runtime_error(std::to_string(position));
  } catch (...) {
    batch.note_error({"read", 0, 0, position, position});
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

TEST_CASE("only the last run of a batch finishes it, and a slot can be opened again", "[load]") {
  work batch;
  for (int round = 0; round < 2; ++round) {
    batch.open(0, 3, 1);
    CHECK_FALSE(batch.finish_run());
    CHECK_FALSE(batch.finish_run());
    CHECK(batch.finish_run());
  }
}

TEST_CASE("the error of the lowest position is kept, and taken once", "[load]") {
  work batch;
  CHECK(batch.take_error() == nullptr);
  note(batch, 5);
  note(batch, 2);
  note(batch, 9);
  CHECK(batch.error_where().position == 2);
  const auto error = batch.take_error();
  REQUIRE(error != nullptr);
  CHECK(text_of(error) == "2");
  CHECK(batch.take_error() == nullptr);
  note(batch, 9);  // the next batch in this slot: a higher position counts again
  CHECK(batch.error_where().position == 9);
}
