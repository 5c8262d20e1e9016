// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/table/arrow_table.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::made_column;

namespace {

made_column points(std::size_t rows) {
  return test::structs("", {test::numbers("x", "f", test::counted<float>(rows)),
                            test::strings("name", "u", std::vector<std::string>(rows, "a"))});
}

std::string rejected_table(const std::function<void(made_column&)>& change) {
  made_column made = points(3);
  change(made);
  int released = 0;
  const auto problem = test::error_of<ps::arrow_invalid>([&] {
    const ps::arrow_table table{test::schema_of(made, &released), test::array_of(made, &released)};
  });
  CHECK(released == 2);
  CHECK(problem.where() == "arrow_table");
  return problem.expected() + " / " + problem.found();
}

}  // namespace

TEST_CASE("the rows of a stream's batches are numbered through", "[table][promise:race-free-9]") {
  test::made_stream made{{points(3), points(0), points(1), points(2)}};
  std::optional<ps::arrow_table> table{made.stream()};
  CHECK(made.released == 1);
  CHECK(made.batches_released == 1);  // the batch without rows was released
  CHECK(table->size() == 6);
  REQUIRE(table->batches() == 3);
  const std::vector<std::size_t> batches{0, 0, 0, 1, 2, 2};
  for (std::size_t row = 0; row < 6; ++row) CHECK(table->batch_of(row) == batches[row]);
  CHECK(table->first_row(0) == 0);
  CHECK(table->first_row(2) == 4);
  CHECK(table->batch(2).length == 2);
  const ps::arrow_table copy = *table;
  table.reset();
  CHECK(made.batches_released == 1);
  CHECK(copy.batch(0).length == 3);
}

TEST_CASE("a table is released with its last copy", "[table][promise:race-free-9]") {
  test::made_stream made{{points(3), points(1)}};
  {
    const ps::arrow_table first{made.stream()};
    const ps::arrow_table second = first;
    CHECK(made.batches_released == 0);
  }
  CHECK(made.batches_released == 2);
}

TEST_CASE("a failed stream reports the reason and is released with its batches",
          "[table][fault:files-11]") {
  test::made_stream made{{points(3), points(1)}, 1};
  const auto problem =
      test::error_of<ps::arrow_stream_failed>([&] { ps::arrow_table{made.stream()}; });
  CHECK(problem.code() == 5);
  CHECK(problem.found() == "the disk is on fire");
  CHECK(made.released == 1);
  CHECK(made.batches_released == 1);
  test::made_stream silent{{points(3)}, 0};
  silent.said = "";
  CHECK(test::error_of<ps::arrow_stream_failed>([&] {
          ps::arrow_table{silent.stream()};
        }).found() == "error 5");
}

TEST_CASE("a stream that is not a table is rejected and released", "[table][fault:files-11]") {
  CHECK(rejected_table([](made_column& t) { t.format = "i"; }) ==
        "a struct, whose members are the columns / int32");
  CHECK(rejected_table([](made_column& t) { t.has_dictionary = true; }) ==
        "a struct, whose members are the columns / dictionary<struct>");
  CHECK(rejected_table([](made_column& t) { t.length = -1; }) == "a length of 0 or more / -1");
  CHECK(rejected_table([](made_column& t) { t.offset = -7; }) == "an offset of 0 or more / -7");
  CHECK(rejected_table([](made_column& t) {
          t.length = std::int64_t{1} << 62;
        }).starts_with("at most "));
  CHECK(rejected_table([](made_column& t) {
          t.offset = std::int64_t{1} << 62;
        }).starts_with("at most "));
  CHECK(rejected_table([](made_column& t) { t.buffers.clear(); }) == "1 buffers / 0");
  CHECK(rejected_table([](made_column& t) { t.null_count = 4; }) == "0 to 3 nulls / 4");
  CHECK(rejected_table([](made_column& t) { t.null_count = -2; }) == "0 to 3 nulls / -2");
  CHECK(rejected_table([](made_column& t) { t.null_count = 1; }) ==
        "a bitmap for 1 nulls / a null pointer");
  CHECK(rejected_table([](made_column& t) { t.buffers[0] = test::bits_of("101"); }) ==
        "rows / a row that is null");
  CHECK(rejected_table([](made_column& t) {
          t.children[0] = {"x", "+l", 3, {std::nullopt, std::nullopt}};
        }) == "1 child of a list / 0");
  CHECK(rejected_table([](made_column& t) {
          for (int i = 0; i < 70; ++i) t.children[0] = test::fixed_lists("x", 1, t.children[0]);
        }) == "types nested at most 64 deep / deeper nesting");
}

TEST_CASE("batches that are not of the table's type are rejected", "[table][fault:files-11]") {
  made_column other = points(3);
  other.children.pop_back();
  const auto problem = test::error_of<ps::arrow_invalid>(
      [&] { ps::arrow_table{test::schema_of(points(3)), test::array_of(other)}; });
  CHECK(problem.expected() + " / " + problem.found() == "2 children / 1");
}

TEST_CASE("null and released structures are not tables", "[table][fault:files-11]") {
  const auto found = [](const auto& call) {
    return std::string{test::error_of<ps::arrow_invalid>(call).what()};
  };
  CHECK(test::has(found([] { ps::arrow_table{ps::arrow_stream{}}; }), "expected a stream"));
  CHECK(test::has(found([] { ps::arrow_table{ps::arrow_schema{}, ps::arrow_array{}}; }),
                  "expected a type"));
  CHECK(test::has(found([] { ps::arrow_table{test::schema_of(points(1)), ps::arrow_array{}}; }),
                  "expected a batch"));
  int released = 0;
  ArrowArrayStream empty{};
  empty.private_data = &released;
  empty.release = [](ArrowArrayStream* own) { ++*static_cast<int*>(own->private_data); };
  CHECK(
      test::has(found([&] { ps::arrow_table{ps::arrow_stream{&empty}}; }), "a stream's functions"));
  CHECK(released == 1);
}

TEST_CASE("pointers of a schema or a batch that are null are rejected", "[table][fault:files-11]") {
  const auto spoilt = [](const std::function<void(ArrowSchema&, ArrowArray&)>& change) {
    ps::arrow_schema schema = test::schema_of(points(3));
    ps::arrow_array batch = test::array_of(points(3));
    change(*schema.address(), *batch.address());
    return test::error_of<ps::arrow_invalid>(
               [&] { ps::arrow_table{std::move(schema), std::move(batch)}; })
        .expected();
  };
  CHECK(spoilt([](auto& s, auto&) { s.format = nullptr; }) == "a type's format");
  CHECK(spoilt([](auto& s, auto&) { s.children = nullptr; }) == "2 children");
  CHECK(spoilt([](auto& s, auto&) { s.n_children = -1; }) == "0 or more children");
  CHECK(spoilt([](auto&, auto& a) { a.buffers = nullptr; }) == "buffers");
  CHECK(spoilt([](auto&, auto& a) { a.children = nullptr; }) == "children");
}
