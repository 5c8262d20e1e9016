// SPDX-License-Identifier: BSL-1.0
// The seam: all that the rest of the program sees of its batches. C++17, and cheap to compile.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

/// A batch in device memory: `batch_size` rows of `length` tokens. Valid until the next call of
/// `next`. Work on the feed's stream may read it, also when it runs later.
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
