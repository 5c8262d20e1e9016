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

/// A counter with a single writer thread that any thread may read. A write is a load and a store,
/// without a locked instruction.
class tally {
 public:
  /// Adds `more`. Only the writing thread may call this.
  void add(std::uint64_t more) noexcept { set(value() + more); }
  /// Sets the value. Only the writing thread may call this.
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  /// Returns the value. Any thread may call this.
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  // Invariant: only one thread stores the value. Relaxed ordering suffices, because the value does
  // not publish other memory. A thread that has received a batch sees everything that was counted
  // before the batch was announced.
  std::atomic<std::uint64_t> value_{0};
};

/// A sequence lock: a value with one writer thread at a time that any thread may read consistently.
/// A write needs no lock and no locked instruction. A read that overlaps with a write is repeated.
template <class T, class Atomics = std_atomics>
class shared_value {
  static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);

 public:
  /// Creates a shared value with the initial value `value`.
  explicit shared_value(const T& value = {}) noexcept { store(value); }
  shared_value(shared_value&&) = delete;

  /// Sets the value. Only one thread at a time may call this.
  void store(const T& value) noexcept {
    std::array<std::uint64_t, words> copy{};
    std::memcpy(copy.data(), &value, sizeof value);
    const std::uint64_t turn = turn_.load(std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_relaxed);
    // Each store is a release, so that a reader that loads one of the words also sees the odd turn
    // count.
    for (std::size_t i = 0; i < words; ++i) words_[i].store(copy[i], std::memory_order_release);
    turn_.store(turn + 2, std::memory_order_release);
  }

  /// Returns the last value written. Any thread may call this.
  [[nodiscard]] T load() const noexcept {
    T value;
    while (!try_load(value)) Atomics::yield();
    return value;
  }

  /// Loads the value without waiting. If a write overlaps with the call, returns false and does not
  /// change `value`. Any thread may call this.
  [[nodiscard]] bool try_load(T& value) const noexcept {
    const std::uint64_t turn = turn_.load(std::memory_order_acquire);
    std::array<std::uint64_t, words> copy;
    // Each load is an acquire, so that the second load of the turn sees at least the turn of the
    // word's writer.
    for (std::size_t i = 0; i < words; ++i) copy[i] = words_[i].load(std::memory_order_acquire);
    if (turn % 2 != 0 || turn_.load(std::memory_order_relaxed) != turn) return false;
    std::memcpy(static_cast<void*>(&value), copy.data(), sizeof value);
    return true;
  }

 private:
  template <class U>
  using atomic = typename Atomics::template atomic<U>;

  static constexpr std::size_t words = (sizeof(T) + 7) / 8;

  atomic<std::uint64_t> turn_{0};  // odd during a write
  std::array<atomic<std::uint64_t>, words> words_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
