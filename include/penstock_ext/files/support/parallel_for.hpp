// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Calls `call(i)` for each index `i` below `count` on up to `threads` threads, including the
/// calling thread. Uses fewer threads if the system cannot create more. If calls throw, rethrows
/// the exception of the lowest index.
template <class Call>
void parallel_for(std::size_t count, std::size_t threads, const Call& call) {
  // Relaxed ordering suffices, because the counter only assigns indices in order and joining the
  // threads orders everything else. After a failure no further indices are assigned. All lower
  // indices have been assigned by then, so the lowest failure is always found.
  std::atomic<std::size_t> next{0};
  std::mutex guard;
  std::size_t failed = count;
  std::exception_ptr problem;
  const auto work = [&] {
    while (true) {
      const std::size_t number = next.fetch_add(1, std::memory_order_relaxed);
      if (number >= count) return;
      try {
        call(number);
      } catch (...) {
        next.store(count, std::memory_order_relaxed);
        const std::lock_guard lock{guard};
        if (number > failed) return;
        failed = number;
        problem = std::current_exception();
        return;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (std::size_t i = 1; i < (std::min)(threads, count); ++i) others.emplace_back(work);
    } catch (const std::system_error&) {
      // If a thread cannot be created, the existing threads do all the work.
    }
    work();
  }
  if (problem) std::rethrow_exception(problem);
}

/// Returns the results of `open(i)` for all indices below `count`, computed by `parallel_for`. For
/// example, reads several shard headers concurrently.
template <class Open>
[[nodiscard]] auto open_in_parallel(std::size_t count, std::size_t threads, const Open& open) {
  using shard = decltype(open(count));
  std::vector<std::optional<shard>> opened(count);
  parallel_for(count, threads, [&](std::size_t number) { opened[number].emplace(open(number)); });
  std::vector<shard> all;
  all.reserve(count);
  for (std::optional<shard>& one : opened) all.push_back(std::move(*one));
  return all;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
