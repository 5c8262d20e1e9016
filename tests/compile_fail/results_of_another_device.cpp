// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda.hpp>
#include <penstock_ext/results/results.hpp>

namespace ps = penstock;

using score = ps::record<ps::field<"score", float>>;
using batch = ps::device_batch<score, ps::cuda_device>;

void good(ps::results<score, ps::cuda_device>& out, ps::results<score>& on_host, const batch& one) {
  out.acquire(one).send();             // compiles
  on_host.acquire(one.info()).send();  // compiles
}

void bad(ps::results<score>& on_host, const batch& one) {
  on_host.acquire(one).send();  // expected-error: the batch is on a different kind of device
}
