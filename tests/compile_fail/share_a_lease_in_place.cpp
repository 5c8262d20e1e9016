// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <utility>

#include <penstock/device/cpu_device.hpp>
#include <penstock_ext/interop/shared_batch.hpp>
#include <penstock/load/host_batch.hpp>

namespace ps = penstock;
using lease = ps::host_batch<ps::record<ps::field<"x", float>>, ps::cpu_device>;

void keep(lease& batch) {
  static_cast<void>(ps::share(std::move(batch)));
  static_cast<void>(ps::share(batch));  // expected-error: penstock::share: it takes ownership of the lease
}
