// SPDX-License-Identifier: BSL-1.0
#include <penstock/resume/loader_state.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

ps::loader_state some_state() {
  return {.version = 1,
          .last = 2,
          .epoch = 3,
          .batch = 17,
          .dataset = 60'000,
          .samples = 50'000,
          .batch_size = 64,
          .seed = 0xffffffffffffffff,
          .order = 0x123456789abcdef0};
}

// The offset at which parsing fails, and the message.
struct rejection {
  std::size_t offset;
  std::string message;
};
rejection rejected(std::string_view text) {
  try {
    (void)ps::from_text<ps::loader_state>(text);
  } catch (const ps::text_error& error) {
    return {error.offset(), error.what()};
  }
  return {std::string_view::npos, "read"};
}

}  // namespace

TEST_CASE("a state is read back from its text", "[resume][promise:exact-7]") {
  const auto state = some_state();
  CHECK(ps::to_text(state) ==
        "penstock_state=1 epoch=3 batch=17 dataset=60000 samples=50000 batch_size=64 "
        "seed=18446744073709551615 order=1311768467463790320 last=pad");
  CHECK(ps::from_text<ps::loader_state>(ps::to_text(state)) == state);
  std::ostringstream out;
  out << state;
  CHECK(out.str() == ps::to_text(state));
}

TEST_CASE("a state is read with keys in any order and any white space", "[resume]") {
  const std::string_view text =
      " last =keep\norder=1  seed= 2\tbatch_size=3 samples=4\r\ndataset=5 batch = 6 epoch=7 "
      "penstock_state=1\n";
  const auto state = ps::from_text<ps::loader_state>(text);
  CHECK(state == ps::loader_state{.version = 1,
                                  .last = 0,
                                  .epoch = 7,
                                  .batch = 6,
                                  .dataset = 5,
                                  .samples = 4,
                                  .batch_size = 3,
                                  .seed = 2,
                                  .order = 1});
}

TEST_CASE("an invalid state text is rejected at its first wrong byte",
          "[resume][promise:exact-7]") {
  const std::string text = ps::to_text(some_state());
  CHECK(rejected("").message == "loader_state: at byte 0: expected the key 'epoch', found none");
  CHECK(rejected("{}").message == "loader_state: at byte 0: expected a name, found '{}'");
  CHECK(rejected("epoch").message == "loader_state: at byte 5: expected '=', found the end");
  CHECK(rejected("epoch=-1").message ==
        "loader_state: at byte 6: expected a number below 2^64, found '-1'");
  CHECK(rejected("epoch=18446744073709551616").offset == 6);
  CHECK(rejected("epok=1").message ==
        "loader_state: at byte 0: expected a key of a loader_state, found 'epok'");
  CHECK(rejected("epoch=1 epoch=2").message ==
        "loader_state: at byte 8: expected every key once, found 'epoch' again");
  CHECK(rejected("epoch=1batch=2").message ==
        "loader_state: at byte 7: expected a space, found 'batch=2'");
  CHECK(rejected("penstock_state=2").message ==
        "loader_state: at byte 15: expected version 1, found 2");
  CHECK(rejected("last=some").message ==
        "loader_state: at byte 5: expected keep, drop or pad, found 'some'");
  CHECK(rejected(text.substr(0, text.size() - 9))
            .message.ends_with("expected the key 'last', found none"));
  CHECK(rejected(text + " x").message.ends_with("expected '=', found the end"));
  CHECK(rejected(text + "x").message.ends_with("found 'padx'"));
  CHECK(rejected(std::string_view{"\0", 1}).offset == 0);
  for (std::size_t length = 0; length < text.size(); ++length) {
    CHECK(rejected(text.substr(0, length)).offset <= length);
  }

  auto no_batch = some_state();
  no_batch.batch_size = 0;
  CHECK(rejected(ps::to_text(no_batch))
            .message.ends_with("expected a batch_size of at least 1, found 0"));
}

TEST_CASE("a state of another order is rejected with every difference",
          "[resume][promise:exact-7]") {
  const auto own = some_state();
  auto state = own;
  state.epoch = 9;
  state.batch = 0;
  CHECK_NOTHROW(require_same_order(state, own));

  state.batch_size = 32;
  state.last = 0;
  state.order = 5;
  CHECK_THROWS_MATCHES(
      require_same_order(state, own), ps::state_mismatch,
      Catch::Matchers::Message(
          "resume: this loader gives different batches than the loader of the state: batch_size: "
          "32 in the state, "
          "64 here; the order (the sampler's kind, seed or options, the lists of the dataset's "
          "adaptors) as a fingerprint: 5 in the state, "
          "1311768467463790320 here; last: keep in the state, pad here"));
  for (auto member :
       {&ps::loader_state::dataset, &ps::loader_state::samples, &ps::loader_state::batch_size,
        &ps::loader_state::seed, &ps::loader_state::order}) {
    auto other = own;
    ++(other.*member);
    CHECK_THROWS_AS(require_same_order(other, own), ps::state_mismatch);
  }
  auto newer = own;
  newer.version = 2;
  CHECK_THROWS_AS(require_same_order(newer, own), ps::state_mismatch);
}

TEST_CASE("different orders have different fingerprints", "[resume][promise:exact-7]") {
  const auto of = [](auto sampler, std::uint64_t n) {
    return ps::detail::order_fingerprint(sampler, n);
  };
  CHECK(of(ps::shuffled{.seed = 1}, 1000) == of(ps::shuffled{.seed = 1}, 1000));
  CHECK(of(ps::shuffled{.seed = 1}, 1000) != of(ps::shuffled{.seed = 2}, 1000));
  CHECK(of(ps::shuffled{.seed = 1}, 1000) != of(ps::sequential{}, 1000));
  CHECK(of(ps::sequential{}, 1000) != of(ps::sequential{}, 999));
  // a single sample has only one order.
  CHECK(of(ps::sequential{}, 1) == of(ps::shuffled{.seed = 3}, 1));
}
