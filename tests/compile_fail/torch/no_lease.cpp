// SPDX-License-Identifier: BSL-1.0
// Tensors over a batch whose lease is not passed, and over elements without a libtorch type.
#include <penstock_ext/interop/torch/torch.hpp>

namespace ps = penstock;

struct box {
  float x, y;
};
using record = ps::record<ps::field<"x", float, 4>, ps::field<"box", box>>;
using batch_type = ps::host_batch<record, ps::cpu_device>;

void use(batch_type& batch, const ps::shared_batch<batch_type>& shared) {
  auto fine = ps::torch_tensors<"x">(shared);
  auto looked_at = ps::torch_tensor<"x">(batch);  // expected-error: pass std::move(batch), or
  auto boxes = ps::torch_tensor<"box">(shared);  // expected-error: has no element type for this field
}
