// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/quarantine/quarantine.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::read_outcome;

namespace {

std::vector<std::uint64_t> indices_in(const std::string& text) {
  std::istringstream in{text};
  return ps::read_quarantine(in);
}

std::vector<std::uint64_t> indices_in(const std::string& text, const ps::quarantine_of& of) {
  std::istringstream in{text};
  return ps::read_quarantine(in, of);
}

std::string written(const ps::failure_report& report) {
  std::ostringstream out;
  report.write_quarantine(out);
  return out.str();
}

ps::failed_sample skipped(std::uint64_t sample, const ps::sample_origin& origin) {
  return {sample, "bad", 1, 1, read_outcome::skipped, origin};
}

}  // namespace

TEST_CASE("a quarantine list of the given-up samples is written and read back",
          "[quarantine][promise:honest-3]") {
  ps::failure_report report;
  report.samples = {{3, "a # in the text", 2, 2, read_outcome::skipped, {3, 0}},
                    {5, "came back", 9, 0, read_outcome::recovered, {5, 0}},
                    {18'446'744'073'709'551'615U,
                     "",
                     1,
                     1,
                     read_outcome::propagated,
                     {18'446'744'073'709'551'615U, 0}}};
  const std::string text = written(report);
  CHECK(text ==
        "3 # skipped 2 times: a # in the text\n"
        "18446744073709551615 # propagated 1 time: \n");
  CHECK(indices_in(text) == std::vector<std::uint64_t>{3, 18'446'744'073'709'551'615U});
}

TEST_CASE("a hand-written quarantine list may have blanks, comments and duplicates, in any order",
          "[quarantine]") {
  CHECK(indices_in("").empty());
  CHECK(indices_in("# nothing\n\n  \t\n").empty());
  CHECK(indices_in(" 7\r\n2 # two\n\n7#again\n2") == std::vector<std::uint64_t>{2, 7});
}

TEST_CASE("a malformed quarantine list is rejected by its line", "[quarantine][promise:honest-3]") {
  CHECK_THROWS_MATCHES(
      indices_in("1\n# fine\n2 3\n"), ps::error,
      Catch::Matchers::Message(
          "quarantine list, line 3: expected one sample index below 2^64, found '2 3'"));
  CHECK_THROWS_AS(indices_in("-1"), ps::error);
  CHECK_THROWS_AS(indices_in("+1"), ps::error);
  CHECK_THROWS_AS(indices_in("0x10"), ps::error);
  CHECK_THROWS_AS(indices_in("1.0"), ps::error);
  CHECK_THROWS_AS(indices_in("18446744073709551616"), ps::error);
  CHECK_THROWS_AS(indices_in("seven # 7"), ps::error);
}

TEST_CASE("a quarantine list names its dataset, and uses that dataset's indices",
          "[quarantine][promise:honest-1]") {
  ps::failure_report report;
  report.base_sizes = {2000};
  report.samples = {skipped(114, {1114, 0}), skipped(213, {1213, 0})};
  const std::string text = written(report);
  CHECK(text ==
        "# penstock quarantine: dataset of 2000 samples\n"
        "1114 # skipped 1 time: bad\n"
        "1213 # skipped 1 time: bad\n");
  const std::vector<std::uint64_t> both{1114, 1213};
  CHECK(indices_in(text) == both);
  CHECK(indices_in(text, {.dataset = 2000}) == both);
  CHECK(indices_in(text + text, {.dataset = 2000}) == both);  // the lists of two runs, concatenated
  CHECK_THROWS_WITH(indices_in(text, {.dataset = 60'000}),
                    "quarantine list, line 1: the list is for part 0, a dataset of 2000 samples, "
                    "not for part 0, a dataset of 60000 samples");
}

TEST_CASE("a quarantine list of concatenated datasets is read part by part",
          "[quarantine][promise:honest-1]") {
  ps::failure_report report;
  report.base_sizes = {100, 50, 70};
  report.samples = {skipped(7, {7, 0}), skipped(103, {3, 1}), skipped(101, {1, 1})};
  const std::string text = written(report);
  CHECK(text ==
        "# penstock quarantine: part 0 of 3, dataset of 100 samples\n"
        "7 # skipped 1 time: bad\n"
        "# penstock quarantine: part 1 of 3, dataset of 50 samples\n"
        "3 # skipped 1 time: bad\n"
        "1 # skipped 1 time: bad\n"
        "# penstock quarantine: part 2 of 3, dataset of 70 samples\n");
  CHECK(indices_in(text, {.dataset = 100, .part = 0}) == std::vector<std::uint64_t>{7});
  CHECK(indices_in(text, {.dataset = 50, .part = 1}) == std::vector<std::uint64_t>{1, 3});
  CHECK(indices_in(text, {.dataset = 70, .part = 2}).empty());
  CHECK_THROWS_WITH(indices_in(text, {.dataset = 70, .part = 3}),
                    Catch::Matchers::Contains("found none"));
  CHECK_THROWS_WITH(indices_in(text), Catch::Matchers::Contains("line 3: the list is for several"));
}

TEST_CASE("a quarantine list without a header fits any dataset, unless one is demanded",
          "[quarantine][promise:honest-1]") {
  CHECK(indices_in("5\n") == std::vector<std::uint64_t>{5});
  CHECK_THROWS_WITH(indices_in("5\n", {.dataset = 10}), Catch::Matchers::Contains("found none"));
}

TEST_CASE("a quarantine list with a damaged header, or foreign samples, is rejected",
          "[quarantine][promise:honest-1]") {
  const std::string head = "# penstock quarantine: ";
  for (const std::string_view damaged :
       {"", "dataset of samples", "dataset of 5", "dataset of 5 samples or so",
        "part 1, dataset of 5 samples", "part 2 of 2, dataset of 5 samples",
        "part 0 of 2, 5 samples", "dataset of -5 samples"}) {
    INFO(damaged);
    CHECK_THROWS_WITH(indices_in("1\n" + head + std::string{damaged} + "\n"),
                      Catch::Matchers::StartsWith("quarantine list, line 2: expected"));
  }
  CHECK(indices_in(head + "dataset of 5 samples \r\n4\n") == std::vector<std::uint64_t>{4});
  CHECK_THROWS_WITH(indices_in(head + "dataset of 5 samples\n5\n"),
                    Catch::Matchers::Contains("line 2: sample 5 is not in"));
}
