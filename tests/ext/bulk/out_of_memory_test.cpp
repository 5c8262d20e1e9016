// SPDX-License-Identifier: BSL-1.0
// Tests that a download waits for its queued snapshot work, whichever allocation fails.
#include <cstddef>
#include <new>
#include <span>
#include <vector>

#include <penstock_ext/bulk/bulk_copier.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/gated_device.hpp"

namespace ps = penstock;

namespace {

/// A device that holds copies until a thread waits for their stream.
struct opening_device : gated_device {
  using gated_device::synchronize;
  void synchronize(stream_ref stream) const {
    open_copies();
    gated_device::synchronize(stream);
  }
};

}  // namespace

TEST_CASE("a download that fails after its snapshot was queued waits for that snapshot",
          "[bulk][promise:race-free-15][fault:memory-5]") {
  constexpr std::size_t page = 4096;
  const std::vector<std::byte> memory(3 * page);
  std::vector<std::byte> to(3 * page);
  std::size_t waited = 0;
  bool is_whole = false;
  for (std::size_t k = 1; k < 200 && !is_whole; ++k) {
    INFO("allocation " << k);
    const opening_device device;
    auto stream = device.make_stream();
    ps::bulk_copier copier{device, {.workers = 1, .piece_bytes = page, .snapshot = true}};
    device.hold_copies();
    test::failing_allocation = k;
    try {
      auto saving = copier.download(stream, ps::memory_sink{std::span{to}},
                                    std::span<const std::byte>{memory});
      device.open_copies();
      saving.wait();
      is_whole = test::failing_allocation.exchange(0) != 0;
    } catch (const std::bad_alloc&) {
      if (copier.device_bytes() != 0) {
        ++waited;
        CHECK(stream.is_complete());
      }
    }
    test::failing_allocation = 0;
    device.open_copies();
  }
  CHECK(is_whole);
  CHECK(waited > 0);
}
