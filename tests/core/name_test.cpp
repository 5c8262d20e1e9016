// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/record.hpp>

#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

template <ps::name Name>
struct tagged {
  static constexpr ps::name key = Name;
};

constexpr ps::name longest{"abcdefghijklmnopqrstuvwxyz012345"};

}  // namespace

TEST_CASE("a name consists of the characters of its literal", "[core]") {
  constexpr ps::name image{"image"};
  CHECK(image.size() == 5);
  CHECK(image.str() == "image");
  CHECK(image[0] == 'i');
  CHECK(image[4] == 'e');
  CHECK(image[5] == '\0');
}

TEST_CASE("a name keeps all of 32 characters", "[core]") {
  CHECK(longest.size() == ps::name::max_size);
  CHECK(longest.str() == "abcdefghijklmnopqrstuvwxyz012345");
}

TEST_CASE("characters above 127 survive", "[core]") {
  constexpr ps::name accented{"\xc3\xa4"};
  CHECK(accented.str() == "\xc3\xa4");
}

TEST_CASE("names are equal if their characters are equal", "[core]") {
  // Stores both names in variables, because clang 14 crashes when it compares two temporary names.
  constexpr ps::name label{"label"};
  constexpr ps::name same{"label"};
  constexpr ps::name longer{"labels"};
  constexpr ps::name swapped{"lable"};
  constexpr ps::name last_word{"abcdefghijklmnopqrstuvwxyz012346"};
  CHECK(label == same);
  CHECK_FALSE(label == longer);
  CHECK_FALSE(label == swapped);
  CHECK_FALSE(longest == last_word);
}

TEST_CASE("a name can be constructed from its words, as nvcc does", "[core]") {
  constexpr ps::name again{longest.word0, longest.word1, longest.word2, longest.word3};
  CHECK(again == longest);
  CHECK(tagged<again>::key.str() == longest.str());
}

TEST_CASE("a string literal converts to a name as a template argument", "[core]") {
  CHECK(tagged<"x">::key.str() == "x");
  CHECK(std::is_same_v<tagged<"x">, tagged<"x">>);
  CHECK_FALSE(std::is_same_v<tagged<"x">, tagged<"y">>);
}
