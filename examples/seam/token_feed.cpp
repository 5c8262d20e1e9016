// SPDX-License-Identifier: BSL-1.0
// The implementation of token_feed.hpp, and the only source file that is C++20 and includes
// penstock.
#include "token_feed.hpp"

#include <penstock/cuda.hpp>
#include <penstock/transfer/any_transfer.hpp>
#include <penstock_ext/text/token_windows.hpp>

#include <utility>

namespace ps = penstock;

struct token_feed::parts {
  ps::any_transfer<ps::window_record<int>, ps::cuda_device> feed;
};

token_feed::token_feed(const std::string& path, std::size_t batch_size, std::size_t length,
                       cudaStream_t stream) {
  // The file has 16-bit tokens without a header. The last batch of an epoch is full.
  ps::token_windows<int> tokens{path,
                                {.length = length, .whole_steps = batch_size, .token_bytes = 2}};
  ps::loader loader{std::move(tokens),
                    ps::shuffled{.seed = 1},
                    ps::cuda_stream_ref{stream}.device(),
                    {.batch_size = batch_size}};
  parts_.reset(new parts{ps::any_transfer{ps::transfer{std::move(loader), stream}}});
}

token_feed::~token_feed() = default;

token_batch token_feed::next() {
  const auto& batch = parts_->feed.next();
  return {ps::get<"x">(batch).data(), ps::get<"y">(batch).data(), parts_->feed.at_epoch_end()};
}

std::string token_feed::state() const { return ps::to_text(parts_->feed.state()); }

void token_feed::resume(const std::string& state) {
  parts_->feed.resume(ps::from_text<ps::loader_state>(state));
}
