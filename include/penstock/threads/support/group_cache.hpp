// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Decoded groups of rows that threads share, within a number of bytes. Each group is made by one
/// thread at a time, while those that ask for it wait; groups that nobody reads make room, the one
/// that was asked for longest ago first.
///
/// A thread holds one lease at most when it asks for another group: so those that wait for room
/// wait for threads that read or decode, and none for itself. All members are thread-safe.
template <class Group>
class group_cache {
  struct entry {
    std::unique_ptr<const Group> group;  // null while it is made
    std::uint64_t bytes = 0;
    std::uint64_t asked = 0;  // when it was asked for last, by `clock_`
    std::size_t leases = 0;   // not above 0: may go
  };

 public:
  /// Keeps a group where it is, for the lease's time.
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

  /// Holds `limit` bytes of groups at most.
  explicit group_cache(std::uint64_t limit) noexcept : limit_(limit) {}

  /// Group `number`, of `bytes`, which are `limit` at most; made by `make()` where it is not held.
  /// What that throws is thrown here, and the next one that asks tries anew.
  template <class Make>
  [[nodiscard]] lease get(std::size_t number, std::uint64_t bytes, const Make& make) {
    return *find(number, bytes, make, true);
  }
  /// `get`, but none where it would wait: where another thread makes the group, or there is no
  /// room.
  template <class Make>
  [[nodiscard]] std::optional<lease> try_get(std::size_t number, std::uint64_t bytes,
                                             const Make& make) {
    return find(number, bytes, make, false);
  }

  /// Calls `use(part, group)` for the group of each of `parts`, which have a number `group` and its
  /// `bytes`; made by `make(part)` where it is not held. Groups that other threads make come last,
  /// so that a thread makes one itself meanwhile. `begin(part)` comes before each look for a group.
  /// Throws what the first part throws that can't be used, whatever other threads do.
  template <class Parts, class Begin, class Make, class Use>
  void get_each(const Parts& parts, const Begin& begin, const Make& make, const Use& use) {
    std::vector<const typename Parts::value_type*> late;
    std::exception_ptr problem;  // of the last one that is late
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

  /// The bytes of all groups that are held or being made.
  [[nodiscard]] std::uint64_t held() const {
    const std::lock_guard lock{mutex_};
    return held_;
  }
  /// How many groups were made so far.
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
        found->second.asked = ++clock_;
        ++found->second.leases;
        return lease{*this, found->second};
      }
      if (!may_wait) return std::nullopt;
      changed_.wait(lock);
    }
    entry& own = entries_[number];
    own.bytes = bytes;
    own.leases = 1;
    held_ += bytes;
    lock.unlock();
    try {
      auto made = std::make_unique<const Group>(make());
      lock.lock();
      own.group = std::move(made);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      held_ -= bytes;
      entries_.erase(number);
      changed_.notify_all();
      throw;
    }
    own.asked = ++clock_;
    ++made_;
    changed_.notify_all();
    return lease{*this, own};
  }

  // Drops groups until there is room for `bytes`; false where those that are left are in use.
  bool make_room(std::uint64_t bytes) {
    while (held_ > limit_ - bytes) {  // a sum could wrap
      auto oldest = entries_.end();
      for (auto one = entries_.begin(); one != entries_.end(); ++one) {
        if (one->second.leases > 0) continue;
        if (oldest == entries_.end() || one->second.asked < oldest->second.asked) oldest = one;
      }
      if (oldest == entries_.end()) return false;
      held_ -= oldest->second.bytes;
      entries_.erase(oldest);
    }
    return true;
  }

  void end(entry& of) {
    const std::lock_guard lock{mutex_};
    if (--of.leases == 0) changed_.notify_all();
  }

  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;       // a group was made, or failed, or a lease ended
  std::map<std::size_t, entry> entries_;  // whose places stay
  std::uint64_t held_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t made_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
