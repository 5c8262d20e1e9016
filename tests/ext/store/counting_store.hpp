// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace test {

/// A store of in-memory objects that counts its calls. Reads can fail or be held back.
class counting_store {
 public:
  void add(const std::string& name, std::string content) { objects_[name] = std::move(content); }
  [[nodiscard]] const std::string& content(const std::string& name) const {
    return objects_.at(name);
  }

  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    ++sizes;
    return find(object).size();
  }
  void read(const penstock::byte_range& range) const { read_many({&range, 1}); }
  void read_many(std::span<const penstock::byte_range> ranges) const {
    {
      std::unique_lock lock{mutex_};
      ++calls;
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !is_shut_ || let_ > 0; });
      if (is_shut_) --let_;
      --waiting_;
    }
    for (const auto& range : ranges) {
      const std::string& all = find(range.object);
      ++reads;
      bytes += range.out.size();
      if (fails) throw penstock::file_unreadable(std::string{range.object}, range.offset, "a", "b");
      if (range.offset + range.out.size() > all.size()) {
        throw penstock::file_truncated(std::string{range.object}, all.size(), "more", "the end");
      }
      if (range.out.empty()) continue;
      std::memcpy(range.out.data(), all.data() + range.offset, range.out.size());
    }
  }

  /// Makes later reads block at their start until `open` is called.
  void shut() {
    const std::lock_guard lock{mutex_};
    is_shut_ = true;
  }
  void open() {
    {
      const std::lock_guard lock{mutex_};
      is_shut_ = false;
    }
    changed_.notify_all();
  }
  /// Releases a single blocked read.
  void let_one() {
    const std::lock_guard lock{mutex_};
    ++let_;
    changed_.notify_all();
  }
  /// Returns true when `count` reads are blocked. Returns false after a minute.
  bool await(int count) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, std::chrono::minutes{1}, [&] { return waiting_ >= count; });
  }
  /// Returns true when `count` calls have begun. Returns false after a minute.
  bool await_call(int count) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, std::chrono::minutes{1}, [&] { return calls >= count; });
  }

  mutable std::atomic<int> sizes{0};
  mutable std::atomic<int> calls{0};
  mutable std::atomic<int> reads{0};
  mutable std::atomic<std::uint64_t> bytes{0};
  std::atomic<bool> fails{false};

 private:
  [[nodiscard]] const std::string& find(std::string_view object) const {
    const auto found = objects_.find(object);
    if (found != objects_.end()) return found->second;
    throw penstock::file_unreadable(std::string{object}, 0, "an object", "none");
  }

  std::map<std::string, std::string, std::less<>> objects_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int waiting_ = 0;
  mutable int let_ = 0;
  bool is_shut_ = false;
};

static_assert(penstock::batching_store<counting_store>);

}  // namespace test
