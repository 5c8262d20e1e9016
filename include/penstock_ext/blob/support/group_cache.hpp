// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/exit_handler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A size-limited cache of decoded row groups, shared by threads. One thread makes each group while
/// other threads that need it wait. The cache evicts the least recently requested group that has no
/// lease.
///
/// A thread may hold at most one lease when it requests another group. Therefore threads that wait
/// for room never wait for each other, only for threads that read or decode.
template <class Group>
class group_cache {
  struct entry {
    std::unique_ptr<const Group> group;  // null until the group is made
    std::uint64_t bytes = 0;
    std::size_t leases = 0;                    // evictable if 0
    std::list<std::size_t>::iterator place{};  // in `by_request_`
  };

 public:
  /// Keeps a group in the cache while the lease exists.
  class lease {
   public:
    lease(lease&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), entry_(other.entry_) {}
    lease& operator=(lease&&) = delete;
    ~lease() {
      if (cache_ != nullptr) cache_->end(*entry_);
    }
    [[nodiscard]] const Group& operator*() const noexcept { return *entry_->group; }

   private:
    friend group_cache;
    lease(group_cache& cache, entry& of) noexcept : cache_(&cache), entry_(&of) {}

    group_cache* cache_;
    entry* entry_;
  };

  /// Creates a cache of at most `limit` bytes.
  explicit group_cache(std::uint64_t limit) noexcept : limit_(limit) {}

  /// Returns a lease on group `number`. Calls `make()` if the group is not cached. The group size
  /// is `bytes`, which must not exceed `limit`. If `make` throws, the exception propagates and the
  /// next request retries.
  template <class Make>
  [[nodiscard]] lease get(std::size_t number, std::uint64_t bytes, const Make& make) {
    return *find(number, bytes, make, true);
  }
  /// Like `get`, but returns nothing if the call would have to wait for another thread or for room.
  template <class Make>
  [[nodiscard]] std::optional<lease> try_get(std::size_t number, std::uint64_t bytes,
                                             const Make& make) {
    return find(number, bytes, make, false);
  }

  /// Calls `use(part, group)` for the group of each part. A part has the members `group` (an index)
  /// and `bytes`. `make(part)` creates a group that is not cached. Groups that other threads are
  /// making come last, so that this thread can make other groups in the meantime. Calls
  /// `begin(part)` before each lookup. If several parts fail, throws the exception of the first
  /// failed part in the list.
  template <class Parts, class Begin, class Make, class Use>
  void get_each(const Parts& parts, const Begin& begin, const Make& make, const Use& use) {
    std::vector<const typename Parts::value_type*> late;
    std::exception_ptr problem;  // the error of the last element in `late`
    for (const auto& part : parts) {
      begin(part);
      try {
        if (const auto held = try_get(part.group, part.bytes, [&] { return make(part); })) {
          use(part, **held);
          continue;
        }
      } catch (...) {
        problem = std::current_exception();
      }
      late.push_back(&part);
      if (problem != nullptr) break;
    }
    for (const auto* const part : late) {
      begin(*part);
      if (problem != nullptr && part == late.back()) std::rethrow_exception(problem);
      use(*part, *get(part->group, part->bytes, [&] { return make(*part); }));
    }
  }

  /// Returns the total size in bytes of all groups that are cached or being made.
  [[nodiscard]] std::uint64_t held() const {
    const std::lock_guard lock{mutex_};
    return held_;
  }
  /// Returns the number of groups made so far.
  [[nodiscard]] std::uint64_t made() const {
    const std::lock_guard lock{mutex_};
    return made_;
  }

 private:
  template <class Make>
  std::optional<lease> find(std::size_t number, std::uint64_t bytes, const Make& make,
                            bool may_wait) {
    std::unique_lock lock{mutex_};
    while (true) {
      const auto found = entries_.find(number);
      if (found == entries_.end()) {
        if (make_room(bytes)) break;
      } else if (found->second.group) {
        by_request_.splice(by_request_.end(), by_request_, found->second.place);
        ++found->second.leases;
        return lease{*this, found->second};
      }
      if (!may_wait) return std::nullopt;
      changed_.wait(lock);
    }
    std::list<std::size_t> node{number};
    entry& own = entries_[number];
    own.place = node.begin();
    by_request_.splice(by_request_.end(), node);
    own.bytes = bytes;
    own.leases = 1;
    held_ += bytes;
    lock.unlock();
    const auto drop = [&] {
      if (!lock.owns_lock()) lock.lock();
      held_ -= bytes;
      by_request_.erase(own.place);
      entries_.erase(number);
      changed_.notify_all();
    };
    try {
      const exit_handler handler{[&] {
        drop();
        lock.unlock();
      }};
      auto made = std::make_unique<const Group>(make());
      lock.lock();
      own.group = std::move(made);
    } catch (...) {
      drop();
      throw;
    }
    by_request_.splice(by_request_.end(), by_request_, own.place);
    ++made_;
    changed_.notify_all();
    return lease{*this, own};
  }

  // Evicts groups until there is room for `bytes`. Returns false if all remaining groups are in
  // use.
  bool make_room(std::uint64_t bytes) {
    while (held_ > limit_ - bytes) {  // subtraction, because a sum could overflow
      const auto oldest = std::ranges::find_if(by_request_, [this](std::size_t number) {
        return entries_.find(number)->second.leases == 0;
      });
      if (oldest == by_request_.end()) return false;
      const auto evicted = entries_.find(*oldest);
      held_ -= evicted->second.bytes;
      by_request_.erase(oldest);
      entries_.erase(evicted);
    }
    return true;
  }

  void end(entry& of) {
    const std::lock_guard lock{mutex_};
    if (--of.leases == 0) changed_.notify_all();
  }

  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;       // notified when a group was made, when a group failed,
                                          // and when a lease ended
  std::map<std::size_t, entry> entries_;  // a map, because its element addresses are stable
  std::list<std::size_t> by_request_;     // the keys of `entries_`, the last requested at the end
  std::uint64_t held_ = 0;
  std::uint64_t made_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
