// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/interop/shared_batch.hpp>

#include <cstdint>
#include <thread>
#include <utility>

#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/transfer.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

/// A stream that does not report the thread that runs its work.
struct silent_stream {};

}  // namespace

TEST_CASE("a thread can query the stream whose work it runs", "[interop]") {
  ps::cpu_stream stream;
  ps::cpu_stream other;
  CHECK_FALSE(ps::detail::runs_work_of(ps::cpu_stream_ref{stream}));
  CHECK_FALSE(ps::detail::runs_work_of(silent_stream{}));
  bool of_its_own = false;
  bool of_the_other = true;
  stream.launch([&] {
    of_its_own = ps::detail::runs_work_of(ps::cpu_stream_ref{stream});
    of_the_other = ps::detail::runs_work_of(ps::cpu_stream_ref{other});
  });
  stream.synchronize();
  CHECK(of_its_own);
  CHECK_FALSE(of_the_other);
}

TEST_CASE("a batch is waited for on the host, but not by its stream's own work", "[interop]") {
  const ps::cpu_device device;
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  ps::loader loader{numbered{.count = 4}, ps::sequential{}, {.batch_size = 4, .workers = 0}};
  ps::transfer feed{loader, stream};
  const auto batch = ps::share(std::move(*feed.epoch(0).begin()));
  bool is_past = false;  // not atomic, because the wait orders the accesses
  stream.launch([&] {
    gate.wait([](std::uint32_t times) { return times != 0; });
    // The call must return, because the stream would otherwise wait for itself.
    ps::detail::wait_on_host(batch);
    is_past = true;
  });
  std::thread opener{[&] { gate.advance(); }};
  ps::detail::wait_on_host(batch);
  CHECK(is_past);
  opener.join();
}
