// SPDX-License-Identifier: BSL-1.0
#include <penstock/device/cpu_device.hpp>
#include <penstock_ext/interop/to_dlpack.hpp>
#include <penstock/load/host_batch.hpp>

namespace ps = penstock;
struct colour {
  float red, green, blue;
};
using record = ps::record<ps::field<"x", float>, ps::field<"colour", colour>>;
using batch = ps::shared_batch<ps::host_batch<record, ps::cpu_device>>;

void hand_over(const batch& all) {
  static_cast<void>(ps::to_dlpack<"x">(all));
  static_cast<void>(ps::to_dlpack<"colour">(all));  // expected-error: DLPack has no type code for
}
