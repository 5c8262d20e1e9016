// SPDX-License-Identifier: BSL-1.0
// The C++17 interface through which the trainer gets its token batches, independent of penstock.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

/// The part of each step that a rank reads: `rows` windows of `length` tokens.
struct token_part {
  std::size_t rows, length;
  int rank, world;
  std::size_t step() const {  // Returns the number of rows across all ranks.
    return rows * static_cast<std::size_t>(world);
  }
};

/// Reads the tokens of all files that match the pattern `files`, in file name order.
class token_loader {
 public:
  token_loader(const std::string& files, const token_part& p);

  void next_batch();          // sets `inputs` and `targets`; continues into the next epoch
  void reset();               // returns to the first batch
  std::string state() const;  // returns the position for a checkpoint
  void resume(const std::string& state);

  const int* inputs = nullptr;   // rows x length, valid until the next call
  const int* targets = nullptr;  // the token that follows each input

 private:
  struct parts;  // hides penstock from the rest of the program
  std::shared_ptr<parts> parts_;
};
