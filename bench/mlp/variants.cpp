// SPDX-License-Identifier: BSL-1.0
#include "variants.hpp"

#include <optional>
#include <vector>

namespace mlp {

std::vector<options> variants_of(const options& chosen, bool is_on_cuda) {
  options plain = chosen;
  plain.modes = {technique::overlapped};
  plain.costs = false;
  plain.explain = false;
  plain.json = plain.svg = plain.stats = plain.utilisation = plain.trace = std::nullopt;

  std::vector<options> runs;
  options other = plain;
  other.kernels = kernel_choice::thrust;
  const auto add_step = [&](const step_options& step) {
    other.step = step;
    runs.push_back(other);
  };
  if (is_on_cuda) add_step({});
  add_step({.precision = precision_choice::fp16});
  add_step({.precision = precision_choice::bf16});
  add_step({.accumulate = 4});

  if (plain.augment) return runs;  // which makes bytes
  if (plain.fed != workload::wide) {
    plain.fed = workload::wide;
    plain.kernels = kernel_choice::cublas;
    runs.push_back(plain);
  }
  for (const auto travel : {travel_choice::half, travel_choice::bfloat16, travel_choice::int8}) {
    plain.travel = travel;
    runs.push_back(plain);
  }
  return runs;
}

}  // namespace mlp
