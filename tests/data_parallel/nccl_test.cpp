// SPDX-License-Identifier: BSL-1.0
// Tests training by ranks that sum with NCCL, without a GPU. Uses the fake CUDA runtime, and a fake
// NCCL whose other ranks have the same values as this rank.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include <nccl.h>

#include <penstock/cuda.hpp>
#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/files/idx_dataset.hpp>
#include <penstock_ext/ranks/world.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "nccl_ranks.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "train.hpp"

namespace ps = penstock;

namespace data_parallel {

/// Replaces the kernels of Thrust.
template <class Kernel>
void each(ps::cuda_stream_ref stream, std::size_t count, const Kernel& kernel) {
  fake_cuda::launch(stream.get(), [count, kernel] {
    for (std::size_t i = 0; i < count; ++i) kernel(i);
  });
}

}  // namespace data_parallel

namespace {

/// Records the calls to the fake NCCL below, and stores the callbacks of its all-reduces.
struct {
  int size = 1;
  int aborts = 0;
  ncclResult_t answer = ncclSuccess;
  std::vector<std::size_t> sums;                 // sizes of the sums
  std::vector<cudaStream_t> streams;             // streams of the sums
  std::function<void(std::size_t)> when_called;  // called with the index of the sum
  std::function<void(std::size_t)> before_sum;   // runs on the stream before the sum
} other_ranks;

/// A world of `count` ranks with the same values as this rank.
struct mirrors {
  int count;
  static int rank() { return 0; }
  [[nodiscard]] int size() const { return count; }
  static void gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = mine[i % mine.size()];
  }
  // Leaves the values unchanged, as if the values of all other ranks were 0.
  static void sum(std::span<float>, ps::cpu_stream_ref) {}
  static void join(ps::cpu_stream_ref) {}
};

}  // namespace

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId, int) {
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
  return other_ranks.answer;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t) {
  ++other_ranks.aborts;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
}

namespace {

using ranks_by_nccl = data_parallel::nccl_ranks<mirrors>;

/// A flag that work on a stream waits for. The wait is bounded, so that a test fails instead of
/// hanging.
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

/// The part of a batch that belongs to a rank, for `shared_step`.
struct share {
  static constexpr std::size_t samples = 4;
  ps::batch_layout<ps::digit_record> layout{{}, samples};
  data_parallel::array<std::byte, ps::cuda_device> memory;

  share(const ps::cuda_device& device, ps::cuda_stream_ref stream)
      : memory(device, layout.bytes()) {
    std::vector<std::byte> host(layout.bytes());
    const ps::batch_view<ps::digit_record> batch{host.data(), layout, 0, samples};
    const auto pixels = ps::get<"image">(batch).flat();
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(i * i % 251);
    }
    const auto labels = ps::get<"label">(batch).flat();
    for (std::size_t i = 0; i < samples; ++i) labels[i] = static_cast<std::uint8_t>(3 * i);
    memory.put(host, stream);
  }
  [[nodiscard]] auto batch() const {
    return ps::const_batch_view<ps::digit_record>{memory.data(), layout, 0, samples};
  }
};

/// A rank in a world of several ranks, and its steps.
struct rank_on_fake {
  ps::cuda_device device{0};
  ps::cuda_stream stream{device.make_stream()};
  mirrors others;
  ranks_by_nccl ranks;
  data_parallel::shared_step<ps::cuda_device, ranks_by_nccl> step;
  share mine{device, stream};

  explicit rank_on_fake(int size)
      : others{size},
        ranks{others, device},
        step{device, stream, ranks,
             data_parallel::options{.global_batch =
                                        share::samples * static_cast<std::size_t>(size)}} {
    step.net().assign(7, stream);
  }
  void train() {
    step.differentiate(mine.batch());
    step.update();
  }
};

/// Digits whose pixels depend on their class.
struct digits {
  using record_type = ps::digit_record;
  static std::uint64_t size() { return 96; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    std::size_t i = 0;
    for (std::uint8_t& pixel : ps::get<"image">(out).flat()) {
      pixel = static_cast<std::uint8_t>(i++ * (index % 10 + 3) % 251);
    }
    ps::get<"label">(out) = static_cast<std::uint8_t>(index % 10);
  }
};

}  // namespace

TEST_CASE("gradients are summed layer by layer on a separate stream before the update",
          "[data_parallel]") {
  other_ranks = {};
  fake_cuda::reset();
  std::vector<float> expected;
  {
    rank_on_fake alone{1};
    for (int i = 0; i < 3; ++i) alone.train();
    expected = alone.step.net().weights.get(alone.stream);
    CHECK(other_ranks.sums == std::vector<std::size_t>{330, 25120, 330, 25120, 330, 25120});
    CHECK(std::count(other_ranks.streams.begin(), other_ranks.streams.end(), alone.stream.get()) ==
          0);
  }
  // The sum over two equal ranks with half of the gradients each has the same bits as the gradients
  // of one rank. The bits are equal only if each gradient is summed exactly once, after it is
  // computed and before the update.
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const auto policy = seed == 0   ? fake_cuda::policy::late
                        : seed == 1 ? fake_cuda::policy::early
                                    : fake_cuda::policy::random;
    fake_cuda::reset({.policy = policy, .seed = seed});
    {
      rank_on_fake two{2};
      for (int i = 0; i < 3; ++i) two.train();
      CHECK(two.step.loss() > 0.0F);
      CHECK((two.step.net().weights.get(two.stream) == expected));
    }
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("the backward pass continues while a layer's gradients are summed", "[data_parallel]") {
  other_ranks = {};
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  gate made;
  std::atomic<bool> all_made_first{false};
  rank_on_fake here{2};
  // The sum of the last layer's gradients waits until the first layer's gradients are computed.
  other_ranks.when_called = [&](std::size_t number) {
    if (number == 1) fake_cuda::launch(here.stream.get(), [&] { made.open(); });
  };
  other_ranks.before_sum = [&](std::size_t number) {
    if (number == 0) all_made_first = made.pass();
  };
  here.train();
  here.device.synchronize(here.stream);
  CHECK(all_made_first);
  other_ranks = {};
}

TEST_CASE("the error of a failed NCCL sum names the call and the rank", "[data_parallel]") {
  other_ranks = {};
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  const auto fail = [] {
    rank_on_fake here{2};
    other_ranks.answer = ncclInternalError;
    here.train();
  };
  CHECK_THROWS_WITH(fail(), "ncclAllReduce on rank 0 of 2: an error");
  CHECK(other_ranks.aborts == 1);  // aborts, because a normal end would wait for other ranks
  other_ranks = {};
  { const rank_on_fake here{2}; }
  CHECK(other_ranks.aborts == 0);
}

TEST_CASE(
    "a rank on a GPU has the same losses as on the CPU device and resumes from its checkpoint",
    "[data_parallel]") {
  other_ranks = {};
  const test::temp_dir directory;
  data_parallel::options chosen{.epochs = 2, .global_batch = 16};
  const ps::cpu_device cpu;
  mirrors alone{1};
  const auto expected = data_parallel::train(digits{}, {}, cpu, cpu.inline_stream(), alone, chosen);
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 3});
  {
    const ps::cuda_device device{0};
    device.make_current();
    const auto stream = device.make_stream();
    ranks_by_nccl ranks{alone, device};
    const auto train = [&] {
      return data_parallel::train(digits{}, {}, device, ps::cuda_stream_ref{stream}, ranks, chosen);
    };
    const auto found = train();
    CHECK(found.steps == 12);
    CHECK(std::abs(found.last_loss - expected.last_loss) < 1e-4F);
    chosen.checkpoint = directory.path("training");
    chosen.epochs = 1;
    CHECK(train().steps == 6);
    chosen.epochs = 2;
    const auto again = train();
    CHECK(again.next == 6);
    CHECK(again.steps == 6);
    CHECK((again.weights == found.weights));
    CHECK(train().steps == 0);
  }
  CHECK(fake_cuda::expect_clean());
}
