// SPDX-License-Identifier: BSL-1.0
// The other side of the seam: the one source that is C++20 and includes penstock.
#include "token_feed.hpp"

#include <penstock/cuda.hpp>
#include <penstock/transfer/any_transfer.hpp>
#include <penstock_ext/text/token_windows.hpp>

#include <algorithm>
#include <cstdint>

namespace ps = penstock;

namespace {

// The file has 16 bits a token, the kernels take int
using tokens = ps::window_record<std::uint16_t>;
using ints = ps::record<ps::field<"x", int, ps::dyn>, ps::field<"y", int, ps::dyn>>;

void widen(ps::const_sample<tokens> in, ps::sample<ints> out) {
  std::ranges::copy(ps::get<"x">(in).flat(), ps::get<"x">(out).data());
  std::ranges::copy(ps::get<"y">(in).flat(), ps::get<"y">(out).data());
}

}  // namespace

struct token_feed::parts {
  ps::any_transfer<ints, ps::cuda_device> feed;

  parts(const std::string& path, std::size_t batch_size, std::size_t length,
        ps::cuda_stream_ref stream)
      : feed(
            ps::transfer{ps::loader{ps::token_windows{path, {.length = length}} |
                                        ps::map<ints>(widen, {{length}, {length}}),
                                    ps::shuffled{.seed = 1},
                                    stream.device(),
                                    {.batch_size = batch_size, .last_batch = ps::last_batch::drop}},
                         stream}) {}
};

token_feed::token_feed(const std::string& path, std::size_t batch_size, std::size_t length,
                       cudaStream_t stream)
    : parts_(std::make_unique<parts>(path, batch_size, length, stream)) {}

token_feed::~token_feed() = default;

token_batch token_feed::next() {
  const auto& batch = parts_->feed.next();
  return {ps::get<"x">(batch).data(), ps::get<"y">(batch).data(), parts_->feed.at_epoch_end()};
}

std::string token_feed::state() const { return ps::to_text(parts_->feed.state()); }

void token_feed::resume(const std::string& state) {
  parts_->feed.resume(ps::from_text<ps::loader_state>(state));
}
