// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the fragments of README.md and docs/ take for granted: a dataset, a step, and a device of
// each kind with a stream. Each fragment is a function of on_cpu or on_cuda: see code_blocks.py.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/cuda/on_device.cuh>
#include <penstock/device/cpu_stream.hpp>
#include <penstock/observe/diagnose.hpp>
#include <penstock/order/bucketed.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/blob/mds/mds_shards.hpp>
#include <penstock_ext/blob/mds/mds_writer.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/interop/dlpack.hpp>
#include <penstock_ext/narrow/narrowed.hpp>
#include <penstock_ext/narrow/widen_on_device.cuh>
#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>
#include <penstock_ext/report/prometheus_file.hpp>
#include <penstock_ext/report/trace_files.hpp>
#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_text.hpp>
#include <penstock_ext/serve/batcher.hpp>
#include <penstock_ext/store/cached_store.hpp>
#include <penstock_ext/store/local_store.hpp>

#include "fake_cuda/fake_cuda.hpp"

namespace ps = penstock;

using digit =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;

/// 256 images of one shade each.
struct digit_images {
  using record_type = digit;
  std::uint64_t size() const { return 256; }
  void read(std::uint64_t index, ps::sample<digit> out) const {
    for (auto& pixel : ps::get<"image">(out).flat()) pixel = static_cast<std::uint8_t>(index);
    ps::get<"label">(out) = static_cast<std::uint8_t>(index % 10);
  }
};

inline const digit_images digits;

/// 256 samples of floats.
struct spectrum_files {
  using record_type = ps::record<ps::field<"x", float, 64>, ps::field<"label", std::uint8_t>>;
  std::uint64_t size() const { return 256; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    for (auto& x : ps::get<"x">(out).flat()) x = static_cast<float>(index) / 7.0F;
    ps::get<"label">(out) = static_cast<std::uint8_t>(index % 10);
  }
};

inline const spectrum_files spectra;

inline constexpr auto augment = [](ps::sample<digit> out, ps::sample_generator& rng) {
  for (auto& pixel : ps::get<"image">(out).flat()) {
    pixel = static_cast<std::uint8_t>(ps::uniform(rng, std::uint32_t{0}, std::uint32_t{255}));
  }
};

/// A loader of the type that most fragments have, so that it is compiled once.
template <class Device>
using digit_loader = ps::loader<const digit_images, ps::shuffled, Device>;

namespace on_cpu {

inline const ps::cpu_device device;
inline ps::cpu_stream stream = device.make_stream();

template <class Images, class Labels>
void train_step(const Images&, const Labels&) {}

}  // namespace on_cpu

namespace on_cuda {

inline ps::cuda_device device;
inline cudaStream_t stream = nullptr;
inline cudaStream_t other_stream = nullptr;
inline constexpr unsigned grid = 1, block = 32;

template <class Images, class Labels>
void train_step(const Images&, const Labels&) {}
template <class Images, class Labels>
void train_step(const Images&, const Labels&, ps::cuda_stream_ref) {}
template <class Images>
void show(const Images&, ps::cuda_stream_ref) {}

}  // namespace on_cuda

template <class T>
void require_default(const char* option, const T& usual, const T& written) {
  if constexpr (requires { usual == written; }) {
    if (usual == written) return;
    std::printf("%s has another default\n", option);
    std::exit(1);
  }
}

struct fragment {
  const char* at;
  void (*run)();
  bool uses_cuda;
};

inline void run_on_cuda(const fragment& one) {
  fake_cuda::reset({.policy = fake_cuda::policy::early, .devices = 2});
  cudaStreamCreate(&on_cuda::stream);
  cudaStreamCreate(&on_cuda::other_stream);
  one.run();
  cudaDeviceSynchronize();
  cudaStreamDestroy(on_cuda::stream);
  cudaStreamDestroy(on_cuda::other_stream);
  if (!fake_cuda::expect_clean()) std::exit(1);
}

/// IDX files of bytes, with 256 samples, under the names of MNIST's, in the working directory.
inline void write_idx(const char* path, std::initializer_list<char> extents, std::size_t bytes) {
  std::ofstream out{path, std::ios::binary};
  out << std::string("\0\0\x08", 3) << static_cast<char>(extents.size() + 1)
      << std::string("\0\0\1\0", 4);
  for (const char extent : extents) out << std::string("\0\0\0", 3) << extent;
  out << std::string(256 * bytes, '\7');
}

inline int run_all(std::initializer_list<fragment> all) {
  write_idx("train-images-idx3-ubyte", {28, 28}, std::size_t{28} * 28);
  write_idx("train-labels-idx1-ubyte", {}, 1);
  for (const fragment& one : all) {
    std::printf("%s\n", one.at);
    std::fflush(stdout);
    if (one.uses_cuda) {
      run_on_cuda(one);
    } else {
      one.run();
    }
  }
  return 0;
}
