// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <utility>

#include <penstock/device/cpu_device.hpp>
#include <penstock_ext/interop/to_dlpack.hpp>
#include <penstock/load/host_batch.hpp>

namespace ps = penstock;
using text = ps::record<ps::field<"tokens", std::int32_t, ps::ragged>, ps::field<"label", int>>;
using batch = ps::shared_batch<ps::host_batch<text, ps::cpu_device>>;

void use(const batch& shared) {
  (void)ps::to_dlpack<"label">(shared);
  (void)ps::to_dlpack<"tokens">(shared);  // expected-error: a ragged field is not a tensor
}
