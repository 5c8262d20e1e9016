// SPDX-License-Identifier: BSL-1.0
// The C++17 interface through which the rest of the program gets its batches. The header is cheap
// to compile.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

/// A batch in device memory: `batch_size` rows of `length` tokens, valid until the next call of
/// `next`. Work queued on the feed's stream before that call may read the batch even if it runs
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

  token_batch next();         // continues into the next epoch
  std::string state() const;  // returns the position for a checkpoint
  void resume(const std::string& state);

 private:
  struct parts;  // hides penstock from the rest of the program
  std::unique_ptr<parts> parts_;
};
