// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/load/loader.hpp>
#include <penstock/transfer/transfer.hpp>

namespace ps = penstock;

struct numbers {
  using record_type = ps::record<ps::field<"x", float>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type> out) const { ps::get<"x">(out) = 1; }
};
using loader = ps::loader<numbers, ps::sequential>;

void use(loader& all, ps::transfer<loader&>& feed, const ps::batch_position& from, int count) {
  for (auto& batch : all.batches(from, ps::until_epoch{3})) ps::get<"x">(batch);
  for (auto& batch : feed.batches(from, ps::until_epoch{3})) ps::get<"x">(batch);
  for (auto& batch : feed.replay(from, ps::batch_count{3})) ps::get<"x">(batch);
  (void)all.batches(from, 3);      // expected-error: loader.batches(from, ps::until_epoch{e}) ends
  (void)all.batches(from, {3});    // expected-error: loader.batches(from, ps::until_epoch{e}) ends
  (void)feed.batches(from, count);  // expected-error: feed.batches(from, ps::until_epoch{e}) ends
  (void)feed.replay(from, count);   // expected-error: feed.replay(from, ps::batch_count{n}) gives
}
