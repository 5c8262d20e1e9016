// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/cpu_list.hpp>

#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using numbers = std::vector<unsigned>;

ps::cpu_list cores(numbers which) { return ps::cpu_list{std::move(which)}; }

}  // namespace

TEST_CASE("a list of cores is read as the kernel writes it", "[threads]") {
  CHECK(ps::cpu_list::parse("0") == cores({0}));
  CHECK(ps::cpu_list::parse("0-3,8,10-11") == cores({0, 1, 2, 3, 8, 10, 11}));
  CHECK(ps::cpu_list::parse("0-3,8,10-11\n") == cores({0, 1, 2, 3, 8, 10, 11}));
  CHECK(ps::cpu_list::parse("1,2,3") == cores({1, 2, 3}));
  CHECK(ps::cpu_list::parse("65535") == cores({65535}));
  CHECK(ps::cpu_list::parse("0-65535")->size() == ps::cpu_list::limit);
}

TEST_CASE("any other text is not a list of cores", "[threads]") {
  for (const std::string text : {"",
                                 "\n",
                                 " ",
                                 "0 ",
                                 " 0",
                                 "0\n\n",
                                 "0,",
                                 ",0",
                                 "0,,1",
                                 "0-",
                                 "-1",
                                 "0--1",
                                 "3-1",
                                 "1-1",
                                 "+1",
                                 "0x1",
                                 "1.5",
                                 "all",
                                 "0-3:1/2",
                                 "0-3,2",
                                 "2,1",
                                 "1,1",
                                 "65536",
                                 "0-65536",
                                 "99999999999999999999",
                                 "0-4294967295",
                                 "1;2",
                                 "0-1-2"}) {
    CAPTURE(text);
    CHECK(ps::cpu_list::parse(text) == std::nullopt);
  }
  CHECK(ps::cpu_list::parse(std::string{"0\0001", 3}) == std::nullopt);
}

TEST_CASE("a list of cores is sorted, unique, and formatted in ranges", "[threads]") {
  CHECK(cores({3, 1, 2, 1}).numbers() == numbers{1, 2, 3});
  CHECK(cores({7, ps::cpu_list::limit, 7}).numbers() == numbers{7});
  CHECK(to_text(cores({})).empty());
  CHECK(to_text(cores({5})) == "5");
  CHECK(to_text(cores({0, 1, 2, 3, 8, 10, 11})) == "0-3,8,10-11");
}

TEST_CASE("the common cores of two lists are in both lists", "[threads]") {
  CHECK(ps::common_cores(cores({0, 1, 2, 3}), cores({2, 3, 4})) == cores({2, 3}));
  CHECK(ps::common_cores(cores({0, 1}), cores({2, 3})).empty());
  CHECK(ps::common_cores(cores({}), cores({2, 3})).empty());
  CHECK(ps::common_cores(cores({1, 5}), cores({0, 1, 2, 3, 4, 5})) == cores({1, 5}));
}
