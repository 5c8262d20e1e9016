// SPDX-License-Identifier: BSL-1.0
// The implementation of token_loader.hpp, and the only source file that is C++20 and includes
// penstock.
#include "token_loader.hpp"

#include <penstock/penstock.hpp>
#include <penstock_ext/files/glob.hpp>
#include <penstock_ext/text/token_windows.hpp>

#include <utility>

namespace ps = penstock;

struct token_loader::parts : ps::any_loader<ps::window_record<int>> {
  batch_type batch{};
};

token_loader::token_loader(const std::string& files, const token_part& p) {
  ps::token_windows<int> data{ps::glob(files), {.length = p.length, .whole_steps = p.step()}};
  ps::sharded order{ps::sequential{}, {.rank = p.rank, .world = p.world, .global_batch = p.step()}};
  // Uses no workers, because it takes less time to read tokens from mapped memory than to pass a
  // batch to another thread.
  parts_.reset(new parts{ps::loader{std::move(data), order, {.batch_size = p.rows, .workers = 0}}});
}

void token_loader::next_batch() {
  const auto& batch = parts_->batch = parts_->next();
  inputs = ps::get<"x">(batch).data(), targets = ps::get<"y">(batch).data();
}

void token_loader::reset() { parts_->reset(); }
std::string token_loader::state() const { return ps::to_text(parts_->state()); }
void token_loader::resume(const std::string& state) {
  parts_->resume(ps::from_text<ps::loader_state>(state));
}
