// SPDX-License-Identifier: BSL-1.0
// penstock_data_parallel: one training run, shared by the ranks that mpirun started, on the CPU
// device or with one GPU per rank. If nvcc and NCCL are found, nvcc compiles the program, otherwise
// the C++ compiler.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <penstock/penstock.hpp>
#include <penstock_ext/files/idx_dataset.hpp>
#include <penstock_ext/ranks/world.hpp>

#include "mpi_ranks.hpp"
#include "train.hpp"

#if defined(__CUDACC__)
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cuda/execution_policy.h>
#include <penstock/cuda.hpp>

#include "nccl_ranks.hpp"

namespace data_parallel {

template <class Kernel>
void each(penstock::cuda_stream_ref stream, std::size_t count, const Kernel& kernel) {
  thrust::for_each_n(thrust::cuda::par_nosync.on(stream.get()),
                     thrust::counting_iterator<std::size_t>{0}, count, kernel);
}

}  // namespace data_parallel
#endif

namespace {

namespace ps = penstock;

/// The command line.
struct command_line : data_parallel::options {
  bool on_gpu = false;
  std::uint64_t samples = 60'000;
  std::string data;  ///< folder of the MNIST files; empty means random digits
};

constexpr std::string_view usage =
    "penstock_data_parallel [--device cpu|cuda] [--data FOLDER] [--samples N] [--epochs N]\n"
    "    [--batch N] [--workers N] [--seed N] [--deterministic] [--checkpoint FILE] [--every "
    "STEPS]\n"
    "    [--log FILE] [--die RANK:STEP]\n"
    "--batch: samples a step, over all ranks. --deterministic: the same bits for 1, 2, 4, 8 "
    "ranks.\n"
    "--die: for tests, a rank ends as by kill -9.\n";

/// Parses an integer. Throws `std::invalid_argument`, whose message contains the argument.
template <class Integer>
void read_number(std::string_view text, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return;
  throw std::invalid_argument("expected a number, found '" + std::string{text} + "'");
}

command_line parse(int argc, char** argv) {
  command_line o;
  const std::map<std::string_view, std::function<void(std::string_view)>> known{
      {"--device",
       [&](auto text) {
         if (text != "cpu" && text != "cuda") throw std::invalid_argument("--device: cpu or cuda");
         o.on_gpu = text == "cuda";
       }},
      {"--data", [&](auto text) { o.data = text; }},
      {"--samples", [&](auto text) { read_number(text, o.samples); }},
      {"--epochs", [&](auto text) { read_number(text, o.epochs); }},
      {"--batch", [&](auto text) { read_number(text, o.global_batch); }},
      {"--workers", [&](auto text) { read_number(text, o.workers); }},
      {"--seed", [&](auto text) { read_number(text, o.seed); }},
      {"--checkpoint", [&](auto text) { o.checkpoint = text; }},
      {"--every", [&](auto text) { read_number(text, o.every); }},
      {"--log", [&](auto text) { o.log = text; }},
      {"--die", [&](auto text) {
         const std::size_t colon = text.find(':');
         read_number(text.substr(0, colon), o.dying_rank);
         read_number(text.substr(colon == text.npos ? text.size() : colon + 1), o.dying_step);
       }}};
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--deterministic") {
      o.deterministic = true;
      continue;
    }
    const auto option = known.find(name);
    if (option == known.end() || i + 1 == argc) {
      throw std::invalid_argument(std::string{name} + "\n" + std::string{usage});
    }
    option->second(argv[++i]);
  }
  if (o.every == 0 || o.epochs == 0) throw std::invalid_argument("--every, --epochs: at least 1");
  return o;
}

/// Digits that are generated when they are read, so that a rank generates only its own digits. A
/// digit is a random pattern of its class with added noise.
struct random_digits {
  using record_type = ps::digit_record;
  std::uint64_t count = 0;

  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::sample_generator ink{ps::random_key{.seed = 28}, index % 10};
    ps::sample_generator noise{ps::random_key{.seed = 29}, index};
    for (std::uint8_t& pixel : ps::get<"image">(out).flat()) {
      const bool is_inked = (ink() & 255U) < 40;
      const std::uint32_t drawn = noise() & 255U;
      const bool is_flipped = drawn > 230;
      pixel = static_cast<std::uint8_t>(is_inked != is_flipped ? drawn : drawn / 32);
    }
    ps::get<"label">(out) = static_cast<std::uint8_t>(index % 10);
  }
};

template <class Data>
data_parallel::result train_on_device(const Data& data, const ps::world& w,
                                      data_parallel::mpi_ranks& ranks, const command_line& o) {
  if (!o.on_gpu) {
    const ps::cpu_device device;
    return data_parallel::train(data, w, device, device.inline_stream(), ranks, o);
  }
#if defined(__CUDACC__)
  const ps::cuda_device device{w.local_rank};
  device.make_current();
  const auto stream = device.make_stream();
  data_parallel::nccl_ranks by_nccl{ranks, device};
  return data_parallel::train(data, w, device, ps::cuda_stream_ref{stream}, by_nccl, o);
#else
  throw std::runtime_error("--device cuda: the program was built without CUDA or without NCCL");
#endif
}

data_parallel::result train(const ps::world& w, data_parallel::mpi_ranks& ranks,
                            const command_line& o) {
  if (o.data.empty()) return train_on_device(random_digits{o.samples}, w, ranks, o);
  const ps::idx_dataset<> digits{o.data + "/train-images-idx3-ubyte",
                                 o.data + "/train-labels-idx1-ubyte"};
  return train_on_device(digits | ps::subset(0, std::min(o.samples, digits.size())), w, ranks, o);
}

void report(const data_parallel::result& found, const ps::world& w) {
  std::uint64_t hash = 14695981039346656037U;  // an FNV-1a hash, to compare two runs visually
  for (const std::byte each : std::as_bytes(std::span{found.weights})) {
    hash = (hash ^ static_cast<std::uint64_t>(each)) * 1099511628211U;
  }
  std::cout << "ranks      " << w.size << "\nwent on at " << found.next << "\nsteps      "
            << found.steps << "\nlast loss  " << found.last_loss << "\nparameters " << std::hex
            << hash << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  std::string who = "penstock_data_parallel";
  try {
    const command_line chosen = parse(argc, argv);
    const auto w = ps::world::from_environment();
    who += ": " + w.str();
    data_parallel::mpi_ranks ranks{w};
    try {
      const auto found = train(w, ranks, chosen);
      if (w.rank == 0) report(found, w);
      return 0;
    } catch (const std::exception& error) {
      std::cerr << who << ": " << error.what() << std::endl;
      data_parallel::mpi_ranks::abort();
    }
  } catch (const std::exception& error) {
    std::cerr << who << ": " << error.what() << '\n';
    return 1;
  }
}
