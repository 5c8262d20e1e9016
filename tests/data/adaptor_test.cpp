// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/adaptor.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace user {

namespace ps = penstock;
using number = ps::record<ps::field<"x", std::int32_t>>;

struct source {
  using record_type = number;
  std::int32_t base = 0;
  std::uint64_t size() const { return 10; }
  void read(std::uint64_t i, ps::sample<number> out) const {
    ps::get<"x">(out) = base + static_cast<std::int32_t>(i);
  }
};

struct move_only_source : source {
  std::unique_ptr<int> owned = std::make_unique<int>(1);
};

// A user-defined adaptor with a move-only member.
struct keep : ps::adaptor<keep> {
  std::unique_ptr<int> owned;

  template <class Data>
  auto operator()(Data&& data) && {
    return std::pair{ps::stored_dataset_t<Data>(std::forward<Data>(data)), std::move(owned)};
  }
};

}  // namespace user

namespace ps = penstock;

TEST_CASE("a pipeline refers to an lvalue and sees it change", "[data]") {
  user::source source{.base = 0};
  const auto piped = source | ps::subset(2, 5);
  source.base = 100;
  CHECK(test::values<"x">(test::read_batch(piped, {0}))[0] == 102);
}

TEST_CASE("a pipeline stores an rvalue, even if it cannot be copied", "[data]") {
  const auto piped = user::move_only_source{} | ps::subset(2, 5) | ps::subset({1});
  CHECK_FALSE(std::is_copy_constructible_v<decltype(piped)>);
  CHECK(test::values<"x">(test::read_batch(piped, {0}))[0] == 3);
}

TEST_CASE("adaptors apply from left to right", "[data]") {
  const auto add = [](ps::sample<user::number> s) { ps::get<"x">(s) += 1; };
  const auto twice = [](ps::sample<user::number> s) { ps::get<"x">(s) *= 2; };
  CHECK(test::values<"x">(
            test::read_batch(user::source{} | ps::map(add) | ps::map(twice), {3}))[0] == 8);
  CHECK(test::values<"x">(
            test::read_batch(user::source{} | ps::map(twice) | ps::map(add), {3}))[0] == 7);
}

TEST_CASE("a user's own adaptor is moved into its result", "[data]") {
  user::keep adaptor;
  adaptor.owned = std::make_unique<int>(4);
  const auto [data, owned] = user::source{} | std::move(adaptor);
  CHECK(*owned == 4);
  CHECK(data.size() == 10);
}

TEST_CASE("an adaptor can be stored and used twice", "[data]") {
  const auto middle = ps::subset(2, 5);
  CHECK((user::source{} | middle).size() == 3);
  CHECK((user::source{} | middle).size() == 3);
}
