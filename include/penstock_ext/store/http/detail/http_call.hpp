// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/threads/support/atomics.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A range or a piece of a long range, with its destination.
struct request_part {
  std::uint64_t begin;  ///< offset in the object
  std::byte* out;
  std::size_t size;

  [[nodiscard]] std::uint64_t end() const noexcept { return begin + size; }
};

/// A request for the bytes from `begin` to `end` of an object. The request serves `parts` parts
/// starting at `first_part`, sorted by offset.
struct planned_request {
  std::size_t object;
  std::uint64_t begin;
  std::uint64_t end;
  std::size_t first_part;
  std::size_t parts;
};

/// The requests for a call with several ranges.
struct request_plan {
  std::vector<std::string> objects;
  std::vector<request_part> parts;
  std::vector<planned_request> requests;
  std::size_t ranges = 0;  ///< number of non-empty ranges

  /// Copies object bytes, which start at `position`, to the destinations of the request parts.
  void deliver(const planned_request& request, std::uint64_t position,
               std::span<const std::byte> bytes) const noexcept {
    const std::uint64_t end = position + bytes.size();
    for (const request_part& part : std::span{parts}.subspan(request.first_part, request.parts)) {
      if (part.begin >= end) break;
      if (part.end() <= position) continue;
      const std::uint64_t from = (std::max)(part.begin, position);
      const std::uint64_t to = (std::min)(part.end(), end);
      std::memcpy(part.out + (from - part.begin), bytes.data() + (from - position),
                  static_cast<std::size_t>(to - from));
    }
  }
};

/// Plans the requests for `ranges`. Ranges of the same object that are at most `gap` bytes apart
/// share a request of at most `largest` bytes. `path_of(object)` returns a path for messages.
/// Throws `file_truncated` if a range ends beyond 2^63.
template <class PathOf>
[[nodiscard]] request_plan plan_requests(std::span<const byte_range> ranges, std::uint64_t gap,
                                         std::uint64_t largest, const PathOf& path_of) {
  constexpr std::uint64_t limit = (std::numeric_limits<std::int64_t>::max)();
  struct named_part {
    std::string_view object;
    request_part part;
  };
  std::vector<named_part> found;
  request_plan plan;
  for (const byte_range& range : ranges) {
    if (range.out.empty()) continue;
    if (range.offset > limit || range.out.size() > limit - range.offset) {
      throw file_truncated(path_of(range.object), range.offset, "a range that ends below 2^63",
                           "one of " + std::to_string(range.out.size()) + " bytes");
    }
    ++plan.ranges;
    for (std::size_t done = 0; done < range.out.size();) {
      const auto size =
          static_cast<std::size_t>((std::min)(std::uint64_t{range.out.size() - done}, largest));
      found.push_back({range.object, {range.offset + done, range.out.data() + done, size}});
      done += size;
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const named_part& a, const named_part& b) {
    const int order_of_names = a.object.compare(b.object);
    return order_of_names != 0 ? order_of_names < 0 : a.part.begin < b.part.begin;
  });
  for (const auto& [object, part] : found) {
    if (plan.objects.empty() || plan.objects.back() != object) plan.objects.emplace_back(object);
    const std::size_t number = plan.objects.size() - 1;
    plan.parts.push_back(part);
    if (!plan.requests.empty()) {
      planned_request& last = plan.requests.back();
      const std::uint64_t end = (std::max)(last.end, part.end());
      if (last.object == number && end - last.begin <= largest &&
          (part.begin <= last.end || part.begin - last.end <= gap)) {
        last.end = end;
        ++last.parts;
        continue;
      }
    }
    plan.requests.push_back({number, part.begin, part.end(), plan.parts.size() - 1, 1});
  }
  return plan;
}

/// State shared by the calling thread and the reactor thread that performs its requests.
/// Reference-counted, so that the state outlives a caller that has timed out.
///
/// Invariant: the caller's memory is written only under `mutex_` and only while the call is not
/// over. The caller returns only after it has read or set `is_over_` under `mutex_`. Therefore
/// nothing is written after the caller returns.
class http_call {
 public:
  /// Creates a call for the requests of `plan`.
  explicit http_call(request_plan plan) : plan_(std::move(plan)), open_(plan_.requests.size()) {}

  /// Returns the immutable plan.
  [[nodiscard]] const request_plan& plan() const noexcept { return plan_; }

  // Results of a call that reads no range and has a single request. Only the reactor accesses them
  // until the call is done.
  object_version version = {};
  std::string page = {};

  /// The caller waits here until all requests are done, a request has failed permanently, or
  /// `limit` has passed. Then the call is over. Returns true if all requests are done. Throws the
  /// exception of a failed request. After `limit`, throws the exception last passed to `record`, or
  /// returns false if `record` was not called.
  [[nodiscard]] bool wait_until(deadline limit) {
    std::unique_lock lock{mutex_};
    const bool is_over = over_.wait_until(lock, limit, [this] { return is_over_.load(); });
    is_over_.store(true);
    std::exception_ptr error = std::move(is_over ? error_ : late_);
    if (!error) return is_over;
    lock.unlock();
    std::rethrow_exception(std::move(error));
  }

  /// Returns true if the call is over, so that its requests are no longer needed. Any thread may
  /// call this. The result may be outdated.
  [[nodiscard]] bool was_over() const noexcept { return is_over_.load(); }

  /// The reactor calls this to copy object bytes, which start at `position`, to their destinations.
  /// Returns false if the call is over.
  [[nodiscard]] bool deliver(const planned_request& request, std::uint64_t position,
                             std::span<const std::byte> bytes) noexcept {
    const std::lock_guard lock{mutex_};
    if (is_over_.load()) return false;
    plan_.deliver(request, position, bytes);
    return true;
  }

  /// The reactor calls this when a request is done.
  void finish_one() noexcept {
    const std::lock_guard lock{mutex_};
    if (--open_ == 0) end();
  }

  /// The reactor calls this after a failed attempt that will be retried. The caller receives
  /// `error` if `limit` passes.
  void record(std::exception_ptr error) noexcept {
    const std::lock_guard lock{mutex_};
    if (!is_over_.load()) late_ = std::move(error);
  }

  /// The reactor calls this when a request has failed permanently. Only the first failure counts.
  /// The caller takes over the exception, so no other thread may keep a reference to it.
  void fail(std::exception_ptr error) noexcept {
    const std::lock_guard lock{mutex_};
    if (is_over_.load()) return;
    error_ = std::move(error);
    end();
  }

 private:
  void end() noexcept {
    is_over_.store(true);
    over_.notify_all();
  }

  const request_plan plan_;
  std::mutex mutex_;
  std::condition_variable over_;
  std::size_t open_;          // guarded by mutex_
  std::exception_ptr error_;  // guarded by mutex_
  std::exception_ptr late_;   // guarded by mutex_
  // Written under mutex_. May be read without mutex_, because an outdated value only causes
  // unneeded work.
  std::atomic<bool> is_over_{false};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
