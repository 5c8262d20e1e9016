// SPDX-License-Identifier: BSL-1.0
// An existing C++17 program with its own stream and kernels. The loop accumulates gradients over
// several batches and validates at the end of an epoch. The program includes only token_feed.hpp.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "token_feed.hpp"

namespace {

constexpr std::size_t batch_size = 4;
constexpr std::size_t length = 32;
constexpr std::size_t values = batch_size * length;

void require(cudaError_t status) {
  if (status != cudaSuccess) {
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
    std::exit(1);
  }
}

// Stands in for the forward and backward pass: sums the tokens, and counts the targets that differ
// from the next token.
__global__ void train_step(const int* inputs, const int* targets, unsigned long long* sums) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  for (std::size_t i = 0; i < values; ++i) {
    sums[0] += static_cast<unsigned long long>(inputs[i]);
    if (targets[i] != (inputs[i] + 1) % 50000) ++sums[1];
  }
}

// Writes a file of `count` windows of consecutive token numbers. Returns the sum of all inputs.
unsigned long long write_text(const std::string& path, std::size_t count) {
  std::vector<std::uint16_t> tokens(count * length + 1);
  unsigned long long sum = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i % 50000);
    if (i + 1 < tokens.size()) sum += tokens[i];
  }
  std::ofstream file{path, std::ios::binary};
  file.write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(std::uint16_t)));
  return sum;
}

}  // namespace

int main() try {
  const std::string path = "penstock_seam_tokens.bin";
  const unsigned long long sum_of_epoch = write_text(path, 48);

  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned long long* sums = nullptr;
  require(cudaMalloc(&sums, 2 * sizeof(*sums)));
  require(cudaMemsetAsync(sums, 0, 2 * sizeof(*sums), stream));

  int epochs = 0;
  std::string checkpoint;
  {
    token_feed feed{path, batch_size, length, stream};
    while (epochs != 3) {
      for (int micro = 0; micro != 2; ++micro) {  // gradient accumulation
        const token_batch batch = feed.next();
        train_step<<<1, 1, 0, stream>>>(batch.inputs, batch.targets, sums);
        require(cudaGetLastError());
        if (batch.ends_epoch) ++epochs;  // a real program would validate here
      }
    }
    checkpoint = feed.state();
  }
  token_feed feed{path, batch_size, length, stream};  // another run resumes from the state
  feed.resume(checkpoint);
  for (int batch = 0; batch != 12; ++batch) {
    const token_batch next = feed.next();
    train_step<<<1, 1, 0, stream>>>(next.inputs, next.targets, sums);
    require(cudaGetLastError());
  }
  unsigned long long found[2] = {};
  require(cudaMemcpyAsync(found, sums, sizeof(found), cudaMemcpyDeviceToHost, stream));
  require(cudaStreamSynchronize(stream));

  const bool is_right = found[0] == 4 * sum_of_epoch && found[1] == 0;
  std::printf("4 epochs, sum of tokens %llu, %s\n", found[0], is_right ? "as expected" : "wrong");
  require(cudaFree(sums));
  std::remove(path.c_str());
  return is_right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
