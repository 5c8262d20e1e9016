// SPDX-License-Identifier: BSL-1.0
// Tests that bulk transfers on the CUDA device transfer the correct bytes in any order of the
// device work, and that a transfer ends if a call fails.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/bulk/detail/staging_copy.hpp>

#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t page_bytes = 4096;

/// Owns device memory.
class device_words {
 public:
  device_words(const ps::cuda_device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), data_(device.allocate(bytes)) {}
  device_words(device_words&&) = delete;
  ~device_words() { device_.deallocate(data_, bytes_); }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(data_), bytes_};
  }

 private:
  ps::cuda_device device_;
  std::size_t bytes_;
  void* data_;
};

struct outcome {
  int right = 0;
  int wrong = 0;
};

/// Uploads weights, changes them in steps, and saves them after each step, as 8-byte words.
/// Propagates errors from the transfers.
void run(std::size_t workers, std::uint64_t steps, outcome& found) {
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  constexpr std::size_t words = (5 * page_bytes + 512) / 8;
  const device_words weights{device, words * 8};
  std::vector<std::uint64_t> start(words);
  for (std::size_t i = 0; i < words; ++i) start[i] = 1000 * i;
  ps::bulk_copier copier{device, {.workers = workers, .piece_bytes = page_bytes, .snapshot = true}};
  auto loading = copier.upload(stream, weights.bytes(),
                               ps::memory_source{std::as_bytes(std::span{std::as_const(start)})});
  loading.wait(stream);
  std::vector<std::vector<std::uint64_t>> saved(steps, std::vector<std::uint64_t>(words));
  std::vector<ps::bulk_transfer<ps::cuda_device>> saving;
  for (std::uint64_t step = 0; step < steps; ++step) {
    auto* const first = reinterpret_cast<std::uint64_t*>(weights.bytes().data());
    fake_cuda::launch(stream.get(),
                      [first] {
                        for (std::size_t i = 0; i < words; ++i) ++first[i];
                      },
                      {first});
    saving.push_back(copier.download(
        stream, ps::memory_sink{std::as_writable_bytes(std::span{saved[step]})}, weights.bytes()));
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
    saving[step].wait();
    bool is_right = true;
    for (std::size_t i = 0; i < words; ++i) is_right &= saved[step][i] == 1000 * i + step + 1;
    ++(is_right ? found.right : found.wrong);
  }
}

}  // namespace

TEST_CASE("bulk transfers carry the right bytes in any order of the device's work",
          "[cuda][bulk][promise:race-free-4][promise:race-free-15]") {
  for (std::uint64_t seed = 0; seed < seed_count() / 4; ++seed) {
    const auto policy = policy_of(seed);
    INFO("seed " << seed);
    fake_cuda::reset({.policy = policy, .seed = seed});
    outcome found;
    run(1 + seed / 3 % 2, 4, found);
    CHECK(found.right == 4);
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a bulk transfer reports the failure of any CUDA call", "[cuda][bulk][fault:devices-3]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  {
    outcome found;
    run(2, 2, found);
    REQUIRE(found.right == 2);
  }
  const std::uint64_t calls = fake_cuda::calls() + 5;
  const std::uint64_t step = test::sanitized ? 5 : 1;
  std::uint64_t failures = 0;
  for (std::uint64_t k = 0; k < calls; k += step) {
    INFO("call " << k << " of " << calls);
    fake_cuda::reset({.policy = fake_cuda::policy::late});
    fake_cuda::fail_call(k, cudaErrorUnknown);
    outcome found;
    try {
      run(2, 2, found);
      CHECK(found.right == 2);
    } catch (const ps::cuda_error& error) {
      CHECK(error.code() == cudaErrorUnknown);
      ++failures;
    } catch (const ps::out_of_memory&) {
      ++failures;
    }
    CHECK(found.wrong == 0);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(fake_cuda::expect_clean());
  }
  CHECK(failures > calls / step / 4);
}

TEST_CASE("a device that is lost ends bulk transfers", "[cuda][bulk][fault:devices-1]") {
  for (const std::uint64_t from : {60U, 90U, 120U}) {
    fake_cuda::reset({.policy = fake_cuda::policy::late});
    fake_cuda::fail_from(from, cudaErrorLaunchFailure);
    outcome found;
    CHECK_THROWS_AS(run(2, 40, found), ps::cuda_error);
    CHECK(found.wrong == 0);
  }
}

namespace {

/// A source that counts the calls to both functions.
struct counting_source {
  struct counts {
    std::atomic<int> plain{0};
    std::atomic<int> non_temporal{0};
  };
  ps::memory_source bytes;
  counts* calls;
  [[nodiscard]] std::uint64_t size() const { return bytes.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    ++calls->plain;
    bytes.read(offset, out);
  }
  void read_non_temporal(std::uint64_t offset, std::span<std::byte> out) const {
    ++calls->non_temporal;
    bytes.read_non_temporal(offset, out);
  }
};

/// Uploads four and a half pieces on one thread with two pieces of memory. Returns true if the
/// bytes arrive.
template <class Device>
bool upload_counted(const Device& device, std::size_t piece_bytes, counting_source::counts& calls) {
  const auto stream = device.make_stream();
  const std::size_t count = 4 * piece_bytes + piece_bytes / 2;
  std::vector<std::byte> source(count);
  for (std::size_t i = 0; i < count; ++i)
    source[i] = static_cast<std::byte>(i * 2654435761U >> 20U);
  const ps::detail::slab<Device> there{device, count, ps::detail::memory_kind::device};
  const std::span<std::byte> to{there.data(), count};
  std::vector<std::byte> back(count);
  ps::bulk_copier copier{device, {.workers = 1, .piece_bytes = piece_bytes}};
  copier.upload(stream, to, counting_source{ps::memory_source{source}, &calls}).wait();
  copier.download(stream, ps::memory_sink{back}, std::span<const std::byte>{to}).wait();
  return back == source;
}

}  // namespace

TEST_CASE("an upload bypasses the caches if a copy engine reads a ring that exceeds them",
          "[cuda][bulk]") {
  fake_cuda::reset({});
  constexpr std::size_t large = std::size_t{4} << 20;
  const bool can = ps::detail::prefers_non_temporal(2 * large);
  {
    counting_source::counts calls;
    CHECK(upload_counted(ps::cuda_device{0}, large, calls));
    CHECK(calls.non_temporal == (can ? 5 : 0));
    CHECK(calls.plain == (can ? 0 : 5));
  }
  {
    counting_source::counts calls;
    CHECK(upload_counted(ps::cuda_device{0}, page_bytes, calls));
    CHECK(calls.plain == 5);
  }
  {
    counting_source::counts calls;
    CHECK(upload_counted(ps::cpu_device{}, large, calls));
    CHECK(calls.plain == 5);
  }
  CHECK(fake_cuda::expect_clean());
}
