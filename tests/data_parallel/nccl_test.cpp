// SPDX-License-Identifier: BSL-1.0
// The network trained by ranks that sum by NCCL, without a GPU: its CUDA side on the CUDA double,
// on an NCCL whose other ranks have what this one has.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <nccl.h>

#include <penstock/cuda.hpp>
#include <penstock/penstock.hpp>
#include <penstock/ranks/run_mismatch.hpp>
#include <penstock/ranks/world.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "host_backend.hpp"
#include "ranks/digit_source.hpp"
#include "ranks/host_ranks.hpp"
#include "ranks/nccl_collective.hpp"
#include "ranks/parallel_step.hpp"
#include "ranks/train.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
// Behind the host's, for its stand-ins add to Thrust's namespace.
#include "cuda_backend.cuh"
#include "cuda_ranks.cu"

namespace ps = penstock;

namespace {

/// What the NCCL below has been asked for, and what its sums wait for.
struct {
  int size = 1;
  std::vector<std::size_t> sums;                 // their lengths
  std::vector<cudaStream_t> streams;             // and where they were put
  std::function<void(std::size_t)> when_called;  // with the number of the sum
  std::function<void(std::size_t)> before_sum;   // runs in the sum's place in its stream
  std::function<void()> when_aborted;
} other_ranks;

/// A world of so many ranks, of which each has what this one has.
struct mirrors {
  int count;
  static int rank() { return 0; }
  [[nodiscard]] int size() const { return count; }
  static void all_reduce(std::span<float>) {}
  static void barrier() {}
  static void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = mine[i % mine.size()];
  }
};

}  // namespace

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId, int, ncclConfig_t*) {
  *comm = reinterpret_cast<ncclComm_t>(&other_ranks);
  other_ranks.size = size;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void*, void* values, std::size_t count, ncclDataType_t,
                           ncclRedOp_t, ncclComm_t, cudaStream_t stream) {
  const std::size_t number = other_ranks.sums.size();
  other_ranks.sums.push_back(count);
  other_ranks.streams.push_back(stream);
  if (other_ranks.when_called) other_ranks.when_called(number);
  const auto work = [number, to = static_cast<float*>(values), count,
                     times = static_cast<float>(other_ranks.size), wait = other_ranks.before_sum] {
    if (wait) wait(number);
    for (std::size_t i = 0; i < count; ++i) to[i] *= times;
  };
  fake_cuda::launch(stream, work, {values});
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t) {
  if (other_ranks.when_aborted) other_ranks.when_aborted();
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
}

namespace {

using mlp::shape;
using nccl = mlp::nccl_collective<mirrors>;

/// A flag that work on a stream waits for; not forever, so that a test fails and does not hang.
class gate {
 public:
  void open() {
    const std::lock_guard lock{mutex_};
    is_open_ = true;
    opened_.notify_all();
  }
  [[nodiscard]] bool pass() {
    std::unique_lock lock{mutex_};
    return opened_.wait_for(lock, std::chrono::seconds{20}, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

/// Two steps on one rank's share of a batch, in device memory.
struct rank_on_double {
  static constexpr std::size_t share = 4;
  ps::cuda_device device{0};
  ps::cuda_stream stream{device.make_stream()};
  mlp::cuda_backend backend{device, share, mlp::kernel_choice::thrust, false};
  mirrors others;
  nccl ranks;
  mlp::parallel_step<mlp::cuda_backend, nccl> step;
  mlp::device_array<std::uint8_t, ps::cuda_device> images{device, share* shape::inputs};
  mlp::device_array<std::uint8_t, ps::cuda_device> labels{device, share};

  explicit rank_on_double(int size, nccl::duration patience = std::chrono::minutes{1})
      : others{size},
        ranks{others, device, stream, patience},
        step{device,
             backend,
             stream,
             ranks,
             share * static_cast<std::size_t>(size),
             mlp::reduction::fast} {
    std::vector<std::uint8_t> pixels(share * shape::inputs);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(i * i % 251);
    }
    images.upload(pixels, 0, stream);
    labels.upload(std::vector<std::uint8_t>{3, 0, 9, 7}, 0, stream);
    step.net().assign(mlp::initial_parameters(7), stream);
  }
  void train() {
    step.differentiate(images.data(), labels.data(), share);
    step.update();
  }
  [[nodiscard]] std::vector<float> parameters() {
    step.wait();
    return step.net().saved(stream).parameters;
  }
};

}  // namespace

TEST_CASE("gradients are summed layer by layer on a stream of their own, and learnt when all are",
          "[mlp]") {
  other_ranks = {};
  fake_cuda::reset();
  std::vector<float> expected;
  {
    rank_on_double alone{1};
    for (int i = 0; i < 3; ++i) alone.train();
    expected = alone.parameters();
    CHECK(other_ranks.sums ==
          std::vector<std::size_t>{650, 8256, 100480, 650, 8256, 100480, 650, 8256, 100480});
    CHECK(std::count(other_ranks.streams.begin(), other_ranks.streams.end(), alone.stream.get()) ==
          0);
  }
  // Half the gradients twice are the same bits, if each is summed once, when it is made, and before
  // it is learnt.
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const auto policy = seed == 0   ? fake_cuda::policy::late
                        : seed == 1 ? fake_cuda::policy::early
                                    : fake_cuda::policy::random;
    fake_cuda::reset({.policy = policy, .seed = seed});
    {
      rank_on_double two{2};
      for (int i = 0; i < 3; ++i) two.train();
      CHECK(two.step.losses().size() == 8);
      CHECK((two.parameters() == expected));
    }
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("the backward pass goes on while a layer's gradients are summed", "[mlp]") {
  other_ranks = {};
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  gate made;
  std::atomic<bool> all_made_first{false};
  rank_on_double here{2};
  // The sum of the last layer's waits until the first layer's are made.
  other_ranks.when_called = [&](std::size_t number) {
    if (number == 2) fake_cuda::launch(here.stream.get(), [&] { made.open(); });
  };
  other_ranks.before_sum = [&](std::size_t number) {
    if (number == 0) all_made_first = made.pass();
  };
  here.train();
  here.step.wait();
  CHECK(all_made_first);
  other_ranks = {};
}

TEST_CASE("the host is a step ahead of a sum that does not come, and then has an error", "[mlp]") {
  other_ranks = {};
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  gate aborted;
  rank_on_double here{2, std::chrono::seconds{0}};
  other_ranks.before_sum = [&](std::size_t) { static_cast<void>(aborted.pass()); };
  other_ranks.when_aborted = [&] { aborted.open(); };
  here.train();
  CHECK_THROWS_WITH(here.train(), Catch::Matchers::Contains("a rank has not come to it in time"));
  CHECK_THROWS_AS(here.train(), mlp::nccl_error);
  here.device.synchronize(here.stream);  // what waited for the others has ended
  other_ranks = {};
}

TEST_CASE("the loop of a rank on CUDA has the CPU device's losses, and goes on from its checkpoint",
          "[mlp]") {
  other_ranks = {};
  const test::temp_dir directory;
  const mlp::digit_source digits{96};
  mlp::rank_options chosen;
  chosen.samples = 96;
  chosen.global_batch = 16;
  chosen.epochs = 2;
  const ps::cpu_device cpu;
  mlp::no_collective alone;
  const auto expected = mlp::train_in_parallel(digits, {}, cpu, mlp::host_backend{},
                                               cpu.inline_stream(), alone, chosen);
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 3});
  mlp::host_ranks_of host{alone};
  chosen.checkpoint = directory.path("training");
  chosen.every = 5;
  const auto found = mlp::train_on_cuda(digits, {}, host, chosen);
  CHECK(found.steps == 12);
  CHECK(found.batches == expected.batches);
  CHECK(std::abs(found.last_loss - expected.last_loss) < 1e-4);
  // The one before the last is that of step 10.
  mlp::write_checkpoint(*chosen.checkpoint,
                        mlp::read_checkpoint(chosen.checkpoint->string() + ".before"));
  const auto again = mlp::train_on_cuda(digits, {}, host, chosen);
  CHECK(again.steps == 2);
  CHECK(again.parameters == found.parameters);
  chosen.how = mlp::reduction::ordered;
  CHECK_THROWS_WITH(mlp::train_on_cuda(digits, {}, host, chosen),
                    Catch::Matchers::Contains("it is of the CPU device"));
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("ranks that have been given one GPU are warned of in words", "[mlp]") {
  other_ranks = {};
  fake_cuda::reset();
  mlp::rank_options chosen;
  chosen.samples = 16;
  chosen.global_batch = 16;
  std::ostringstream said;
  auto* const before = std::cerr.rdbuf(said.rdbuf());
  mirrors both{2};
  mlp::host_ranks_of host{both};
  // The mirrored ranks say that they are the same rank, which ends the run then.
  CHECK_THROWS_AS(mlp::train_on_cuda({16}, {.rank = 0, .size = 2}, host, chosen), ps::run_mismatch);
  std::cerr.rdbuf(before);
  CHECK_THAT(said.str(),
             Catch::Matchers::Contains("ranks 0 and 1 share the GPU FFFF:0B:00.0 of ") &&
                 Catch::Matchers::Contains("a GPU for each rank"));
}
