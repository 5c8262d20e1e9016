// SPDX-License-Identifier: BSL-1.0
// An existing program, shaped like llm.c and written in C++17. The program accumulates gradients
// over micro-batches, validates in between, and resumes from a checkpoint, on one of several ranks.
// token_loader replaces plain_token_loader and gives the same bits. `penstock_existing_tokens`
// compares the runs of both loaders for 1, 2 and 3 ranks. `penstock_existing_tokens bench` compares
// their speed, with llm.c's batch size and with larger batches.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "plain_token_loader.hpp"
#include "token_loader.hpp"

namespace {

// Writes a file in llm.c's format: 256 32-bit integers, and 16 bits per token.
void write_tokens(const std::string& path, std::size_t count, std::uint32_t seed) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(count);
  std::vector<std::uint16_t> tokens(count);
  for (auto& token : tokens) {
    seed = seed * 1664525U + 1013904223U;
    token = static_cast<std::uint16_t>(seed >> 16U);
  }
  std::ofstream file{path, std::ios::binary};
  file.write(reinterpret_cast<const char*>(header.data()), 1024);
  file.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * count));
  if (!file.flush()) throw std::runtime_error("can't write " + path);
}

constexpr std::size_t rows = 4, length = 16;

// Stands in for the network and its optimizer. Stores all tokens, so that two runs are equal only
// if they had the same training and validation batches in the same order.
struct network {
  std::vector<int> seen;
  template <class Loader>
  void forward(const Loader& batch) {
    seen.insert(seen.end(), batch.inputs, batch.inputs + rows * length);
    seen.insert(seen.end(), batch.targets, batch.targets + rows * length);
  }
  void update() { seen.push_back(-1); }
};

// Trains from step `first` to step `last`. `state` is the state of the training loader.
template <class Loader>
void train(network& net, std::string& state, const std::string& folder, const token_part& part,
           int first, int last) {
  Loader training{folder + "/train_*.bin", part};
  Loader validation{folder + "/val_*.bin", part};
  if (first != 0) training.resume(state);
  for (int step = first; step != last; ++step) {
    if (step % 5 == 0) {
      validation.reset();
      for (int i = 0; i != 2; ++i) {
        validation.next_batch();
        net.forward(validation);
      }
    }
    for (int micro = 0; micro != 3; ++micro) {  // gradient accumulation
      training.next_batch();
      net.forward(training);
    }
    net.update();
  }
  state = training.state();
}

template <class Loader>
std::vector<int> tokens_of_run(const std::string& folder, const token_part& part, int stop) {
  network net;
  std::string state;
  train<Loader>(net, state, folder, part, 0, stop);
  train<Loader>(net, state, folder, part, stop, 40);  // a second run resumes from the state
  return net.seen;
}

void compare(const std::string& folder) {
  // 12, 25 and 38 batches, each with a remainder.
  for (std::uint32_t shard = 0; shard != 3; ++shard) {
    write_tokens(folder + "/train_" + std::to_string(shard) + ".bin",
                 (12 + 13 * shard) * rows * length + 40, shard);
  }
  write_tokens(folder + "/val_0.bin", 10 * rows * length + 1, 3);
  for (const int world : {1, 2, 3}) {
    for (int rank = 0; rank != world; ++rank) {
      const token_part part{rows, length, rank, world};
      const auto before = tokens_of_run<plain_token_loader>(folder, part, 20);
      if (tokens_of_run<token_loader>(folder, part, 17) != before) {
        throw std::runtime_error("the batches differ");
      }
    }
  }
  std::puts("1, 2 and 3 ranks: the same batches");
}

// Returns the time per token of a loader in nanoseconds.
template <class Loader>
double time_of(Loader& loader, std::size_t tokens_of_batch) {
  constexpr std::size_t tokens = std::size_t{1} << 24U;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t read = 0; read != tokens; read += tokens_of_batch) loader.next_batch();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return time.count() / tokens;
}

void bench(const std::string& folder) {
  for (const char* shard : {"0", "1"}) {
    write_tokens(folder + "/train_" + shard + ".bin", std::size_t{1} << 24U, 1);
  }
  for (const std::size_t batch_rows : {std::size_t{4}, std::size_t{64}}) {
    const token_part part{batch_rows, 1024, 0, 1};
    plain_token_loader plain{folder + "/train_*.bin", part};
    token_loader ours{folder + "/train_*.bin", part};
    std::vector<double> before, after, ratio;
    for (int turn = 0; turn != 9; ++turn) {
      before.push_back(time_of(plain, batch_rows * 1024));
      after.push_back(time_of(ours, batch_rows * 1024));
      ratio.push_back(before.back() / after.back());
    }
    for (auto* all : {&before, &after, &ratio}) std::sort(all->begin(), all->end());
    std::printf("%zu x 1024: plain %.3f ns a token, penstock %.3f, ratio %.2f (%.2f to %.2f)\n",
                batch_rows, before[4], after[4], ratio[4], ratio[0], ratio[8]);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const bool is_bench = argc == 2 && std::string{argv[1]} == "bench";
  std::string folder = std::filesystem::temp_directory_path() / "penstock-existing-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("can't make " + folder);
  is_bench ? bench(folder) : compare(folder);
  std::filesystem::remove_all(folder);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
