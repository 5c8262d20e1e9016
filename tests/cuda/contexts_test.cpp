// SPDX-License-Identifier: BSL-1.0
// Tests that work on one device creates no context on another device. A context takes hundreds of
// megabytes of device memory.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

/// Runs `what` on a thread that has not called the runtime before. Returns the thread's current
/// device afterwards.
int on_new_thread(const std::function<void()>& what) {
  int current = -1;
  std::thread{[&] {
    what();
    CHECK(cudaGetDevice(&current) == cudaSuccess);
  }}.join();
  return current;
}

void touch_streams_and_events(const ps::cuda_device& device) {
  const auto stream = device.make_stream();
  const auto other = device.make_stream();
  auto event = device.make_event();
  for (const cudaStream_t one : {stream.get(), cudaStream_t{cudaStreamLegacy}}) {
    const ps::cuda_stream_ref ref = one;
    device.require_usable(ref);
    device.record(event, ref);
    device.wait(other, event);
    device.synchronize(event);
    CHECK(device.is_complete(event));
    device.synchronize(ref);
  }
}

void touch_memory(const ps::cuda_device& device) {
  const std::size_t page = 4096;
  const ps::detail::pinned_sizes tiny{.mapped_above = page, .chunk = 4 * page, .page = page};
  void* const on_device = device.allocate(page);
  const ps::pinned_block small = device.allocate_pinned(page);
  void* const large = ps::detail::cuda_allocate_pinned(device.ordinal(), 40 * page, 256, tiny);
  std::vector<std::byte> mine(page);
  device.register_memory(mine.data(), mine.size(), false);
  {
    const auto stream = device.make_stream();
    device.copy_async(on_device, small.data, page, stream);
    device.copy_async(mine.data(), on_device, page, stream);
    device.synchronize(ps::cuda_stream_ref{stream});
  }
  // Frees everything on another thread, on which no context is current either.
  on_new_thread([&] {
    device.unregister_memory(mine.data(), mine.size());
    ps::detail::cuda_deallocate_pinned(device.ordinal(), large, 40 * page, 256, tiny);
    device.deallocate_pinned(small.data, page);
    device.deallocate(on_device, page);
  });
}

void end_owners_elsewhere(const ps::cuda_device& device) {
  auto stream = device.make_stream();
  auto event = device.make_event();
  std::optional<ps::cuda_stream> taken;
  {
    const auto current = device.enter_scope();
    taken = ps::cuda_stream::from_native_handle(device.make_stream().release());
  }
  on_new_thread([&] {
    const auto gone = std::move(event);
    const auto gone_too = std::move(stream);
    taken.reset();
  });
}

void replay_a_step(const ps::cuda_device& device) {
  auto graphs = std::make_optional<ps::step_graphs>(device);
  auto stream = device.make_stream();
  int runs = 0;
  for (const cudaStream_t one : {stream.get(), cudaStream_t{cudaStreamLegacy}}) {
    for (int turn = 0; turn < 2; ++turn) {
      const std::size_t slot = one == stream.get() ? 0 : 1;
      const auto work = [&](ps::cuda_stream_ref on) {
        fake_cuda::launch(on.get(), [&runs] { ++runs; });
      };
      graphs->launch(slot, 1, one, work);
      device.synchronize(ps::cuda_stream_ref{one});
    }
  }
  CHECK(runs == 4);
  on_new_thread([&] { graphs.reset(); });
}

void feed(const ps::cuda_device& device, std::size_t workers) {
  digits_flow::outcome found;
  digits_flow::run(device, {.workers = workers, .epochs = 2}, found);
  CHECK(found.right == 12);
}

/// Runs two epochs from pageable memory, with a transform and a second stream that uses each batch.
void feed_by_transform(const ps::cuda_device& device) {
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  ps::loader loader{digits_flow::digits{28},
                    ps::sequential{},
                    device,
                    {.batch_size = 8, .workers = 1, .pinned = false}};
  const auto nothing = [](auto, auto, ps::cuda_stream_ref on) {
    fake_cuda::launch(on.get(), [] {});
  };
  ps::transfer feed{loader, stream, ps::on_stream<digits_flow::record>(nothing)};
  for (auto& batch : feed.epochs(0, 2)) batch.also_used_on(second);
}

void everything(const ps::cuda_device& device) {
  touch_streams_and_events(device);
  touch_memory(device);
  end_owners_elsewhere(device);
  replay_a_step(device);
  feed(device, 0);
  feed(device, 2);
  feed_by_transform(device);
}

}  // namespace

TEST_CASE("work on one device creates no context on another", "[cuda][fault:devices-8]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::early);
  fake_cuda::reset({.policy = policy, .devices = 3});

  SECTION("on a thread that never selected a device, and device 0 stays current") {
    CHECK(on_new_thread([] { everything(ps::cuda_device{1}); }) == 0);
    CHECK(fake_cuda::contexts(0) == 0);
  }
  SECTION("on a thread that selected the same device") {
    const auto work = [] {
      CHECK(cudaSetDevice(1) == cudaSuccess);
      everything(ps::cuda_device{1});
    };
    CHECK(on_new_thread(work) == 1);
    CHECK(fake_cuda::contexts(0) == 0);
  }
  SECTION("on a thread that selected device 0, and device 0 stays current") {
    const auto work = [] {
      CHECK(cudaSetDevice(0) == cudaSuccess);
      everything(ps::cuda_device{1});
    };
    CHECK(on_new_thread(work) == 0);
    CHECK(fake_cuda::contexts(0) == 1);
  }
  CHECK(fake_cuda::contexts(1) == 1);
  CHECK(fake_cuda::contexts(2) == 0);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("any failing call on a device that the thread never selected leaks nothing",
          "[cuda][fault:devices-8]") {
  fake_cuda::reset({.devices = 2});
  const auto run = [] {
    return on_new_thread([] {
      try {
        digits_flow::outcome found;
        digits_flow::run(ps::cuda_device{1}, {.workers = 0}, found);
        CHECK(found.wrong == 0);
      } catch (const ps::cuda_error& error) {
        CHECK(error.code() == cudaErrorUnknown);
      } catch (const ps::out_of_memory&) {
      }
      CHECK(cudaPeekAtLastError() == cudaSuccess);
    });
  };
  // Runs once before, because a process looks up the driver's functions only once.
  CHECK(run() == 0);
  fake_cuda::reset({.devices = 2});
  CHECK(run() == 0);
  const std::uint64_t calls = fake_cuda::calls() - 1;  // excludes the test's own last call
  const std::uint64_t step = test::sanitized ? 7 : 2;
  for (std::uint64_t k = 0; k < calls; k += step) {
    INFO("call " << k << " of " << calls);
    fake_cuda::reset({.devices = 2});
    fake_cuda::fail_call(k, cudaErrorUnknown);
    CHECK(run() == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a device scope always restores the thread's device", "[cuda]") {
  fake_cuda::reset({.devices = 3});
  const auto current = [] {
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    return device;
  };
  const ps::cuda_device one{1};
  const ps::cuda_device two{2};
  SECTION("on a thread that never selected a device") {
    const auto work = [&] {
      {
        const auto outer = one.enter_scope();
        CHECK(current() == 1);
        {
          const auto inner = two.enter_scope();
          CHECK(current() == 2);
        }
        CHECK(current() == 1);
      }
      CHECK(current() == 0);
    };
    CHECK(on_new_thread(work) == 0);
    CHECK(fake_cuda::contexts(0) == 0);
  }
  SECTION("on a thread that selected a device") {
    const auto work = [&] {
      CHECK(cudaSetDevice(2) == cudaSuccess);
      const auto scope = one.enter_scope();
      CHECK(current() == 1);
    };
    CHECK(on_new_thread(work) == 2);
    CHECK(fake_cuda::contexts(0) == 0);
  }
  SECTION("if the driver fails, enter_scope throws and the device is unchanged") {
    for (const char* name :
         {"cuCtxGetDevice", "cudaInitDevice", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"}) {
      INFO(name);
      fake_cuda::reset({.devices = 3});
      { const auto first = one.enter_scope(); }  // makes the library look up the driver's functions
      fake_cuda::fail_call_of(name, 0, cudaErrorUnknown);
      CHECK_THROWS_AS(one.enter_scope(), ps::cuda_error);
      CHECK(current() == 0);
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      { const auto again = one.enter_scope(); }
      CHECK(fake_cuda::contexts(0) == 0);
    }
  }
  CHECK(fake_cuda::expect_clean());
}
