// SPDX-License-Identifier: BSL-1.0
// Tests failing waits during the destruction of slots. The library never frees memory that work
// still uses: it repeats a failed wait once, and leaks the memory if the second wait fails too.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/results/results.hpp>
#include <penstock_ext/serve/batcher.hpp>

#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using word = ps::record<ps::field<"x", std::uint64_t>>;

void use_on(const ps::cuda_stream& stream, const void* memory) {
  fake_cuda::launch(stream.get(), [memory] { (void)*static_cast<const volatile char*>(memory); },
                    {memory});
}

void free_after(const ps::cuda_stream& stream, const ps::cuda_device& device, void* memory) {
  for (int rejections = 0; rejections < 2000; ++rejections) {
    if (cudaStreamSynchronize(stream.get()) == cudaSuccess) break;
  }
  static_cast<void>(cudaGetLastError());
  device.deallocate(memory, 0);
}

/// A function that creates objects whose slots have work on `stream`, and calls `reject` before it
/// destroys them.
using user = std::function<void(const ps::cuda_device&, const ps::cuda_stream& stream,
                                const std::function<void()>& reject)>;

user feeds(ps::zero_copy_use zero_copy) {
  return [zero_copy](const auto& device, const auto& stream, const auto& reject) {
    ps::loader loader{
        digits_flow::digits{64}, ps::sequential{}, device, {.batch_size = 4, .workers = 0}};
    ps::transfer feed{loader, stream, {.tuning = {.zero_copy = zero_copy}}};
    for (auto& batch : feed.epoch(0)) {
      use_on(stream, batch.data());
      if (batch.number() == 2) break;
    }
    reject();
  };
}
void batches_requests(const ps::cuda_device& device, const ps::cuda_stream& stream,
                      const std::function<void()>& reject) {
  void* const to = device.allocate(512);
  {
    ps::batcher<word, ps::cuda_device> requests{device, {.max_batch_size = 1, .depth = 2}};
    requests.submit(1, [](ps::sample<word> out) { ps::get<"x">(out) = 1; });
    auto batch = requests.next();
    device.copy_to_device(to, batch.data(), 8, stream);
    batch.release_after(stream);
    reject();
  }
  free_after(stream, device, to);
}
void has_results(const ps::cuda_device& device, const ps::cuda_stream& stream,
                 const std::function<void()>& reject) {
  ps::results<word, ps::cuda_device> out{device, stream, 4, [](auto&) {}, {.depth = 2}};
  auto slot = out.acquire(ps::batch_info{.size = 4, .valid_size = 4});
  use_on(stream, slot.data());
  slot = {};  // discards the results, so only the event marks the end of the step
  reject();
}
void saves(const ps::cuda_device& device, const ps::cuda_stream& stream,
           const std::function<void()>& reject) {
  std::vector<std::byte> to(8192);
  void* const from = device.allocate(8192);
  {
    ps::bulk_copier copier{device, {.workers = 1, .piece_bytes = 4096, .snapshot = true}};
    auto saving = copier.download(stream, ps::memory_sink{std::span{to}},
                                  std::span{static_cast<const std::byte*>(from), 8192});
    reject();
    try {
      saving.wait();
    } catch (const ps::cuda_error&) {
    }
  }
  free_after(stream, device, from);
}

const std::vector<std::pair<const char*, user>> users{
    {"a feed with copies", feeds(ps::zero_copy_use::never)},
    {"a feed without copies", feeds(ps::zero_copy_use::always)},
    {"a batcher", batches_requests},
    {"results", has_results},
    {"a bulk copier", saves},
};

/// Runs `use` and makes `count` calls of `name` fail, starting at call `first` of the destruction.
void run(const user& use, const char* name, std::uint64_t first, std::uint64_t count) {
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  use(device, stream, [&] {
    const std::uint64_t made = fake_cuda::calls_of(name);
    for (std::uint64_t k = first; k < first + count; ++k) {
      fake_cuda::fail_call_of(name, made + k, cudaErrorUnknown);
    }
  });
}

constexpr std::string_view waits[] = {"cudaEventSynchronize", "cudaEventQuery",
                                      "cudaStreamSynchronize", "cudaDeviceSynchronize"};

}  // namespace

TEST_CASE("a wait that fails once while slots are freed is retried, and nothing leaks",
          "[cuda][promise:race-free-5]") {
  for (const auto& [what, use] : users) {
    if (std::string_view{what} == "a bulk copier") continue;  // a failed wait ends its transfers
    for (const std::string_view name : waits) {
      for (std::uint64_t k = 0; k < 12; ++k) {
        INFO(what << ", " << name << " " << k);
        fake_cuda::reset({.policy = fake_cuda::policy::late});
        run(use, name.data(), k, 1);
        CHECK(fake_cuda::expect_clean());
      }
    }
  }
}

TEST_CASE("memory is leaked rather than freed if its work cannot be waited for",
          "[cuda][promise:race-free-5]") {
  for (const auto& [what, use] : users) {
    for (const std::string_view name : waits) {
      for (const std::uint64_t first : {0U, 1U, 2U, 3U}) {
        INFO(what << ", " << name << " from " << first);
        fake_cuda::reset({.policy = fake_cuda::policy::late});
        run(use, name.data(), first, 1000);
        CHECK(fake_cuda::findings().empty());
      }
    }
  }
  fake_cuda::reset();
}
