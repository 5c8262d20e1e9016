// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <utility>

#include <penstock/load/loader.hpp>
#include <penstock/transfer/transfer.hpp>

namespace ps = penstock;

struct numbers {
  using record_type = ps::record<ps::field<"x", float>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type> out) const { ps::get<"x">(out) = 1; }
};
using loader = ps::loader<numbers, ps::sequential>;

void use(loader& source, const loader& constant, ps::cpu_stream& stream) {
  const ps::transfer_options options{.depth = 2};
  const auto as_it_is = ps::on_stream<numbers::record_type>([](auto, auto, auto) {});
  ps::transfer fine{source, stream};  // compiles
  ps::transfer deep{source, stream, {.depth = 2}};  // compiles
  ps::transfer body{source};  // compiles
  ps::transfer named{source, options};  // compiles
  ps::transfer transformed{source, stream, as_it_is, {.depth = 2}};  // compiles
  ps::transfer moved{std::move(deep)};  // compiles
  (void)constant;
  ps::transfer a{constant};  // expected-error: must be a source of batches that
  ps::transfer c{numbers{}, stream};  // expected-error: must be a source of batches
  ps::transfer d{source, 3};  // expected-error: for CUDA's default stream write cudaStreamLegacy
  ps::transfer e{source, {.depth = 2}, stream};  // expected-error: options come last
  ps::transfer f{source, stream, [] {}};  // expected-error: the third argument must be a transform
}
