// SPDX-License-Identifier: BSL-1.0
// The interface through which the rest of the program gets its batches. C++17, and cheap to
// compile.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

/// A batch in device memory: `batch_size` rows of `length` tokens. Valid until the next call of
/// `next`. Work that is queued on the feed's stream before then may read it, even if the work runs
/// later.
struct token_batch {
  const int* inputs;
  const int* targets;
  bool ends_epoch;
};

class token_feed {
 public:
  token_feed(const std::string& path, std::size_t batch_size, std::size_t length,
             cudaStream_t stream);
  ~token_feed();

  token_batch next();         // goes on into the next epoch
  std::string state() const;  // for a checkpoint
  void resume(const std::string& state);

 private:
  struct parts;  // the only place that knows penstock
  std::unique_ptr<parts> parts_;
};
