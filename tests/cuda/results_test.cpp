// SPDX-License-Identifier: BSL-1.0
// Tests results on the CUDA device. The results must be right in any order of the device's work.
// The thread of the loop makes one call per batch. A failing call ends the loop.
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock_ext/results/results.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

using sums = ps::record<ps::field<"sum", std::uint64_t>>;
using sums_of = ps::results<sums, ps::cuda_device>;

struct way {
  std::size_t depth = 3;
  std::size_t workers = 1;
  std::uint64_t batches = 12;
};

/// Runs one epoch in which each step sums every image, and the consumers check the sums. Counts the
/// right and wrong batches in `found`. Propagates errors from the flow.
void run(const way& how, digits_flow::outcome& found) {
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{how.batches * 16},
                    ps::shuffled{.seed = 2},
                    device,
                    {.batch_size = 16, .workers = 1, .instrumentation = {.indices = true}}};
  ps::transfer feed{loader, stream};
  sums_of out{device,
              stream,
              16,
              [&](const auto& done) {
                const auto sum = ps::get<"sum">(done).flat();
                bool is_right = done.indices().size() == 16;
                for (std::size_t n = 0; is_right && n < 16; ++n) {
                  std::uint64_t expected = 0;
                  for (std::size_t i = 0; i < 784; ++i) {
                    expected += digits_flow::digits::pixel(done.indices()[n], i);
                  }
                  is_right = sum[n] == expected;
                }
                ++(is_right ? found.right : found.wrong);
              },
              {.depth = how.depth, .workers = how.workers}};
  for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
    const auto work = [images = ps::get<"image">(batch).flat(), sum = ps::get<"sum">(slot).flat()] {
      for (std::size_t n = 0; n < sum.size(); ++n) {
        sum[n] = 0;
        for (std::size_t i = 0; i < 784; ++i) sum[n] += images[n * 784 + i];
      }
    };
    fake_cuda::launch(stream.get(), work, {batch.data(), slot.data()});
  }
  out.finish();
}

}  // namespace

TEST_CASE("results are correct for any order of the device's work",
          "[cuda][results][promise:race-free-4][promise:race-free-14]") {
  for (std::uint64_t seed = 0; seed < seed_count() / 4; ++seed) {
    const auto policy = policy_of(seed);
    INFO("seed " << seed);
    fake_cuda::reset({.policy = policy, .seed = seed});
    digits_flow::outcome found;
    run({.depth = 1 + seed % 3, .workers = 1 + seed / 3 % 2, .batches = 8}, found);
    CHECK(found.right == 8);
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("returning results costs the loop one record and one query per batch",
          "[cuda][results][promise:bounded-14]") {
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  sums_of out{device, stream, 16, [](const auto&) {}};
  const auto batch = [&](std::uint64_t number) {
    out.acquire({.batch = number, .size = 16, .valid_size = 16}).send();
  };
  for (std::uint64_t i = 0; i < 20; ++i) batch(i);
  out.finish();
  const auto before = fake_cuda::thread_calls();
  const std::uint64_t all_before = fake_cuda::calls();
  for (std::uint64_t i = 20; i < 120; ++i) batch(i);
  out.finish();
  std::map<std::string, std::uint64_t> calls;
  for (const auto& [name, now] : fake_cuda::thread_calls()) {
    const auto earlier = before.find(name);
    const std::uint64_t made = now - (earlier == before.end() ? 0 : earlier->second);
    if (made != 0) calls[name] = made;
  }
  std::string text;
  for (const auto& [name, number] : calls) text += name + ": " + std::to_string(number) + "; ";
  INFO(text);
  CHECK(calls["cudaEventRecord"] == 100);
  CHECK(calls["cudaStreamIsCapturing"] == 100);
  CHECK(calls["cudaPeekAtLastError"] == 200);  // one before each of the two calls
  CHECK(calls.size() == 3);
  // A worker waits for the step, copies, records an event, and polls that event.
  const std::uint64_t all = fake_cuda::calls() - all_before;
  INFO("all threads: " << all);
  CHECK(all <= 800);
}

TEST_CASE("results that wait together share a query, an event record and a wait",
          "[cuda][results][promise:bounded-14]") {
  struct cost {
    std::size_t depth;
    std::uint64_t marks;
  };
  const cost of = GENERATE(cost{16, 1}, cost{8, 2});  // half of the slots share a mark
  CAPTURE(of.depth);
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::detail::waitable_counter is_consuming;
  ps::detail::waitable_counter is_open;
  std::vector<std::uint64_t> order;
  sums_of out{device,
              stream,
              16,
              [&](const auto& done) {
                order.push_back(done.number());
                if (done.number() != 0) return;
                is_consuming.advance();
                is_open.wait([](std::uint32_t now) { return now != 0; });
              },
              {.depth = of.depth}};
  const auto batch = [&](std::uint64_t number) {
    out.acquire({.batch = number, .size = 16, .valid_size = 16}).send();
  };
  batch(0);
  is_consuming.wait([](std::uint32_t now) { return now != 0; });
  for (std::uint64_t i = 1; i <= 8; ++i) batch(i);
  const auto calls_of = [](const char* name) {
    return
        [name, before = fake_cuda::calls_of(name)] { return fake_cuda::calls_of(name) - before; };
  };
  const auto copies = calls_of("cudaMemcpyAsync");
  const auto records = calls_of("cudaEventRecord");
  const auto waits = calls_of("cudaStreamWaitEvent");
  const auto queries = calls_of("cudaEventQuery");
  is_open.advance();
  out.finish();
  CHECK(copies() == 8);
  CHECK(records() == of.marks);
  CHECK(waits() == 0);               // all steps have ended
  CHECK(queries() == 1 + of.marks);  // the last step, and the marks
  CHECK(order == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("results are sent after a capture, and not within one",
          "[cuda][results][fault:devices-7]") {
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  std::uint64_t got = 0;
  sums_of out{
      device, stream, 16, [&](const auto& done) { got = ps::get<"sum">(done)(0); }, {.depth = 1}};
  auto slot = out.acquire({.size = 1, .valid_size = 1});
  CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK_THROWS_AS(slot.send(), ps::capture_in_progress);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);  // the capture has survived
  if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  fake_cuda::launch(stream.get(), [sum = ps::get<"sum">(slot).flat()] { sum[0] = 7; },
                    {slot.data()});
  CHECK(slot.send());
  out.finish();
  CHECK(got == 7);
}

TEST_CASE("a slot that is dropped during a capture is acquired again after the capture",
          "[cuda][results][fault:devices-7]") {
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  sums_of out{device, stream, 16, [](const auto&) {}, {.depth = 1}};
  const bool by_loop = GENERATE(false, true);
  CAPTURE(by_loop);
  const auto begin = [&] {
    CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  };
  if (by_loop) {
    ps::loader loader{
        digits_flow::digits{32}, ps::sequential{}, device, {.batch_size = 16, .workers = 1}};
    ps::transfer feed{loader, stream};
    const auto loop = [&] {
      for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
        batch = {};  // a feed throws if it ends during a capture
        begin();
      }
    };
    CHECK_THROWS_AS(loop(), ps::capture_in_progress);
  } else {
    auto slot = out.acquire({.size = 1, .valid_size = 1});
    begin();
  }
  CHECK_THROWS_AS((void)out.acquire({.batch = 7, .size = 1, .valid_size = 1}),
                  ps::leases_exhausted);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);  // the capture has survived
  if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(out.acquire({.batch = 7, .size = 1, .valid_size = 1}).send());
  out.finish();
}

TEST_CASE("the failure of each call that returns results is reported",
          "[cuda][results][fault:devices-3]") {
  const way how{.depth = 2, .batches = 4};
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  {
    digits_flow::outcome found;
    run(how, found);
    REQUIRE(found.right == 4);
  }
  const std::uint64_t calls = fake_cuda::calls() + 5;
  const std::uint64_t step = test::sanitized ? 5 : 1;
  std::uint64_t failures = 0;
  for (std::uint64_t k = 0; k < calls; k += step) {
    INFO("call " << k << " of " << calls);
    fake_cuda::reset({.policy = fake_cuda::policy::late});
    fake_cuda::fail_call(k, cudaErrorUnknown);
    digits_flow::outcome found;
    try {
      run(how, found);
      CHECK(found.right == 4);
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

TEST_CASE("a device that is lost ends the loop, and its memory",
          "[cuda][results][fault:devices-1]") {
  for (const std::uint64_t from : {150U, 200U, 260U}) {
    fake_cuda::reset({.policy = fake_cuda::policy::late});
    fake_cuda::fail_from(from, cudaErrorLaunchFailure);
    digits_flow::outcome found;
    CHECK_THROWS_AS(run({.batches = 40}, found), ps::cuda_error);
    CHECK(found.wrong == 0);
  }
}

TEST_CASE("results on another stream or device than the feed's are rejected",
          "[cuda][results][fault:consumers-10]") {
  const clean_fake clean{{.devices = 2}};
  const ps::cuda_device device{0};
  const ps::cuda_device other{1};
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  ps::loader loader{
      digits_flow::digits{32}, ps::sequential{}, device, {.batch_size = 16, .workers = 1}};
  ps::transfer feed{loader, stream};
  // The default stream has the same handle on all devices.
  ps::transfer on_default{loader, ps::cuda_stream_ref{cudaStreamLegacy}};
  const auto rejection = [](auto& from, const ps::cuda_device& of, ps::cuda_stream_ref computed) {
    const ps::detail::scoped_device current{of.ordinal()};
    sums_of out{of, computed, 16, [](const auto&) {}};
    try {
      for (auto& [batch, slot] : ps::zip_results(from.epoch(0), out)) static_cast<void>(slot);
    } catch (const ps::results_error& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK(rejection(feed, device, stream).empty());
  CHECK(rejection(feed, device, second).find("a feed with stream 0x") != std::string::npos);
  CHECK(rejection(on_default, device, cudaStreamLegacy).empty());
  CHECK(rejection(on_default, other, cudaStreamLegacy).find("device 0") != std::string::npos);
}
