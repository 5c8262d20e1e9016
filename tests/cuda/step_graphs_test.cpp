// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/step_graphs.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/interop/shared_batch.hpp>
#include <penstock_ext/results/results.hpp>

#include "cuda/clean_fake.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

static_assert(!std::is_copy_constructible_v<ps::step_graphs>);

/// A type with only those members of a lease that step graphs use.
struct batch_like {
  const void* address;
  std::size_t place;
  std::size_t samples;
  [[nodiscard]] const void* data() const { return address; }
  [[nodiscard]] std::size_t slot() const { return place; }
  [[nodiscard]] std::size_t size() const { return samples; }
};

/// A step that counts its calls and the executions of its work.
struct counted_step {
  int calls = 0;
  int runs = 0;
  void operator()(ps::cuda_stream_ref stream) {
    ++calls;
    fake_cuda::launch(stream.get(), [this] { ++runs; });
  }
};

struct step_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Checks that a failed capture has left no state behind, and that the next capture succeeds.
void require_unhurt(ps::step_graphs& graphs, const ps::cuda_device& device,
                    const ps::cuda_stream& stream) {
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(graphs.size() == 0);
  CHECK(fake_cuda::live().graphs == 0);
  CHECK(fake_cuda::live().graph_execs == 0);
  counted_step step;
  graphs.launch(0, 1, stream, step);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(step.runs == 1);
}

/// The fake CUDA runtime, reset for a test, and the objects that most tests need.
struct a_stream_with_graphs : clean_fake {
  const ps::cuda_device device;
  const ps::cuda_stream stream = device.make_stream();
  ps::step_graphs graphs{device};
};

}  // namespace

TEST_CASE_METHOD(a_stream_with_graphs,
                 "a step is called once for each slot and size, and replayed from then on",
                 "[cuda]") {
  const auto other = device.make_stream();
  counted_step step;
  const char memory[3] = {};
  for (int round = 0; round < 4; ++round) {
    for (std::size_t slot = 0; slot < 3; ++slot) {
      graphs.launch(batch_like{&memory[slot], slot, 64}, stream, step);
    }
    graphs.launch(batch_like{&memory[0], 0, 32}, other, step);  // a short batch on another stream
  }
  CHECK(step.calls == 4);
  CHECK(graphs.size() == 4);
  device.synchronize(ps::cuda_stream_ref{stream});
  device.synchronize(ps::cuda_stream_ref{other});
  CHECK(step.runs == 16);
  CHECK(fake_cuda::live().graphs == 0);  // graphs are destroyed after instantiation
  CHECK(fake_cuda::live().graph_execs == 4);
  graphs.clear();
  CHECK(graphs.size() == 0);
  CHECK(fake_cuda::live().graph_execs == 0);
  graphs.launch(0, 64, stream, step);
  graphs.launch(0, 64, stream, step);
  CHECK(step.calls == 5);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(step.runs == 18);
}

TEST_CASE("a replay costs one launch and one capture check on the caller's thread", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::step_graphs graphs{device};
  counted_step step;
  graphs.launch(0, 1, stream, step);
  const auto before = fake_cuda::calls();
  for (int i = 0; i < 10; ++i) graphs.launch(0, 1, stream, step);
  CHECK(fake_cuda::calls() - before == 20);
  CHECK(fake_cuda::calls_of("cudaGraphLaunch") == 11);
  device.synchronize(ps::cuda_stream_ref{stream});
}

TEST_CASE("a batch at another address than the captured one is rejected", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::step_graphs graphs{device};
  counted_step step;
  const char memory[2] = {};
  graphs.launch(batch_like{&memory[0], 0, 64}, stream, step);
  CHECK_THROWS_AS(graphs.launch(batch_like{&memory[1], 0, 64}, stream, step), std::logic_error);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(step.runs == 1);
  graphs.clear();
  graphs.launch(batch_like{&memory[1], 0, 64}, stream, step);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(step.runs == 2);
}

TEST_CASE_METHOD(a_stream_with_graphs, "an exception of a step passes through and ends its capture",
                 "[cuda]") {
  int runs = 0;
  const auto bad = [&](ps::cuda_stream_ref on) {
    fake_cuda::launch(on.get(), [&runs] { ++runs; });
    void* data = nullptr;
    static_cast<void>(cudaMalloc(&data, 16));  // also invalidates the capture and leaves an error
    throw step_error("a step's own");
  };
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, bad), step_error);
  require_unhurt(graphs, device, stream);
  CHECK(runs == 0);
}

TEST_CASE_METHOD(a_stream_with_graphs, "a step that can't be captured is reported",
                 "[cuda][fault:devices-7]") {
  const auto forbidden = GENERATE(0, 1, 2);
  const bool is_relaxed = GENERATE(false, true);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 16) == cudaSuccess);
  const auto bad = [&](ps::cuda_stream_ref on) {
    fake_cuda::launch(on.get(), [] {});
    void* more = nullptr;
    static_cast<void>(forbidden == 0   ? cudaMalloc(&more, 16)
                      : forbidden == 1 ? cudaFree(memory)
                                       : cudaStreamSynchronize(on.get()));
  };
  // Runs on a separate thread, because a thread cannot leave relaxed mode.
  std::thread{[&] {
    if (is_relaxed) device.make_current();
    CHECK_THROWS_MATCHES(graphs.launch(0, 1, stream, bad), ps::capture_in_progress,
                         Catch::Matchers::Predicate<ps::capture_in_progress>(
                             [](const auto& error) {
                               const std::string text = error.what();
                               return text.find("step") != std::string::npos &&
                                      text.find("allocated") != std::string::npos;
                             },
                             "says what a step must not do"));
    require_unhurt(graphs, device, stream);
    auto mode = cudaStreamCaptureModeThreadLocal;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    CHECK(mode == (is_relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal));
  }}.join();
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE_METHOD(a_stream_with_graphs, "a step that waits through the library is reported",
                 "[cuda]") {
  const auto bad = [&](ps::cuda_stream_ref on) { device.synchronize(on); };
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, bad), ps::capture_in_progress);
  require_unhurt(graphs, device, stream);
}

TEST_CASE_METHOD(a_stream_with_graphs,
                 "another thread may allocate and wait while a step is captured", "[cuda]") {
  const auto other = device.make_stream();
  counted_step step;
  graphs.launch(0, 1, stream, [&](ps::cuda_stream_ref on) {
    step(on);
    std::thread{[&other] {  // calls on another thread do not break the capture
      void* data = nullptr;
      CHECK(cudaMalloc(&data, 16) == cudaSuccess);
      CHECK(cudaStreamSynchronize(other.get()) == cudaSuccess);
      CHECK(cudaFree(data) == cudaSuccess);
    }}
        .join();
  });
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(step.runs == 1);
}

TEST_CASE_METHOD(a_stream_with_graphs,
                 "a step that works on another stream than its argument is rejected", "[cuda]") {
  int runs = 0;  // must outlive the stream, which runs work until its destruction
  const auto another = device.make_stream();
  const auto bad = [&](ps::cuda_stream_ref) {
    fake_cuda::launch(another.get(), [&runs] { ++runs; });
  };
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, bad), std::logic_error);
  require_unhurt(graphs, device, stream);
}

TEST_CASE_METHOD(a_stream_with_graphs,
                 "work that a step puts on the consumer's stream is captured with it", "[cuda]") {
  counted_step given;
  int by_handle = 0;  // counts the work that a library queues through a handle on the stream
  const auto step = [&](ps::cuda_stream_ref on) {
    given(on);
    fake_cuda::launch(stream.get(), [&by_handle] { ++by_handle; });
  };
  for (int i = 0; i < 3; ++i) graphs.launch(0, 1, stream, step);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(given.calls == 1);
  CHECK(given.runs == 3);
  CHECK(by_handle == 3);
}

TEST_CASE("steps on the default stream are captured on another stream, and nothing escapes",
          "[cuda]") {
  const clean_fake until_the_end;
  const ps::cuda_device device;
  ps::step_graphs graphs{device};
  counted_step step;
  for (int i = 0; i < 3; ++i) graphs.launch(0, 1, cudaStreamLegacy, step);
  device.synchronize(ps::cuda_stream_ref{cudaStreamLegacy});
  CHECK(step.calls == 1);
  CHECK(step.runs == 3);

  int escaped = 0;
  const auto bad = [&](ps::cuda_stream_ref on) {
    step(on);
    fake_cuda::launch(cudaStreamLegacy, [&escaped] { ++escaped; });
  };
  CHECK_THROWS_AS(graphs.launch(1, 1, cudaStreamLegacy, bad), ps::capture_in_progress);
  device.synchronize(ps::cuda_stream_ref{cudaStreamLegacy});
  CHECK(escaped == 0);
  CHECK(graphs.size() == 1);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE_METHOD(a_stream_with_graphs,
                 "a step may be launched while the program captures its stream", "[cuda]") {
  counted_step step;
  const bool was_captured_before = GENERATE(false, true);
  if (was_captured_before) graphs.launch(0, 1, stream, step);
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  graphs.launch(0, 1, stream, step);
  cudaGraph_t whole = nullptr;
  REQUIRE(cudaStreamEndCapture(stream.get(), &whole) == cudaSuccess);
  const auto owner = ps::detail::cuda_graph::from_native_handle(whole);
  const ps::detail::cuda_graph_exec ready{owner};
  ready.launch(stream);
  ready.launch(stream);
  device.synchronize(ps::cuda_stream_ref{stream});
  const int before = was_captured_before ? 1 : 0;
  CHECK(step.calls == before + 1);
  CHECK(step.runs == before + 2);
  // Only the graph of the earlier capture exists.
  CHECK(graphs.size() == (was_captured_before ? 1 : 0));
  graphs.launch(0, 1, stream, step);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(step.calls == 2);
  CHECK(step.runs == before + 3);
  CHECK(graphs.size() == 1);
}

TEST_CASE_METHOD(a_stream_with_graphs, "a call that fails unseen within a step is reported",
                 "[cuda]") {
  const auto bad = [&](ps::cuda_stream_ref on) {
    fake_cuda::launch(on.get(), [] {});
    static_cast<void>(cudaSetDevice(99));
  };
  CHECK_THROWS_MATCHES(graphs.launch(0, 1, stream, bad), ps::cuda_error,
                       Catch::Matchers::Predicate<ps::cuda_error>(
                           [](const auto& error) { return error.code() == cudaErrorInvalidDevice; },
                           "has the call's code"));
  require_unhurt(graphs, device, stream);
}

TEST_CASE("a last error of the program is reported before a capture starts", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::step_graphs graphs{device};
  counted_step step;
  static_cast<void>(cudaSetDevice(99));
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, step), ps::pending_cuda_error);
  CHECK(step.calls == 0);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);  // the program can still read its error
}

TEST_CASE("if any call of a first launch fails, nothing leaks", "[cuda][fault:devices-7]") {
  std::uint64_t calls = 1;
  std::uint64_t reported = 0;
  for (std::uint64_t k = 0; k < calls; ++k) {
    INFO("call " << k << " of " << calls << " fails");
    fake_cuda::reset();
    {
      const ps::cuda_device device;
      const auto stream = device.make_stream();
      counted_step step;
      {
        ps::step_graphs graphs{device};
        if (k == 0) {
          const std::uint64_t before = fake_cuda::calls();
          graphs.launch(0, 1, stream, step);
          calls = fake_cuda::calls() - before;
          graphs.clear();
        }
        fake_cuda::fail_call(k, cudaErrorUnknown);
        try {
          graphs.launch(0, 1, stream, step);
          CHECK(graphs.size() == 1);  // the failed call only cleans up
        } catch (const ps::cuda_error& error) {
          CHECK(error.code() == cudaErrorUnknown);
          CHECK(graphs.size() == 0);
          ++reported;
        }
        CHECK(cudaGetLastError() == cudaSuccess);
      }
      // A stream whose capture could not be ended is unusable, so the test continues with a new
      // object and a new stream.
      ps::step_graphs graphs{device};
      graphs.launch(0, 2, stream, step);
      device.synchronize(ps::cuda_stream_ref{stream});
      CHECK(step.runs >= 1);
    }
    CHECK(fake_cuda::expect_clean());
  }
  CHECK(reported >= 5);
}

TEST_CASE("an epoch of graph launches sees every batch, under each policy", "[cuda]") {
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const clean_fake until_the_end{{.policy = policy, .seed = 7}};
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::loader loader{
      numbered{95}, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 3}};
  ps::transfer feed{loader, stream, {.depth = 3}};
  ps::step_graphs graphs{device};
  std::vector<std::uint64_t> seen;
  int captures = 0;
  for (auto& batch : feed.epochs(0, 3)) {
    graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
      ++captures;
      fake_cuda::launch(on.get(), [&seen, view = ps::get<"label">(std::as_const(batch))] {
        for (const std::uint64_t label : view.flat()) seen.push_back(label);
      });
    });
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  REQUIRE(seen.size() == 3 * 95);
  bool right = true;
  for (std::size_t i = 0; i < seen.size(); ++i) right = right && seen[i] == i % 95;
  CHECK(right);
  CHECK(captures == static_cast<int>(graphs.size()));
  CHECK(graphs.size() <= 6);  // three slots times two batch sizes
}

TEST_CASE("graphs replay batches that share calls, and capture none of these", "[cuda]") {
  struct always_ready : ps::loader<numbered, ps::sequential, ps::cuda_device> {
    using loader::loader;
    [[nodiscard]] auto try_next() { return next(); }
  };
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const clean_fake until_the_end{{.policy = policy, .seed = 11}};
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  constexpr std::size_t batches = 60;
  always_ready loader{numbered{10 * batches},
                      ps::sequential{},
                      device,
                      {.batch_size = 10, .workers = 1, .prefetch = 8}};
  ps::transfer feed{loader, stream, {.depth = 5}};
  ps::step_graphs graphs{device};
  std::vector<std::uint64_t> seen;
  for (auto& batch : feed.epoch(0)) {
    graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
      fake_cuda::launch(on.get(), [&seen, view = ps::get<"label">(std::as_const(batch))] {
        for (const std::uint64_t label : view.flat()) seen.push_back(label);
      });
    });
  }
  // For each group, the stream waits once for the copies and once for the steps. A batch outside a
  // group would need both waits.
  CHECK(fake_cuda::thread_calls()["cudaStreamWaitEvent"] < batches);
  device.synchronize(ps::cuda_stream_ref{stream});
  REQUIRE(seen.size() == 10 * batches);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) wrong += seen[i] == i ? 0U : 1U;
  CHECK(wrong == 0);
  CHECK(graphs.size() == 5);  // one graph per slot
}

TEST_CASE("a program's own capture survives a live loader", "[cuda]") {
  const clean_fake until_the_end{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto captured = device.make_stream();
  ps::loader loader{
      numbered{400}, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 2}};
  ps::transfer feed{loader, stream, {.depth = 1}};
  const std::size_t slots = loader.footprint().slot_count;
  REQUIRE(slots + 4 < 40);
  auto range = feed.epoch(0);
  auto it = range.begin();
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  int runs = 0;
  fake_cuda::launch(captured.get(), [&runs] { ++runs; });
  // Each step queues a copy. After the first `slots` batches, each batch needs a returned slot, and
  // a worker waits for the second and all later slots during the capture.
  while (it->number() < slots + 3) ++it;
  CHECK(fake_cuda::calls_of("cudaEventQuery") >= 3);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  const auto owned = ps::detail::cuda_graph::from_native_handle(graph);
  ps::detail::cuda_graph_exec ready{owned};
  ready.launch(captured);
  device.synchronize(ps::cuda_stream_ref{captured});
  CHECK(runs == 1);
}

namespace {

using twice = ps::record<ps::field<"twice", std::uint64_t>>;

/// Returns a step that writes the doubled labels of `batch` to `to` and counts its calls.
template <class Batch, class To>
auto doubling(const Batch& batch, const To& to, int& calls) {
  return [&](ps::cuda_stream_ref on) {
    ++calls;
    fake_cuda::launch(on.get(), [from = ps::get<"label">(batch), to = to] {
      for (std::size_t i = 0; i < from.size(); ++i) to.flat()[i] = 2 * from.flat()[i];
    });
  };
}

}  // namespace

TEST_CASE("a replayed step writes to the result slot of its batch", "[cuda][results]") {
  const std::size_t depth = GENERATE(2U, 3U, 4U);
  const bool is_shared = GENERATE(false, true);
  const clean_fake clean{{.policy = fake_cuda::policy::random, .seed = depth}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> right{0};
  int calls = 0;
  {
    ps::loader loader{numbered{400}, ps::sequential{}, device, {.batch_size = 4, .workers = 1}};
    ps::transfer feed{loader, stream, {.depth = 3}};
    const auto look = [&](const auto& done) {
      const auto values = ps::get<"twice">(done).flat();
      for (std::size_t i = 0; i < values.size(); ++i) {
        ++(values[i] == 2 * (done.number() * 4 + i) ? right : wrong);
      }
    };
    ps::results<twice, ps::cuda_device> out{device, stream, 4, look, {.depth = depth}};
    ps::results<twice, ps::cuda_device> again{device, stream, 4, look, {.depth = 2}};
    ps::step_graphs graphs{device};
    for (auto& batch : feed.epoch(0)) {
      const auto run = [&](auto& of) {
        auto first = out.acquire(of);
        auto second = again.acquire(of);
        graphs.launch(of, stream, [&](ps::cuda_stream_ref on) {
          doubling(of, ps::get<"twice">(first), calls)(on);
          doubling(of, ps::get<"twice">(second), calls)(on);
        });
        first.send();
        second.send();
      };
      if (is_shared) {
        auto shared = ps::share(std::move(batch));
        run(shared);
      } else {
        run(batch);
      }
    }
    out.finish();
    again.finish();
    device.synchronize(ps::cuda_stream_ref{stream});
    CHECK(graphs.size() <= 3 * depth * 2);
    CHECK(calls == static_cast<int>(2 * graphs.size()));
  }
  CHECK(right == 800);
  CHECK(wrong == 0);
}

TEST_CASE("a step that uses a batch of a second feed too is captured for each pair of slots",
          "[cuda]") {
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  std::vector<std::uint64_t> sums;
  {
    const auto made = [&] {
      return ps::loader{numbered{40}, ps::sequential{}, device, {.batch_size = 4, .workers = 1}};
    };
    ps::transfer first{made(), stream, {.depth = 2}};
    ps::transfer second{made(), stream, {.depth = 3}};
    ps::step_graphs graphs{device};
    auto range = second.epoch(0);
    auto other = range.begin();
    for (auto& batch : first.epoch(0)) {
      graphs.launch(
          batch, stream,
          [&](ps::cuda_stream_ref on) {
            fake_cuda::launch(on.get(),
                              [&sums, x = ps::get<"label">(batch), y = ps::get<"label">(*other)] {
                                sums.push_back(x.flat()[0] + y.flat()[0]);
                              });
          },
          *other);
      ++other;
    }
    device.synchronize(ps::cuda_stream_ref{stream});
    CHECK(graphs.size() == 6);
  }
  REQUIRE(sums.size() == 10);
  for (std::size_t i = 0; i < 10; ++i) CHECK(sums[i] == 8 * i);
}

TEST_CASE(
    "a padded batch has a separate graph, because a step may use the number of valid "
    "samples, unless the options exclude that",
    "[cuda]") {
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const bool is_separate = GENERATE(true, false);
  std::size_t valid = 0;
  {
    ps::loader loader{numbered{10},
                      ps::sequential{},
                      device,
                      {.batch_size = 4, .workers = 1, .last_batch = ps::last_batch::pad}};
    ps::transfer feed{loader, stream, {.depth = 1}};
    ps::step_graphs graphs{device, {.per_valid_count = is_separate}};
    for (auto& batch : feed.epoch(0)) {
      graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
        fake_cuda::launch(on.get(), [&valid, count = batch.valid()] { valid += count; });
      });
    }
    device.synchronize(ps::cuda_stream_ref{stream});
    CHECK(graphs.size() == (is_separate ? 2 : 1));
  }
  CHECK(valid == (is_separate ? 10 : 12));
}

TEST_CASE("a step is rejected on a stream that the batch does not name and on another device",
          "[cuda][fault:devices-8]") {
  const clean_fake clean{{.devices = 2}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  {
    ps::loader loader{numbered{12}, ps::sequential{}, device, {.batch_size = 4, .workers = 1}};
    ps::transfer feed{loader, stream};
    ps::step_graphs graphs{device};
    ps::step_graphs elsewhere{ps::cuda_device{1}};
    counted_step step;
    for (auto& batch : feed.epoch(0)) {
      const std::string text =
          test::error_of<std::logic_error>([&] { graphs.launch(batch, second, step); }).what();
      CHECK(test::has(text, "the batch was handed to stream 0x"));
      CHECK(test::has(text, "launched on stream 0x"));
      CHECK(test::has(
          test::error_of<std::logic_error>([&] { elsewhere.launch(batch, stream, step); }).what(),
          "the batch is on device 0, but the graphs are for device 1"));
      batch.also_used_on(second);
      graphs.launch(batch, second, step);
    }
    device.synchronize(ps::cuda_stream_ref{second});
    CHECK(step.runs == 3);
  }
}
