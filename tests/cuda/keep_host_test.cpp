// SPDX-License-Identifier: BSL-1.0
// Tests, on the CUDA device, host slots that stay occupied until the device lease ends. Host and
// device must see the same batch in any order of the device's work. A host slot is refilled only
// after both its copy and its lease have ended.
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/grouping.hpp"

namespace ps = penstock;

namespace {

using digits_flow::digits;
using digits_flow::record;

/// Returns true if `host` is batch `number` of an in-order loader with batches of 16 digits.
bool is_batch(const ps::const_batch_view<record>& host, std::uint64_t number) {
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < host.size(); ++i) samples.push_back(16 * number + i);
  return digits_flow::seen_batch{ps::get<"image">(host), ps::get<"label">(host)}.holds(samples);
}

/// Returns a transform that copies the batch on the device and keeps its record type.
auto same_again() {
  return ps::on_stream<record>(
      [](ps::const_batch_view<record> in, ps::batch_view<record> out, ps::cuda_stream_ref stream) {
        const auto work = [in, out] {
          for (std::size_t i = 0; i < in.size(); ++i) {
            ps::get<"label">(out)(i) = ps::get<"label">(in)(i);
          }
        };
        fake_cuda::launch(stream.get(), work, {in.slab(), out.slab()});
      });
}

/// Counts the batches that were correct on the host.
struct host_side {
  std::uint64_t right = 0;
  std::uint64_t wrong = 0;

  template <class Batch>
  void look_at(const Batch& batch) {
    ++(is_batch(batch.host(), batch.number()) ? right : wrong);
  }
};

}  // namespace

TEST_CASE("host() and the device see the same batch, in loops that are left or throw anywhere",
          "[cuda][keep_host][promise:race-free-1]") {
  for (std::uint64_t seed = 0; seed < 2 * seed_count(); ++seed) {
    INFO("seed " << seed);
    const auto policy = policy_of(seed);
    const clean_fake clean{{.policy = policy, .seed = seed}};
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t end) { return random() % end; };
    digits_flow::outcome found;
    host_side host;
    const grouping<ps::cuda_device> device{0};
    const auto stream = device.make_stream();
    const auto second = device.make_stream();
    ps::loader loader{digits{320},
                      ps::sequential{},
                      device,
                      {.batch_size = 16, .workers = below(3), .prefetch = 1 + below(5)}};
    std::uint64_t looked = 0;
    const auto run = [&](auto feed) {
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const std::uint64_t end = below(24);  // an epoch has 20 batches
        const bool throws = below(2) == 0;
        const bool moves = below(2) == 0;
        try {
          for (auto& batch : feed.epoch(epoch)) {
            if (batch.number() == end && !throws) break;
            typename decltype(feed)::batch_type own;
            if (moves) own = std::move(batch);
            auto& leased = moves ? own : batch;
            look_at(std::as_const(leased), stream, found);
            ++looked;
            if (leased.number() % 3 == 1) {
              leased.also_used_on(second);
              look_at(std::as_const(leased), second, found);
              ++looked;
            }
            host.look_at(leased);
            if (leased.number() == end) throw end;
          }
        } catch (std::uint64_t) {
        }
        CHECK(loader.held() == 0);
      }
    };
    device.grouped_bytes = (1 + below(3)) * loader.layout().bytes();
    const ps::transfer_options options{
        .depth = 1 + below(4),
        .keep_host = true,
        .tuning = {.zero_copy =
                       below(4) == 0 ? ps::zero_copy_use::always : ps::zero_copy_use::never}};
    run(ps::transfer{loader, stream, options});
    run(ps::transfer{loader, stream, same_again(), options});
    device.synchronize(ps::cuda_stream_ref{stream});
    device.synchronize(ps::cuda_stream_ref{second});
    CHECK(found.right == looked);
    CHECK(found.wrong == 0);
    CHECK(host.right != 0);
    CHECK(host.wrong == 0);
  }
}

TEST_CASE("a host slot that was kept is refilled after its copy, also if its lease ends before",
          "[cuda][keep_host][promise:race-free-1]") {
  for (const bool transforms : {false, true}) {
    // The device runs work only while a thread waits, so each lease ends before its copy has
    // started.
    const clean_fake clean{{.policy = fake_cuda::policy::late}};
    digits_flow::outcome found;
    host_side host;
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    ps::loader loader{
        digits{320}, ps::sequential{}, device, {.batch_size = 16, .workers = 1, .prefetch = 2}};
    const ps::transfer_options options{
        .depth = 3, .keep_host = true, .tuning = {.zero_copy = ps::zero_copy_use::never}};
    const auto run = [&](auto feed) {
      for (const auto& batch : feed.epoch(0)) {
        look_at(batch, stream, found);
        host.look_at(batch);
      }
    };
    if (transforms) {
      run(ps::transfer{loader, stream, same_again(), options});
    } else {
      run(ps::transfer{loader, stream, options});
    }
    device.synchronize(ps::cuda_stream_ref{stream});
    CHECK(found.right == 20);
    CHECK(found.wrong == 0);
    CHECK(host.right == 20);
  }
}

TEST_CASE("a call that fails loses no host slot that is kept", "[cuda][keep_host]") {
  const std::string name = GENERATE("cudaEventRecord", "cudaStreamIsCapturing",
                                    "cudaStreamWaitEvent", "cudaMemcpyAsync");
  const bool transforms = GENERATE(false, true);
  for (std::uint64_t k = 0; k < 12; ++k) {
    INFO(name << " " << k);
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = k});
    digits_flow::outcome found;
    host_side host;
    {
      const grouping<ps::cuda_device> device{0};
      const auto stream = device.make_stream();
      const auto second = device.make_stream();
      ps::loader loader{
          digits{800}, ps::sequential{}, device, {.batch_size = 16, .workers = 1, .prefetch = 3}};
      device.grouped_bytes = 2 * loader.layout().bytes();
      const ps::transfer_options options{
          .depth = 3, .keep_host = true, .tuning = {.zero_copy = ps::zero_copy_use::never}};
      const auto run = [&](auto feed) {
        fake_cuda::fail_call_of(name, k, cudaErrorUnknown);
        const auto consume = [&] {
          for (auto& batch : feed.epoch(0)) {
            if (batch.number() % 2 == 1) batch.also_used_on(second);
            look_at(std::as_const(batch), stream, found);
            host.look_at(batch);
          }
        };
        CHECK_THROWS_AS(consume(), ps::cuda_error);
        CHECK(loader.held() == 0);
        consume();  // all slots and leases are available again
        CHECK(loader.held() == 0);
        device.synchronize(ps::cuda_stream_ref{stream});
      };
      if (transforms) {
        run(ps::transfer{loader, stream, same_again(), options});
      } else {
        run(ps::transfer{loader, stream, options});
      }
    }
    CHECK(found.right >= 50);
    CHECK(found.wrong == 0);
    CHECK(host.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}
