// SPDX-License-Identifier: BSL-1.0
// Runs one part of the flow for a given number of batches, so that bench/instructions.sh can count
// its instructions. Samples have only four bytes, so that the library executes most of the
// instructions.
//
//   instructions PART BATCH_SIZE BATCHES
//
// Parts: plain          the floor: indices, a gather, and a consumer that reads every value
//        inline         a loader without workers and the same consumer
//        worker         a loader with one worker and the same consumer
//        guarded        the same with an error policy, a stall warning, a timeout and a stop token
//        transfer       that loader, a transfer on the CPU device and the same consumer

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>

namespace {

namespace ps = penstock;

using number = ps::record<ps::field<"x", std::uint32_t>>;

constexpr std::size_t samples = std::size_t{1} << 16;
constexpr std::uint64_t epochs = 1'000'000;  // more than any run needs

std::vector<std::uint32_t> numbers() {
  std::vector<std::uint32_t> made(samples);
  for (std::size_t i = 0; i < samples; ++i) made[i] = static_cast<std::uint32_t>(i * 2654435761U);
  return made;
}

std::uint64_t sum_of(std::span<const std::uint32_t> values) {
  std::uint64_t sum = 0;
  for (const std::uint32_t value : values) sum += value;
  return sum;
}

std::uint64_t plain(std::size_t batch_size, std::uint64_t batches) {
  const auto data = numbers();
  std::vector<std::uint64_t> indices(batch_size);
  std::vector<std::uint32_t> slab(batch_size);
  std::uint64_t sum = 0;
  for (std::uint64_t epoch = 0; batches > 0; ++epoch) {
    const auto order = ps::shuffled{.seed = 1}.order(samples, epoch);
    for (std::size_t first = 0; first < samples && batches > 0; first += batch_size, --batches) {
      const std::size_t count = std::min(batch_size, samples - first);
      order.fill(first, std::span{indices}.first(count));
      for (std::size_t i = 0; i < count; ++i) slab[i] = data[indices[i]];
      asm volatile("" ::: "memory");  // forces values through memory, as if threads exchanged them
      sum += sum_of(std::span{slab}.first(count));
    }
  }
  return sum;
}

ps::loader_options guarded(ps::loader_options options) {
  options.faults.on_error = {.retries = 3, .action = ps::error_action::replace};
  options.faults.stall_warning = std::chrono::minutes{1};
  options.faults.timeout = std::chrono::minutes{10};
  options.stop = std::stop_source{}.get_token();
  return options;
}

std::uint64_t load(std::uint64_t batches, const ps::loader_options& options) {
  const auto data = numbers();
  ps::loader loader{ps::memory_dataset<number>{data}, ps::shuffled{.seed = 1}, options};
  std::uint64_t sum = 0;
  for (auto& batch : loader.epochs(0, epochs)) {
    sum += sum_of(ps::get<"x">(batch).flat());
    if (--batches == 0) break;
  }
  return sum;
}

std::uint64_t transfer(std::size_t batch_size, std::uint64_t batches) {
  const auto data = numbers();
  ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{ps::memory_dataset<number>{data},
                    ps::shuffled{.seed = 1},
                    device,
                    {.batch_size = batch_size, .workers = 1}};
  ps::transfer feed{loader, stream};
  std::uint64_t sum = 0;
  for (auto& batch : feed.epochs(0, epochs)) {
    stream.launch([&sum, x = ps::get<"x">(batch)] { sum += sum_of(x.flat()); });
    if (--batches == 0) break;
  }
  device.synchronize(stream);
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc == 4 ? argv[1] : "";
  const std::size_t batch_size = argc == 4 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const std::uint64_t batches = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
  std::uint64_t result = 0;
  if (batch_size == 0 || batches == 0) {
    std::fprintf(stderr,
                 "usage: instructions plain|inline|worker|guarded|transfer BATCH_SIZE BATCHES\n");
    return 2;
  }
  if (part == "plain") {
    result = plain(batch_size, batches);
  } else if (part == "inline") {
    result = load(batches, {.batch_size = batch_size, .workers = 0});
  } else if (part == "worker") {
    result = load(batches, {.batch_size = batch_size, .workers = 1});
  } else if (part == "guarded") {
    result = load(batches, guarded({.batch_size = batch_size, .workers = 1}));
  } else if (part == "transfer") {
    result = transfer(batch_size, batches);
  } else {
    std::fprintf(stderr, "instructions: no part called %s\n", part.c_str());
    return 2;
  }
  std::printf("%llu\n", static_cast<unsigned long long>(result));
}
