// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/device/cpu_device.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock_ext/narrow/narrowed.hpp>

namespace ps = penstock;
using row = ps::record<ps::field<"x", std::int8_t, 4>>;

void use(ps::const_batch_view<row> in, ps::batch_view<ps::record<ps::field<"x", float, 4>>> out,
         ps::cpu_stream_ref stream) {
  ps::widen<"x">(ps::affine_scale{}).enqueue(in, out, stream);
  ps::widen<"x">().enqueue(in, out, stream);  // expected-error: one scale for each field
}
