// SPDX-License-Identifier: BSL-1.0
// Tests leases without a batch and iterators without a lease. Each member either returns a value or
// terminates the program with a message.
#include <string>
#include <utility>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/last_words.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

bool has(const std::string& said, const char* what) { return said.find(what) != std::string::npos; }

/// Checks two empty leases: a lease that the loop has moved from, and a lease that never held a
/// batch.
template <class Feed>
void look_at_empty_leases(Feed& feed, ps::cpu_stream_ref stream) {
  using lease = typename Feed::batch_type;
  lease never;
  CHECK(never.number() == 0);
  CHECK(never.size() == 0);
  for (auto& batch : feed.epoch(3)) {
    if (batch.number() == 0) continue;
    const lease kept = std::move(batch);
    CHECK_FALSE(batch);
    CHECK(batch.epoch() == 3);
    CHECK(batch.number() == 1);
    CHECK(batch.size() == 10);
    CHECK(batch.valid() == 10);
    CHECK(batch.info().batch == 1);
    for (lease* empty : {&batch, &never}) {
      CHECK(has(last_words([&] { (void)empty->data(); }), "holds no batch"));
      CHECK(has(last_words([&] { (void)std::as_const(*empty).data(); }), "holds no batch"));
      CHECK(has(last_words([&] { (void)ps::get<"label">(*empty); }), "holds no batch"));
      if constexpr (requires { empty->release_after(stream); }) {
        CHECK(has(last_words([&] { empty->release_after(stream); }), "holds no batch"));
      } else {
        CHECK(has(last_words([&] { empty->also_used_on(stream); }), "holds no batch"));
        CHECK(has(last_words([&] { (void)empty->stream(); }), "holds no batch"));
      }
    }
    break;
  }
}

}  // namespace

TEST_CASE("using an empty lease names what it held, or that it never held a batch",
          "[flow][fault:consumers-7]") {
  const ps::cpu_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  SECTION("of host memory") { look_at_empty_leases(loader, device.inline_stream()); }
  SECTION("of device memory") {
    ps::transfer feed{loader};
    look_at_empty_leases(feed, device.inline_stream());
  }
}

TEST_CASE("an iterator whose ++ threw is at its end and reports its use",
          "[flow][fault:consumers-7]") {
  const numbered data{100};
  data.state->bad = 15;
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  const auto look_at = [](auto&& feed) {
    auto range = feed.epoch(0);
    auto it = range.begin();
    CHECK_THROWS_AS(++it, bad_sample);
    CHECK(it == range.end());
    CHECK(has(last_words([&] { (void)it->number(); }), "an iterator over batches was used"));
    ++it;  // the iterator stays at the end
    CHECK(it == range.end());
  };
  look_at(loader);
  look_at(ps::transfer{loader});
}
