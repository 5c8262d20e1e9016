// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <type_traits>
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

/// Chooses the cores for the workers of a loader: the cores near `device` that are in the affinity
/// mask of the calling thread. The thread that creates the loader must call this, because the
/// workers inherit its mask. Propagates errors from the device.
template <class Device>
[[nodiscard]] affinity_report plan_cores(const Device& device, const loader_options& options) {
  if (options.tuning.affinity == worker_affinity::anywhere) {
    return {.binding = core_binding::disabled};
  }
  const std::optional<int> node = host_node_of(device);
  if (!node) return {};
  if (options.workers == 0) return {.binding = core_binding::no_workers, .node = node};
  const auto there = cpus_of_node(sysfs_root_of(device), *node);
  if (!there) return {.binding = core_binding::unknown_cores, .node = node};
  const auto mask = affinity_of_this_thread();
  if (!mask) return {.binding = core_binding::failed, .node = node, .error_number = errno};
  cpu_list both = common_cores(*there, *mask);
  if (both.empty()) return {.binding = core_binding::not_in_cpuset, .node = node};
  const bool is_all = both == *mask;
  return {.binding = is_all ? core_binding::within_node : core_binding::bound,
          .node = node,
          .cores = std::move(both)};
}

/// Binds the workers of a loader to cores. Each worker binds itself when it starts, if the plan has
/// cores. If the binding fails, the workers run unbound, and `where` reports the error.
class worker_binding {
 public:
  /// Plans the cores of `options.workers` workers.
  template <class Device>
  worker_binding(const Device& device, const loader_options& options)
      : plan_(plan_cores(device, options)),
        bits_(plan_.cores),
        workers_(static_cast<std::uint32_t>(options.workers.value())) {}

  /// Binds the calling thread. Each worker calls this once.
  void take() noexcept {
    if (plan_.binding != core_binding::bound) return;
    const int error = bind_this_thread(bits_);
    // Relaxed ordering suffices, because the counter orders this store. If several workers fail,
    // any of their errors may be stored.
    if (error != 0) error_.store(error, std::memory_order_relaxed);
    bound_.advance();
  }

  /// Waits until each worker has called `take`. Returns immediately if the plan has no cores.
  void wait_until_taken() const noexcept {
    if (plan_.binding != core_binding::bound) return;
    bound_.wait([this](std::uint32_t bound) { return bound == workers_; });
  }

  /// Returns the cores of the workers. Any thread may call this after `wait_until_taken`.
  [[nodiscard]] affinity_report where() const {
    affinity_report found = plan_;
    // Relaxed ordering suffices, because each worker advances the counter after its store, and the
    // value is read after the wait for the counter.
    const int error = error_.load(std::memory_order_relaxed);
    if (error == 0) return found;
    found.binding = core_binding::failed;
    found.error_number = error;
    return found;
  }

 private:
  affinity_report plan_;
  cpu_bits bits_;
  std::uint32_t workers_;
  waitable_counter bound_;     // number of workers that called `take`
  std::atomic<int> error_{0};  // errno of a failed binding
};

/// The workers of a device without a host node, which run on any core that the process may use.
class unbound_workers {
 public:
  template <class Device>
  unbound_workers(const Device&, const loader_options& options) noexcept
      : is_disabled_(options.tuning.affinity == worker_affinity::anywhere) {}
  static void take() noexcept {}
  static void wait_until_taken() noexcept {}
  [[nodiscard]] affinity_report where() const {
    if (is_disabled_) return {.binding = core_binding::disabled};
    return {};
  }

 private:
  bool is_disabled_;
};

/// The worker binding of a loader. Only programs with a device that has a host node compile
/// `worker_binding`.
template <class Device>
using binding_of = std::conditional_t<has_host_node<Device>, worker_binding, unbound_workers>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
