// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/cuda_stream.hpp>

namespace ps = penstock;

void use(ps::cuda_stream_ref);

void good(cudaStream_t stream, const ps::cuda_stream& owner) {
  use(stream);
  use(owner);
  use(cudaStreamPerThread);
}

void bad() {
  use(nullptr);  // expected-error: deleted function
  use(0);  // expected-error: deleted function
}
