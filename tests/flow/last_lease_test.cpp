// SPDX-License-Identifier: BSL-1.0
// Tests that the last lease, or another last owner of the slots, may be destroyed in work on a CPU
// stream. A naive destructor of the slots would wait for the thread that runs it.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/ledger_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using loader_type = ps::loader<numbered, ps::sequential, ledger_device>;
using feed_type = ps::transfer<loader_type&>;

loader_type make_loader(const ledger_device& device) {
  return {numbered{100}, ps::sequential{}, device, {.batch_size = 10, .workers = 1}};
}

void block_on(const ps::detail::waitable_counter& gate) {
  gate.wait([](std::uint32_t open) { return open != 0; });
}

}  // namespace

TEST_CASE("the last device lease may end in work on its own stream", "[flow][fault:consumers-8]") {
  const ledger_device device;
  {
    ps::detail::waitable_counter gate;
    auto stream = device.make_stream();
    std::uint64_t first = 99;
    {
      auto loader = make_loader(device);
      std::optional<feed_type> feed;
      feed.emplace(loader, stream, ps::transfer_options{.depth = 3});
      for (auto& batch : feed->epoch(0)) {
        stream.launch([&, lease = std::make_unique<feed_type::batch_type>(std::move(batch))] {
          block_on(gate);
          first = labels_of(*lease).front();
        });
        break;
      }
      feed.reset();
    }
    gate.store(1);
    stream.synchronize();
    CHECK(first == 0);
  }
  CHECK(device.device_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("the last device lease may end while its stream's destructor waits",
          "[flow][fault:consumers-8]") {
  const ledger_device device;
  {
    auto loader = make_loader(device);
    auto stream = device.make_stream();
    std::optional<feed_type> feed;
    feed.emplace(loader, stream, ps::transfer_options{});
    auto lease = std::move(*feed->epoch(0).begin());
    stream.launch([own = std::make_unique<feed_type::batch_type>(std::move(lease)),
                   here = this_thread_number()] { wait_until_asleep(here); });
    feed.reset();
  }
  CHECK(device.device_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("the last device lease may end in work on a second stream, or on an unrelated one",
          "[flow][fault:consumers-8]") {
  const ledger_device device;
  const bool is_second = GENERATE(false, true);
  {
    auto loader = make_loader(device);
    ps::detail::waitable_counter gate;
    auto stream = device.make_stream();
    auto other = device.make_stream();
    std::optional<feed_type> feed;
    feed.emplace(loader, stream, ps::transfer_options{});
    auto lease = std::move(*feed->epoch(0).begin());
    if (is_second) lease.also_used_on(other);
    auto done = device.make_event();
    other.launch([own = std::make_unique<feed_type::batch_type>(std::move(lease)), &gate] {
      block_on(gate);
    });
    device.record(done, other);
    device.wait(stream, done);  // waits for the work that destroys the lease
    stream.launch([] {});
    feed.reset();
    gate.store(1);
  }
  CHECK(device.device_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("a transfer may end in work on its own stream", "[flow][fault:consumers-8]") {
  const ledger_device device;
  {
    auto loader = make_loader(device);
    auto stream = device.make_stream();
    auto feed = std::make_unique<feed_type>(loader, stream);
    auto lease = std::move(*feed->epoch(0).begin());
    stream.launch([owned = std::move(feed),
                   own = std::make_unique<feed_type::batch_type>(std::move(lease)),
                   here = this_thread_number()] { wait_until_asleep(here); });
    stream.synchronize();
  }
  CHECK(device.device_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("the last host lease may end in work that a copy out of another slot waits for",
          "[flow][fault:consumers-8]") {
  const ledger_device device;
  {
    ps::detail::waitable_counter gate;
    auto stream = device.make_stream();
    {
      using record = numbered::record_type;
      using slots_type = ps::detail::host_slots<ledger_device>;
      const ps::batch_layout<record> layout{ps::record_extents<record>{}, 10};
      const auto slots = ps::detail::shared_by_leases<slots_type, ps::cpu_stream_ref>(
          device, layout, std::size_t{2}, ps::detail::memory_kind::pinned);
      const auto one = slots->acquire();
      const auto two = slots->acquire();
      loader_type::batch_type lease{slots, *one, {}};
      stream.launch([own = std::make_unique<loader_type::batch_type>(std::move(lease)), &gate] {
        block_on(gate);
      });
      slots->release_after(*two, stream);
    }
    gate.store(1);
  }
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}
