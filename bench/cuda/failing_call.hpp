// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdlib>
#include <fake_cuda/fake_cuda.hpp>
#include <fstream>
#include <string>

namespace bench {

/// Has the call fail that PENSTOCK_FAIL_CALL names: "cudaHostRegister:2" the third of them, once;
/// "lost:2" the third of all calls and those after it, as where the context is lost.
inline void arm_failure() {
  const char* const given = std::getenv("PENSTOCK_FAIL_CALL");
  if (given == nullptr) return;
  fake_cuda::reset({.policy = fake_cuda::policy::early});  // nothing naps for work that is held
  const std::string call = given;
  const std::size_t colon = call.find(':');
  const auto which = std::stoull(colon == std::string::npos ? "0" : call.substr(colon + 1));
  if (call.starts_with("lost:")) return fake_cuda::fail_from(which, cudaErrorIllegalAddress);
  fake_cuda::fail_call_of(call.substr(0, colon), which, cudaErrorNotSupported);
}

/// How often this thread has made each call, a line each, into the file that PENSTOCK_LIST_CALLS
/// names.
inline void list_calls() {
  const char* const path = std::getenv("PENSTOCK_LIST_CALLS");
  if (path == nullptr) return;
  std::ofstream file{path};
  for (const auto& [name, count] : fake_cuda::thread_calls()) file << name << ' ' << count << '\n';
}

}  // namespace bench
