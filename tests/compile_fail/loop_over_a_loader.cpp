// SPDX-License-Identifier: BSL-1.0
#include <concepts>
#include <cstdint>
#include <ranges>
#include <utility>

#include <penstock/load/loader.hpp>

namespace ps = penstock;

struct numbers {
  using record_type = ps::record<ps::field<"x", float>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type> out) const { ps::get<"x">(out) = 1; }
};
using loader = ps::loader<numbers, ps::sequential>;
static_assert(!std::ranges::range<loader>);
static_assert(!std::copyable<loader::batch_type>);
static_assert(!std::copy_constructible<loader::batch_type>);

void use(loader& all, const loader& constant) {
  for (auto& batch : all.epochs(0, 2)) ps::get<"x">(batch);
  for (auto& batch : all.epoch(0)) loader::batch_type kept = std::move(batch);
  (void)constant;
  for (auto& batch : all) ps::get<"x">(batch);  // expected-error: loop over loader.epoch(e) or
  for (auto& batch : constant) ps::get<"x">(batch);  // expected-error: loop over loader.epoch(e)
  for (auto batch : all.epochs(0, 1)) ps::get<"x">(batch);  // expected-error: loop with `auto&
  for (auto& batch : all.epoch(0)) ps::get<"y">(batch);  // expected-error: has no such field
}
