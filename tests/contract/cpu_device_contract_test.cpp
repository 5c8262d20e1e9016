// SPDX-License-Identifier: BSL-1.0
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <penstock/device/cpu_device.hpp>

#include "contract/device_contract.hpp"
#include "support/catch.hpp"
#include "support/gated_device.hpp"

namespace ps = penstock;

namespace {

/// A test subject for any device whose streams are CPU streams.
template <ps::device Device>
struct on_cpu_streams {
  using device_type = Device;
  Device under_test{};
  [[nodiscard]] Device device() const { return under_test; }
  void launch(ps::cpu_stream_ref stream, std::function<void()> work) const {
    // Uses a shared_ptr, because moving a std::function may throw and a stream rejects such work.
    stream.launch([work = std::make_shared<std::function<void()>>(std::move(work))] { (*work)(); });
  }
};

}  // namespace

TEST_CASE("a CPU device keeps the contract of devices", "[contract][promise:race-free-4]") {
  contract::run_all(on_cpu_streams<ps::cpu_device>{});
}

TEST_CASE("a CPU device with a modeled bus keeps the contract of devices",
          "[contract][promise:race-free-4]") {
  using namespace std::chrono_literals;
  contract::run_all(on_cpu_streams<ps::cpu_device>{
      ps::cpu_device{{.copy_bytes_per_second = 20e9, .launch_latency = 1us}}});
}

TEST_CASE("the tests' own device keeps the contract of devices", "[contract]") {
  contract::run_all(on_cpu_streams<gated_device>{});
}
