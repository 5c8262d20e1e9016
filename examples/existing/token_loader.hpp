// SPDX-License-Identifier: BSL-1.0
// The interface through which the trainer gets its token batches. C++17, without penstock.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

/// The part of each step that a rank reads: `rows` windows of `length` tokens.
struct token_part {
  std::size_t rows, length;
  int rank, world;
  std::size_t step() const {  // number of rows across all ranks
    return rows * static_cast<std::size_t>(world);
  }
};

/// Reads the tokens of all files that match the pattern `files`, in the order of their names.
class token_loader {
 public:
  token_loader(const std::string& files, const token_part& p);

  void next_batch();          // sets `inputs` and `targets`; continues with the next epoch
  void reset();               // makes the first batch the next batch
  std::string state() const;  // for a checkpoint
  void resume(const std::string& state);

  const int* inputs = nullptr;   // rows x length, valid until the next call
  const int* targets = nullptr;  // the token after each input

 private:
  struct parts;  // hides penstock from the rest of the program
  std::shared_ptr<parts> parts_;
};
