// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdlib>
#include <fake_cuda/fake_cuda.hpp>
#include <fstream>
#include <string>

namespace bench {

/// Makes the call that PENSTOCK_FAIL_CALL specifies fail. "cudaHostRegister:2" makes only the third
/// call of cudaHostRegister fail. "lost:2" makes the third call and all later calls fail, as after
/// a lost context.
inline void arm_failure() {
  const char* const given = std::getenv("PENSTOCK_FAIL_CALL");
  if (given == nullptr) return;
  fake_cuda::reset({.policy = fake_cuda::policy::early});  // no thread naps for held work
  const std::string call = given;
  const std::size_t colon = call.find(':');
  const auto which = std::stoull(colon == std::string::npos ? "0" : call.substr(colon + 1));
  if (call.starts_with("lost:")) return fake_cuda::fail_from(which, cudaErrorIllegalAddress);
  fake_cuda::fail_call_of(call.substr(0, colon), which, cudaErrorNotSupported);
}

/// Writes how often this thread has called each function, one per line, to the file in
/// PENSTOCK_LIST_CALLS.
inline void list_calls() {
  const char* const path = std::getenv("PENSTOCK_LIST_CALLS");
  if (path == nullptr) return;
  std::ofstream file{path};
  for (const auto& [name, count] : fake_cuda::thread_calls()) file << name << ' ' << count << '\n';
}

}  // namespace bench
