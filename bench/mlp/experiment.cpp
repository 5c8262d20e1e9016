// SPDX-License-Identifier: BSL-1.0
#include "experiment.hpp"

#include <sstream>
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

std::string text_of(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

results run_experiment(const options& chosen, const digit_data& data, const row_done& done) {
  if (chosen.device == device_choice::cuda) return run_cuda_experiment(chosen, data, done);
  std::string why = "--device host";
  if (chosen.device == device_choice::automatic && chosen.bus > 0) {
    why = "--bus";
  } else if (chosen.device == device_choice::automatic) {
    const auto reason = why_no_cuda();
    if (!reason) return run_cuda_experiment(chosen, data, done);
    why = *reason;
  }
  results found;
  found.device.why = why;
  found.build = build_description();
  penstock::cpu_device_options modelled;
  modelled.copy_bytes_per_second = chosen.bus * 1e9;
  found.device.models_bus = chosen.bus > 0;
  if (found.device.models_bus)
    found.device.name += " with a modelled bus of " + text_of(chosen.bus) + " GB/s";
  run_on(host_backend::device_type{modelled}, host_backend{}, chosen, data, found, done);
  return found;
}

}  // namespace mlp
