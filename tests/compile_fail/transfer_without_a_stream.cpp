// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda.hpp>

namespace ps = penstock;

struct numbers {
  using record_type = ps::record<ps::field<"x", float>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type> out) const { ps::get<"x">(out) = 1; }
};

void good(cudaStream_t stream) {
  ps::loader loader{numbers{}, ps::sequential{}, ps::cuda_device{0}, {.batch_size = 1}};  // compiles
  ps::transfer feed{loader, stream};  // compiles
  ps::loader on_host{numbers{}, ps::sequential{}, {.batch_size = 1}};  // compiles
  ps::transfer body{on_host};  // compiles
  ps::transfer deep{on_host, {.depth = 2}};  // compiles
  ps::transfer named{on_host, ps::cpu_device{}};  // compiles
}

void bad() {
  ps::loader loader{numbers{}, ps::sequential{}, ps::cuda_device{0}, {.batch_size = 1}};
  ps::transfer feed{loader};  // expected-error: this device needs the stream on which your step runs
}
