// SPDX-License-Identifier: BSL-1.0
#include "experiment.hpp"

#include <string>

#include "cuda_experiment.hpp"
#include "host_backend.hpp"
#include "run_on.hpp"

namespace mlp {

namespace {

std::string build_description() {
#if defined(__clang__)
  const std::string compiler = "clang++ " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return compiler + ", " MLP_BUILD_FLAGS;
}

}  // namespace

results run_experiment(const options& chosen, const digit_data& data, const row_done& done) {
  if (chosen.device == device_choice::cuda) return run_cuda_experiment(chosen, data, done);
  std::string why = "--device host";
  if (chosen.device == device_choice::automatic) {
    const auto reason = why_no_cuda();
    if (!reason) return run_cuda_experiment(chosen, data, done);
    why = *reason;
  }
  results found;
  found.device.why = why;
  found.build = build_description();
  run_on(host_backend::device_type{}, host_backend{}, chosen, data, found, done);
  return found;
}

}  // namespace mlp
