// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <utility>

#include <penstock/load/loader.hpp>

namespace ps = penstock;

struct numbers {
  using record_type = ps::record<ps::field<"x", float>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type> out) const { ps::get<"x">(out) = 1; }
};

void use(ps::cpu_stream& stream) {
  const numbers data;
  const ps::loader_options options{.batch_size = 4};
  const ps::shuffled order{.seed = 1};
  const ps::cpu_device cpu;
  ps::loader braces{data, order, {.batch_size = 4}};  // compiles
  ps::loader named{data, order, options};  // compiles
  ps::loader on_device{numbers{}, order, cpu, {.batch_size = 4}};  // compiles
  ps::loader moved{std::move(on_device)};  // compiles
  ps::loader a{data, {.batch_size = 4}};  // expected-error: the sampler is missing
  ps::loader b{data, cpu, {.batch_size = 4}};  // expected-error: a sampler comes after the dataset
  ps::loader c{data, {.batch_size = 4}, order};  // expected-error: options come last
  ps::loader d{data, {.batch_size = 4}, order, cpu};  // expected-error: options come last
  ps::loader e{data, order, {.batch_size = 4}, cpu};  // expected-error: options come last
  ps::loader f{data, order};  // expected-error: penstock::loader: the options are missing
  ps::loader g{data, order, cpu};  // expected-error: penstock::loader: the options are missing
  ps::loader h{data, order, stream, {.batch_size = 4}};  // expected-error: a device comes after the
}
