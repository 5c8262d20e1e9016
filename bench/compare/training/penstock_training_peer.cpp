// SPDX-License-Identifier: BSL-1.0
// A training loop of training.py with penstock. A sleep simulates the accelerator.
//
//   penstock_training_peer FOLDER WORKERS EPOCHS STEP_SECONDS

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "training_loop.hpp"

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 4) {
    std::fprintf(stderr, "usage: %s FOLDER WORKERS EPOCHS STEP_SECONDS\n", argv[0]);
    return 2;
  }
  const compare::training requested{words[0], std::stoul(words[1]), std::stoul(words[2])};
  const std::chrono::duration<double> length{std::stod(words[3])};
  // Owns the batch until the step has read it, like a copy to an accelerator.
  const auto step = [=](auto batch) {
    static_cast<void>(batch.size());
    std::this_thread::sleep_for(length);
  };
  compare::train_and_print(requested, step);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}
