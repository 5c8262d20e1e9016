// SPDX-License-Identifier: BSL-1.0
#pragma once

// Declarations that the code fragments in README.md and docs/ use: a dataset, a step, and a device
// of each kind with a stream. code_blocks.py turns each fragment into a function of on_cpu or
// on_cuda.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/adaptors.hpp>
#include <penstock/cuda.hpp>
#include <penstock/cuda/on_device.cuh>
#include <penstock/device/cpu_stream.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/observe.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors.hpp>
#include <penstock_ext/adaptors/filter.hpp>
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/blob/tar/tar_shards.hpp>
#include <penstock_ext/blob/verified_blobs.hpp>
#include <penstock_ext/bulk.hpp>
#include <penstock_ext/files/glob.hpp>
#include <penstock_ext/files/idx_dataset.hpp>
#include <penstock_ext/files/state_file.hpp>
#include <penstock_ext/files/unpack_files.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/indexed.hpp>
#include <penstock_ext/intake.hpp>
#include <penstock_ext/interop.hpp>
#include <penstock_ext/narrow/narrowed.hpp>
#include <penstock_ext/narrow/widen_on_device.cuh>
#include <penstock_ext/quarantine/quarantine.hpp>
#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>
#include <penstock_ext/report/diagnose.hpp>
#include <penstock_ext/report/stats_prometheus.hpp>
#include <penstock_ext/report/stats_text.hpp>
#include <penstock_ext/report/trace_files.hpp>
#include <penstock_ext/results/results.hpp>
#include <penstock_ext/samplers.hpp>
#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_text.hpp>
#include <penstock_ext/serve/batcher.hpp>
#include <penstock_ext/store/cache/cached_store.hpp>
#include <penstock_ext/store/local_store.hpp>
#include <penstock_ext/streamed.hpp>
#include <penstock_ext/text/length_cache.hpp>
#include <penstock_ext/text/token_windows.hpp>

#ifdef PENSTOCK_PAGES_GZIP
#include <penstock_ext/files/gzip/gzip.hpp>
#endif
#ifdef PENSTOCK_PAGES_JPEG
#include <penstock_ext/image/jpeg/jpeg.hpp>
#endif
#ifdef PENSTOCK_PAGES_JSON_LINES
#include <penstock_ext/indexed/json/json_lines.hpp>
#endif
#ifdef PENSTOCK_PAGES_PNG
#include <penstock_ext/image/png/png.hpp>
#endif
#ifdef PENSTOCK_PAGES_HTTP
#include <penstock_ext/store/http/http_store.hpp>
#endif
#ifdef PENSTOCK_PAGES_AUDIO
#include <penstock_ext/audio/audio_clips.hpp>
#endif
#ifdef PENSTOCK_PAGES_TORCH
#include <torch/torch.h>

#include <penstock_ext/interop/torch/torch.hpp>
#endif
#ifdef PENSTOCK_PAGES_HDF5
#include <penstock_ext/indexed/hdf5/hdf5_dataset.hpp>
#endif
#ifdef PENSTOCK_PAGES_PARQUET
#include <arrow/builder.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <parquet/arrow/writer.h>

#include <penstock_ext/table/parquet/parquet_dataset.hpp>
#endif

#include "fake_cuda/fake_cuda.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;  // used by option tables

using digit =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;

/// A dataset of 256 images. All pixels of an image have the same value.
struct digit_images {
  using record_type = digit;
  std::uint64_t size() const { return 256; }
  void read(std::uint64_t index, ps::sample<digit> out) const {
    for (auto& pixel : ps::get<"image">(out).flat()) pixel = static_cast<std::uint8_t>(index);
    ps::get<"label">(out) = static_cast<std::uint8_t>(index % 10);
  }
};

inline const digit_images digits;

using camera_frame = ps::record<ps::field<"image", std::uint8_t, 48, 64>>;

/// A dataset of 256 samples of floats.
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

/// The loader type of most fragments, shared to save compile time.
template <class Device>
using digit_loader = ps::loader<const digit_images, ps::shuffled, Device>;

namespace on_cpu {

inline const ps::cpu_device device;
inline ps::cpu_stream stream = device.make_stream();

template <class Images, class Labels>
void train_step(const Images&, const Labels&) {}

/// A camera driver that fills its buffers in order.
struct camera_driver {
  std::vector<std::span<std::byte>> buffers;
  std::vector<std::uint32_t> queued;

  void announce(std::byte* data, std::size_t bytes, std::uint32_t) {
    buffers.emplace_back(data, bytes);
  }
  void queue(std::uint32_t id) { queued.push_back(id); }
  std::uint32_t filled() {
    const std::uint32_t id = queued.front();
    queued.erase(queued.begin());
    std::ranges::fill(buffers[id], std::byte{1});
    return id;
  }
};
inline camera_driver driver;

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
template <class Images, class Labels>
void train_step(Images*, Labels*, std::size_t) {}
template <class Images>
void show(const Images&, ps::cuda_stream_ref) {}
template <class Images>
void render(const Images&, ps::cuda_stream_ref) {}

/// Writes a frame of a camera. Returns false after three frames.
template <class Slot>
bool grab(Slot& slot) {
  static int frames = 0;
  std::ranges::fill(ps::get<"image">(slot).flat(), std::uint8_t{1});
  return ++frames <= 3;
}

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

/// Writes IDX files of 256 samples to the working directory, with MNIST's file names.
inline void write_idx(const char* path, std::initializer_list<char> extents, std::size_t bytes) {
  std::ofstream out{path, std::ios::binary};
  out << std::string("\0\0\x08", 3) << static_cast<char>(extents.size() + 1)
      << std::string("\0\0\1\0", 4);
  for (const char extent : extents) out << std::string("\0\0\0", 3) << extent;
  out << std::string(256 * bytes, '\7');
}

/// Writes a gray image of 8 x 8 pixels to folders and to a tar shard in the working directory.
inline void write_images() {
  static constexpr char png[] =
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08\x08\0\0\0\0\xe1\x64\xe1\x57\0\0\0\x23IDAT"
      "\x78\xda\x63\x60\x80\x01\x2e\x28\x60\x10\x81\x02\x06\x39\x28\x60\xd0\x80\x02\x06\x23\x28\x60"
      "\xb0"
      "\x81\x02\x06\x37\x28\0\0\xc5\x28\x08\xc1\x1b\x26\x54\xbb\0\0\0\0IEND\xae\x42\x60\x82";
  const std::string image{png, sizeof png - 1};
  for (const char* kind : {"photos/cat", "photos/dog"}) {
    std::filesystem::create_directories(kind);
    std::ofstream{std::string{kind} + "/1.png", std::ios::binary} << image;
  }
  std::ofstream tar{"train-000.tar", std::ios::binary};
  const auto add = [&](const std::string& name, const std::string& content) {
    std::array<char, 512> header{};
    name.copy(header.data(), 100);
    std::snprintf(header.data() + 124, 12, "%011o", static_cast<unsigned>(content.size()));
    header[156] = '0';
    std::string{"ustar\00000", 8}.copy(header.data() + 257, 8);
    std::fill_n(header.data() + 148, 8, ' ');
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    std::snprintf(header.data() + 148, 8, "%06o", sum);
    tar.write(header.data(), 512);
    tar << content << std::string(511 - (content.size() + 511) % 512, '\0');
  };
  for (const char* key : {"000", "001"}) {
    add(std::string{key} + ".png", image);
    add(std::string{key} + ".cls", "7");
  }
  tar << std::string(1024, '\0');
}

#ifdef PENSTOCK_PAGES_PARQUET
/// Writes a Parquet file of 100 rows, in row groups of 32 rows, to the working directory.
inline void write_points() {
  arrow::FloatBuilder x;
  arrow::Int64Builder label;
  for (int i = 0; i < 100; ++i) {
    if (!x.Append(static_cast<float>(i)).ok() || !label.Append(i % 10).ok()) std::exit(1);
  }
  const auto type = arrow::schema(
      {arrow::field("x", arrow::float32(), false), arrow::field("label", arrow::int64(), false)});
  const auto table = arrow::Table::Make(type, {*x.Finish(), *label.Finish()});
  const auto file = *arrow::io::FileOutputStream::Open("points.parquet");
  if (!parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, 32).ok() ||
      !file->Close().ok()) {
    std::exit(1);
  }
}
#endif

inline int run_all(std::initializer_list<fragment> all) {
  // The fragments write files to a folder next to the program, regardless of the current directory.
  const auto folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "code_blocks.files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  write_idx("train-images-idx3-ubyte", {28, 28}, std::size_t{28} * 28);
  write_idx("train-labels-idx1-ubyte", {}, 1);
  write_images();
#ifdef PENSTOCK_PAGES_PARQUET
  write_points();
#endif
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
