// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/search/tuned_text.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("options as text can be pasted into a program", "[tune]") {
  CHECK(ps::to_text(ps::tuned_options{.workers = 4, .prefetch = 8, .depth = 3, .pinned = 0}) ==
        "{.workers = 4, .prefetch = 8, .pinned = false}  // loader_options\n"
        "{.depth = 3}  // transfer_options\n");
  CHECK(ps::to_text(ps::tuned_options{.workers = 0}) == "{.workers = 0}  // loader_options\n");
  CHECK(ps::to_text(ps::tuned_options{.pinned = 1}) == "{.pinned = true}  // loader_options\n");
  CHECK(ps::to_text(ps::tuned_options{.depth = 1}) == "{.depth = 1}  // transfer_options\n");
  CHECK(ps::to_text(ps::tuned_options{}).empty());
  // The text follows the declaration order of the aggregate, so that it compiles.
  const ps::loader_options load{
      .batch_size = 1, .workers = 2, .prefetch = 3, .pinned = true, .tuning = {.chunk = 4}};
  CHECK(load.tuning.chunk == 4);
  CHECK(ps::to_text(ps::tuned_options{
            .workers = 2, .chunk = 4, .prefetch = 3, .pinned = 1, .batch_size = 1}) ==
        "{.batch_size = 1, .workers = 2, .prefetch = 3, .pinned = true, .tuning = {.chunk = 4}}"
        "  // loader_options\n");
}

TEST_CASE("options are read back from JSON", "[tune]") {
  const std::vector<ps::tuned_options> all{
      {}, {.workers = 0}, {.workers = ~std::size_t{0}, .chunk = 1, .prefetch = 2}, {.depth = 3}};
  for (const auto& options : all) {
    CHECK(ps::read_tuned_options(ps::to_json(options)) == options);
  }
  CHECK(ps::to_json(ps::tuned_options{.workers = 4, .depth = 3}) == R"({"workers":4,"depth":3})");
  CHECK(ps::read_tuned_options(" {\n \"depth\" : 3 ,\"workers\":4 } \n") ==
        ps::tuned_options{.workers = 4, .depth = 3});
}

TEST_CASE("trials are read back from JSON to the last digit", "[tune]") {
  const std::vector<ps::trial> trials{{{.workers = 4}, 0.1},
                                      {{.workers = 1, .depth = 2}, 1.0 / 3},
                                      {{}, 5e-324},
                                      {{.chunk = 64}, 1.7976931348623157e308}};
  CHECK(ps::read_trials(ps::to_json(trials)) == trials);
  CHECK(ps::read_trials("[]").empty());
  CHECK(ps::read_trials(ps::to_json(std::vector<ps::trial>{})).empty());
}

TEST_CASE("an invalid text of options or trials is rejected at its wrong byte", "[tune]") {
  const auto offset = [](const std::string& text, bool is_list) -> std::size_t {
    try {
      if (is_list) {
        static_cast<void>(ps::read_trials(text));
      } else {
        static_cast<void>(ps::read_tuned_options(text));
      }
    } catch (const ps::text_error& error) {
      return error.offset();
    }
    return 999;
  };
  const std::vector<std::pair<std::string, std::size_t>> objects{
      {"", 0},
      {"[", 1},
      {"[]", 0},
      {"{", 1},
      {R"({"workers" 4})", 11},
      {R"( {"workers": -4})", 1},
      {R"({"workers": 4 "depth": 3})", 20},
      {R"({"workers": 4, })", 15},
      {R"({"workers": 4, "workers": 5})", 23},
      {R"( {"wokers": 4})", 1},
      {R"( {"cost": 4})", 1},
      {R"( {"workers": 18446744073709551616})", 1},
      {R"( {"workers": {}})", 1},
      {R"({"workers": 4} x)", 15},
  };
  for (const auto& [text, at] : objects) {
    CAPTURE(text);
    CHECK(offset(text, false) == at);
  }
  const std::vector<std::pair<std::string, std::size_t>> lists{
      {"{}", 0},
      {"[", 1},
      {"[{}]", 1},
      {"[1]", 0},
      {R"([{"cost": 0}])", 1},
      {R"([{"cost": -1}])", 1},
      {R"([{"cost": 1}, {"cost": "1"}])", 14},
      {R"([{"cost": 1}, [{"cost": 1}]])", 0},
      {R"([{"cost": nan}])", 11},
      {R"([{"cost": 1}{"cost": 1}])", 12},
      {R"([{"cost": 1},])", 13},
      {R"([{"cost": 1}]])", 13},
      {R"([{"cost": 1, "cost": 2}])", 18},
  };
  for (const auto& [text, at] : lists) {
    CAPTURE(text);
    CHECK(offset(text, true) == at);
  }
  CHECK(offset(R"([{"cost": 1e999}])", true) <= 16);
  CHECK_THROWS_WITH(static_cast<void>(ps::read_tuned_options(" {\"wokers\": 4}")),
                    "tuned options: at byte 1: expected the name of an option, found 'wokers'");
}
