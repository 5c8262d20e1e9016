// SPDX-License-Identifier: BSL-1.0
#include <concepts>
#include <cstdint>
#include <ranges>
#include <utility>

#include <penstock/load/loader.hpp>
#include <penstock/transfer/transfer.hpp>

namespace ps = penstock;

struct numbers {
  using record_type = ps::record<ps::field<"x", float>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type> out) const { ps::get<"x">(out) = 1; }
};
using transfer = ps::transfer<ps::loader<numbers, ps::sequential>>;
static_assert(!std::ranges::range<transfer>);
static_assert(!std::copyable<transfer::batch_type>);
static_assert(!std::copy_constructible<transfer::batch_type>);

void use(transfer& feed) {
  for (auto& batch : feed.epochs(0, 2)) ps::get<"x">(batch);
  for (auto& batch : feed.epoch(0)) transfer::batch_type kept = std::move(batch);
  for (auto& batch : feed) ps::get<"x">(batch);  // expected-error: loop over feed.epoch(e) or
  for (auto batch : feed.epochs(0, 1)) ps::get<"x">(batch);  // expected-error: loop with `auto&
  for (auto& batch : feed.epoch(0)) ps::get<"y">(batch);  // expected-error: has no such field
}
