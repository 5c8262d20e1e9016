// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/options.hpp>
#include <penstock/threads/cpu_list.hpp>
#include <penstock/threads/support/cpus.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where workers of a loader that the calling thread makes are to run, next to `device`: threads
/// start with the mask of their creator. Throws what the device does.
template <class Device>
[[nodiscard]] worker_cores plan_cores(const Device& device, const loader_options& options) {
  if (options.tuning.placement == worker_placement::anywhere) {
    return {.binding = core_binding::not_asked};
  }
  const std::optional<int> node = host_node_of(device);
  if (!node) return {};
  if (options.workers == 0) return {.binding = core_binding::no_workers, .node = node};
  const auto there = cpus_of_node(sysfs_root_of(device), *node);
  if (!there) return {.binding = core_binding::unknown_cores, .node = node};
  const auto mask = affinity_of_this_thread();
  if (!mask) return {.binding = core_binding::refused, .node = node, .error_number = errno};
  cpu_list both = common_cores(*there, *mask);
  if (both.empty()) return {.binding = core_binding::outside_mask, .node = node};
  const bool is_all = both == *mask;
  return {.binding = is_all ? core_binding::within_node : core_binding::bound,
          .node = node,
          .cores = std::move(both)};
}

/// The cores of a loader's workers: each binds itself at its start, where there is anything to bind
/// to. A refusal is no error, and visible.
class worker_binding {
 public:
  /// For as many workers as `options` say.
  template <class Device>
  worker_binding(const Device& device, const loader_options& options)
      : plan_(plan_cores(device, options)),
        bits_(plan_.cores),
        workers_(static_cast<std::uint32_t>(options.workers)) {}

  /// A worker, at its start.
  void take() noexcept {
    if (plan_.binding != core_binding::bound) return;
    const int error = bind_this_thread(bits_);
    // Relaxed: the counter orders it, and any of several refusals will do.
    if (error != 0) error_.store(error, std::memory_order_relaxed);
    seated_.advance();
  }

  /// The thread that has started the workers: returns once each has bound itself, or was refused.
  /// At once where there is nothing to bind to.
  void wait_until_taken() const noexcept {
    if (plan_.binding != core_binding::bound) return;
    seated_.wait([this](std::uint32_t seated) { return seated == workers_; });
  }

  /// Where the workers run; after `wait_until_taken`. From any thread.
  [[nodiscard]] worker_cores where() const {
    worker_cores found = plan_;
    // Relaxed: read after the wait for the counter, which every worker advances after its store.
    const int error = error_.load(std::memory_order_relaxed);
    if (error == 0) return found;
    found.binding = core_binding::refused;
    found.error_number = error;
    return found;
  }

 private:
  worker_cores plan_;
  cpu_bits bits_;
  std::uint32_t workers_;
  waitable_counter seated_;    // workers that have tried
  std::atomic<int> error_{0};  // what a refusal gave
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
