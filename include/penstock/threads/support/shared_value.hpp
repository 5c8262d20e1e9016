// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A number that one thread writes and any thread reads. Writing it is a load and a store, without
/// a locked instruction.
class tally {
 public:
  /// The writing thread: `more` is added.
  void add(std::uint64_t more) noexcept { set(value() + more); }
  /// The writing thread: the number is `value` from now on.
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  /// The number. From any thread.
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  // Invariant: one thread stores. Relaxed: it says nothing about other memory, and a thread that
  // got a batch sees all that was counted before the batch was announced.
  std::atomic<std::uint64_t> value_{0};
};

/// A value that one thread at a time writes and any thread reads whole. Writing takes no lock and
/// no locked instruction; a reader that meets a writer reads again.
template <class T, class Atomics = std_atomics>
class shared_value {
  static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);

 public:
  explicit shared_value(const T& value = {}) noexcept { store(value); }
  shared_value(shared_value&&) = delete;

  /// One thread at a time.
  void store(const T& value) noexcept {
    std::array<std::uint64_t, words> copy{};
    std::memcpy(copy.data(), &value, sizeof value);
    const std::uint64_t turn = turn_.load(std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_relaxed);
    // Release, each: a reader that gets one of these sees the odd turn.
    for (std::size_t i = 0; i < words; ++i) words_[i].store(copy[i], std::memory_order_release);
    turn_.store(turn + 2, std::memory_order_release);
  }

  /// The value that was written last. From any thread.
  [[nodiscard]] T load() const noexcept {
    T value;
    while (!try_load(value)) Atomics::yield();
    return value;
  }

  /// `load` without a wait: false, and no value, if a writer wrote meanwhile.
  [[nodiscard]] bool try_load(T& value) const noexcept {
    const std::uint64_t turn = turn_.load(std::memory_order_acquire);
    std::array<std::uint64_t, words> copy;
    // Acquire, each: the second look at the turn sees at least that of the writer of these.
    for (std::size_t i = 0; i < words; ++i) copy[i] = words_[i].load(std::memory_order_acquire);
    if (turn % 2 != 0 || turn_.load(std::memory_order_relaxed) != turn) return false;
    std::memcpy(static_cast<void*>(&value), copy.data(), sizeof value);
    return true;
  }

 private:
  template <class U>
  using atomic = typename Atomics::template atomic<U>;

  static constexpr std::size_t words = (sizeof(T) + 7) / 8;

  atomic<std::uint64_t> turn_{0};  // odd while a value is being written
  std::array<atomic<std::uint64_t>, words> words_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
