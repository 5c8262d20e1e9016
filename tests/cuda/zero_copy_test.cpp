// SPDX-License-Identifier: BSL-1.0
// Tests batches that stay in their host slots on the CUDA device. Zero copy is used only if the
// device's attributes permit it. Batches must be correct in any order of the device's work, with
// fewer calls than for a copy.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using use = ps::zero_copy_use;
using digits_flow::digits;

/// Returns the behavior of a transfer on this device: 'c' copies, 'z' does not copy, and 'x'
/// rejects the option.
char way_of(const fake_cuda::config& how, use requested, bool is_pinned = true) {
  const clean_fake clean{how};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits{},
                    ps::sequential{},
                    device,
                    {.batch_size = 16, .workers = 1, .prefetch = 2, .pinned = is_pinned}};
  try {
    const ps::transfer feed{loader, stream, {.tuning = {.zero_copy = requested}}};
    CHECK((feed.device_bytes() == 0) == feed.zero_copy());
    return feed.zero_copy() ? 'z' : 'c';
  } catch (const ps::option_error& rejected) {
    CHECK(std::string{rejected.what()}.find("zero_copy") != std::string::npos);
    return 'x';
  }
}

/// Returns the calls per batch on the consumer thread, for an epoch with one kernel per batch.
std::map<std::string, double> calls_a_batch(use requested, std::size_t depth) {
  const clean_fake clean{{.policy = fake_cuda::policy::early}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{
      digits{1600}, ps::sequential{}, device, {.batch_size = 16, .workers = 2, .prefetch = 6}};
  ps::transfer feed{loader, stream, {.depth = depth, .tuning = {.zero_copy = requested}}};
  std::map<std::string, std::uint64_t> before;
  std::map<std::string, std::uint64_t> after;
  for (const auto& batch : feed.epoch(0)) {
    if (batch.number() == 19) before = fake_cuda::thread_calls();
    if (batch.number() == 89) after = fake_cuda::thread_calls();
  }
  std::map<std::string, double> calls;
  for (const auto& [name, now] : after) {
    const auto more = static_cast<double>(now - before[name]) / 70.0;
    // Ignores the checks for pending errors. One such check precedes every other call.
    if (name != "cudaPeekAtLastError") calls["all"] += more;
    if (more != 0) calls[name] = more;
  }
  for (const auto& [name, number] : calls) UNSCOPED_INFO(name << ": " << number);
  return calls;
}

}  // namespace

TEST_CASE("the device's attributes decide whether batches are copied, unless the options do",
          "[cuda][zero_copy][promise:honest-7]") {
  const fake_cuda::config on_a_bus{};
  const fake_cuda::config grace{.host_page_tables = true};
  const fake_cuda::config spark{.host_page_tables = true, .integrated = true};
  const fake_cuda::config jetson{.integrated = true};
  const fake_cuda::config other_addresses{.registered_at_host_address = false};
  const fake_cuda::config unmapped{.maps_host_memory = false};

  CHECK(way_of(on_a_bus, use::by_device) == 'c');
  CHECK(way_of(grace, use::by_device) == 'c');
  CHECK(way_of(spark, use::by_device) == 'z');
  CHECK(way_of(jetson, use::by_device) == 'c');
  for (const auto& how : {on_a_bus, grace, spark, jetson}) {
    CHECK(way_of(how, use::always) == 'z');
    CHECK(way_of(how, use::never) == 'c');
  }
  // On these devices, kernels would need other addresses than the host, or cannot access the memory
  // at all.
  for (const auto& how : {other_addresses, unmapped}) {
    CHECK(way_of(how, use::by_device) == 'c');
    CHECK(way_of(how, use::always) == 'x');
  }
  // A device that uses the host's page tables can access any memory.
  CHECK(way_of(on_a_bus, use::always, false) == 'x');
  CHECK(way_of(spark, use::by_device, false) == 'z');
  CHECK(way_of({.registered_at_host_address = false, .host_page_tables = true}, use::always) ==
        'z');
}

TEST_CASE("without a copy an epoch arrives unchanged, in any order of the device's work",
          "[cuda][zero_copy][promise:race-free-4][promise:race-free-1]") {
  for (std::uint64_t seed = 0; seed < 3 * seed_count(); ++seed) {
    INFO("seed " << seed);
    const auto policy = policy_of(seed);
    fake_cuda::reset({.policy = policy, .seed = seed});
    digits_flow::outcome found;
    digits_flow::run(ps::cuda_device{0},
                     {.samples = 100,
                      .workers = seed % 3,
                      .prefetch = seed / 3 % 4,
                      .depth = 1 + seed % 4,
                      .epochs = 2,
                      .zero_copy = use::always},
                     found);
    CHECK(found.right == 14);
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::calls_of("cudaMemcpyAsync") == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a host slot is refilled after the work of every stream that its lease names",
          "[cuda][zero_copy][promise:race-free-1]") {
  for (std::uint64_t seed = 0; seed < seed_count(); ++seed) {
    INFO("seed " << seed);
    const clean_fake clean{{.policy = fake_cuda::policy::random, .seed = seed}};
    digits_flow::outcome found;
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    const auto second = device.make_stream();
    std::optional loader{ps::loader{
        digits{320}, ps::sequential{}, device, {.batch_size = 16, .workers = 2, .prefetch = 3}}};
    std::optional feed{
        ps::transfer{*loader, stream, {.depth = 4, .tuning = {.zero_copy = use::always}}}};
    std::vector<decltype(feed)::value_type::batch_type> kept;
    for (auto& batch : feed->epoch(0)) {
      look_at(batch, stream, found);
      const std::uint64_t number = batch.number();
      if (number % 2 == 1) {
        batch.also_used_on(second);
        look_at(batch, second, found);
      }
      if (number % 3 != 0) continue;
      kept.push_back(std::move(batch));
      if (kept.size() < 3) continue;
      look_at(kept.front(), stream, found);
      kept.erase(kept.begin());
    }
    feed.reset();
    loader.reset();
    for (const auto& batch : kept) look_at(batch, stream, found);
    kept.clear();  // the last lease frees the pinned memory
    device.synchronize(ps::cuda_stream_ref{stream});
    device.synchronize(ps::cuda_stream_ref{second});
    CHECK(found.right == 20 + 10 + 5 + 2);
    CHECK(found.wrong == 0);
  }
}

TEST_CASE("a host slot whose release was rejected is refilled after the work on it",
          "[cuda][zero_copy][promise:race-free-1]") {
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  digits_flow::outcome found;
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  const bool is_on_two = GENERATE(false, true);
  ps::loader loader{
      digits{320}, ps::sequential{}, device, {.batch_size = 16, .workers = 1, .prefetch = 2}};
  {
    ps::transfer feed{loader, stream, {.depth = 2, .tuning = {.zero_copy = use::always}}};
    for (auto& batch : feed.epoch(0)) {
      auto ended = std::move(batch);
      look_at(std::as_const(ended), stream, found);
      if (is_on_two) {
        ended.also_used_on(second);
        look_at(std::as_const(ended), second, found);
      }
      // During the capture, the end of the lease cannot be recorded, and no thread can wait for it.
      CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
      break;
    }
    cudaGraph_t graph = nullptr;
    static_cast<void>(cudaStreamEndCapture(stream.get(), &graph));
    if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    static_cast<void>(cudaGetLastError());
    CHECK(found.right == (is_on_two ? 1 : 0));
  }
  std::uint64_t refilled = 0;
  for (const auto& batch : loader.epoch(1)) refilled += batch.size();
  CHECK(refilled == 320);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(found.right == (is_on_two ? 2 : 1));
  CHECK(found.wrong == 0);
}

TEST_CASE(
    "a host slot whose release cannot be recorded is never refilled, and a capture "
    "continues",
    "[cuda][zero_copy][promise:race-free-1][fault:devices-7]") {
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  digits_flow::outcome found;
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{
      digits{320}, ps::sequential{}, device, {.batch_size = 16, .workers = 1, .prefetch = 2}};
  for (auto& batch : loader.epoch(0)) {
    auto ended = std::move(batch);
    look_at(std::as_const(ended), stream, found);
    CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK_THROWS_AS(ended.release_after(stream), ps::capture_in_progress);
    break;
  }
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);  // the capture has survived
  if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(found.right == 0);
  std::uint64_t refilled = 0;
  for (const auto& batch : loader.epoch(1)) refilled += batch.size();
  CHECK(refilled == 320);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(found.right == 1);
  CHECK(found.wrong == 0);
}

TEST_CASE("a loader reports the loss of all its host slots", "[cuda][zero_copy][fault:devices-7]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1});
  const auto on_slots_exhausted = GENERATE(ps::exhausted_action::fail, ps::exhausted_action::wait);
  CAPTURE(workers, on_slots_exhausted);
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits{320},
                    ps::sequential{},
                    device,
                    {.batch_size = 16,
                     .workers = workers,
                     .prefetch = 2,
                     .on_slots_exhausted = on_slots_exhausted}};
  std::size_t lost = 0;
  const auto loop = [&] {
    for (auto& batch : loader.epoch(0)) {
      CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
      CHECK_THROWS_AS(batch.release_after(stream), ps::capture_in_progress);
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
      if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
      ++lost;
    }
  };
  std::string said;
  try {
    loop();
  } catch (const ps::leases_exhausted& reported) {
    said = reported.what();
  }
  CHECK(lost == loader.footprint().slot_count);
  CHECK(said.find(std::to_string(lost) + " of " + std::to_string(lost) + " host slots are lost") !=
        std::string::npos);
}

TEST_CASE("without a copy a batch costs its stream one record and one query",
          "[cuda][zero_copy][promise:bounded-2]") {
  auto copied = calls_a_batch(use::never, 2);  // too few slots to form a group
  auto grouped = calls_a_batch(use::never, 3);
  auto held = calls_a_batch(use::always, 3);
  CHECK(held["cudaEventRecord"] == 1);
  CHECK(held["cudaStreamIsCapturing"] == 1);
  CHECK(held["all"] == 2);
  // Instead of waiting for a copy, the feed queries it, and changes the capture mode twice.
  CHECK(copied["all"] == Approx(6 + 2 * copied["cudaEventQuery"]).margin(0.1));
  CHECK(grouped["all"] >= 3.9);
}

TEST_CASE("a loop without copies that is left or throws anywhere loses nothing and breaks nothing",
          "[cuda][zero_copy][promise:race-free-1]") {
  for (std::uint64_t seed = 0; seed < seed_count(); ++seed) {
    INFO("seed " << seed);
    const clean_fake clean{{.policy = fake_cuda::policy::random, .seed = seed}};
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t end) { return random() % end; };
    digits_flow::outcome found;
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    ps::loader loader{digits{320},
                      ps::sequential{},
                      device,
                      {.batch_size = 16, .workers = below(3), .prefetch = 1 + below(4)}};
    std::uint64_t looked = 0;
    for (std::uint64_t flow = 0; flow < 3; ++flow) {
      ps::transfer feed{
          loader, stream, {.depth = 1 + below(4), .tuning = {.zero_copy = use::always}}};
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const std::uint64_t end = below(24);  // an epoch has 20 batches
        const bool throws = below(2) == 0;
        const bool moves = below(2) == 0;
        try {
          for (auto& batch : feed.epoch(epoch)) {
            if (batch.number() == end && !throws) break;
            std::optional<std::remove_cvref_t<decltype(batch)>> own;
            if (moves) own.emplace(std::move(batch));
            look_at(own ? *own : batch, stream, found);
            ++looked;
            if ((own ? *own : batch).number() == end) throw end;
          }
        } catch (std::uint64_t) {
        }
      }
    }
    device.synchronize(ps::cuda_stream_ref{stream});
    CHECK(found.right == looked);
    CHECK(found.wrong == 0);
  }
}

TEST_CASE("a slot's number determines its address, even for a host slot", "[cuda][zero_copy]") {
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{
      digits{960}, ps::sequential{}, device, {.batch_size = 16, .workers = 2, .prefetch = 4}};
  ps::transfer feed{loader, stream, {.depth = 2, .tuning = {.zero_copy = use::always}}};
  std::map<std::size_t, const std::byte*> address;
  std::set<const std::byte*> all;
  for (const auto& batch : feed.epoch(0)) {
    CHECK(batch.slot() < loader.footprint().slot_count);
    const auto* const data = batch.data();
    CHECK(address.emplace(batch.slot(), data).first->second == data);
    all.insert(data);
  }
  CHECK(all.size() == address.size());
  CHECK(all.size() > feed.depth());  // more slots than those in regular rotation
}

TEST_CASE("a failed call at the end of a lease is reported, and no batch is wrong or lost",
          "[cuda][zero_copy][fault:devices-3]") {
  const std::string name =
      GENERATE("cudaEventRecord", "cudaStreamIsCapturing", "cudaStreamWaitEvent");
  for (std::uint64_t k = 0; k < 12; ++k) {
    INFO(name << " " << k);
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = k});
    digits_flow::outcome found;
    {
      const ps::cuda_device device{0};
      const auto stream = device.make_stream();
      const auto second = device.make_stream();
      ps::loader loader{
          digits{800}, ps::sequential{}, device, {.batch_size = 16, .workers = 1, .prefetch = 2}};
      ps::transfer feed{loader, stream, {.depth = 3, .tuning = {.zero_copy = use::always}}};
      fake_cuda::fail_call_of(name, k, cudaErrorUnknown);
      const auto consume = [&] {
        for (auto& batch : feed.epoch(0)) {
          if (batch.number() % 2 == 1) batch.also_used_on(second);
          look_at(batch, stream, found);
          if (batch.number() % 2 == 1) look_at(batch, second, found);
        }
      };
      CHECK_THROWS_AS(consume(), ps::cuda_error);
      const std::uint64_t before = found.right;
      consume();  // all slots and leases are available again
      device.synchronize(ps::cuda_stream_ref{stream});
      device.synchronize(ps::cuda_stream_ref{second});
      CHECK(found.right >= before + 75);
    }
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("views that work on the device holds outlive the feed, copied or not",
          "[cuda][zero_copy]") {
  const auto requested = GENERATE(use::never, use::always);
  const clean_fake clean{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  std::size_t right = 0;
  {
    ps::loader loader{digits{64}, ps::sequential{}, device, {.batch_size = 16, .workers = 1}};
    {
      ps::transfer feed{loader, stream, {.tuning = {.zero_copy = requested}}};
      for (auto& batch : feed.epoch(0)) {
        const auto work = [&right, all = batch.view(), first = 16 * batch.number()] {
          const auto images = ps::get<"image">(all).flat();
          for (std::size_t n = 0; n < 16; ++n) {
            right += images[n * 784 + 5] == digits::pixel(first + n, 5);
          }
        };
        fake_cuda::launch(stream.get(), work, {batch.data()});
      }
    }
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(right == 64);
}
