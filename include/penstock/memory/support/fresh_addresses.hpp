// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/cpu_device.hpp>

#if PENSTOCK_CHECKED
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <penstock/memory/detail/address_lane.hpp>
#include <penstock/memory/detail/stale_addresses.hpp>

#if defined(__SANITIZE_THREAD__)  // GCC
#define PENSTOCK_THREAD_SANITIZER
#elif defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define PENSTOCK_THREAD_SANITIZER
#endif
#endif
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Of slots that stay where they are: a GPU's, and all of an unchecked build. The names of
/// `fresh_addresses`, without anything in them.
struct fixed_addresses {
  struct left_place {
    constexpr void close() const noexcept {}
  };
  [[nodiscard]] constexpr bool take(std::size_t, std::size_t, bool) const noexcept { return false; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return false; }
  [[nodiscard]] constexpr bool is_locked() const noexcept { return false; }
  [[nodiscard]] constexpr std::byte* data(std::size_t) const noexcept { return nullptr; }
  template <record_type Record>
  constexpr void name_fields(const batch_layout<Record>&) const noexcept {}
  constexpr void name_fields_as(const fixed_addresses&) const noexcept {}
  constexpr void name_batch(std::size_t, const batch_info&) const noexcept {}
  constexpr void renew(std::size_t) const noexcept {}

  struct one {
    constexpr one() = default;
    constexpr one(const fixed_addresses&, std::size_t) noexcept {}
    constexpr void name_batch(const batch_info&) const noexcept {}
    [[nodiscard]] constexpr left_place move(std::byte*&) const noexcept { return {}; }
  };
};

#if PENSTOCK_CHECKED

/// In a checked build, the memory of a CPU device's slots: each batch lies at addresses of its own,
/// so that one that was kept beyond the batch's lease faults, and `stale_addresses` names the
/// batch. Each slot takes whole pages. One thread at a time has to do with a slot.
class fresh_addresses {
 public:
  /// Where a slot lay.
  class left_place {
   public:
    left_place(address_lane* lane, std::byte* data) noexcept : lane_(lane), data_(data) {}
    /// Nothing uses it any more: its memory is freed, and touching it faults.
    void close() const noexcept {
      if (data_ != nullptr) lane_->close(data_);
    }

   private:
    address_lane* lane_;
    std::byte* data_;  // null: the slot has stayed
  };

  fresh_addresses() = default;
  fresh_addresses(fresh_addresses&& other) noexcept = default;
  fresh_addresses& operator=(fresh_addresses&&) = delete;
  ~fresh_addresses() { close_all(); }

  /// Takes `bytes` bytes of zeros as slots of `slot_bytes`, locked into RAM if asked for and the
  /// process may. False where there are no slots, or the system refuses: then memory is to be taken
  /// as in an unchecked build. May throw `std::bad_alloc`.
  [[nodiscard]] bool take(std::size_t bytes, std::size_t slot_bytes, bool locks) {
    if (is_thread_sanitized || slot_bytes == 0 || bytes > most_bytes) return false;
    const std::size_t count = bytes / slot_bytes;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t stride = (slot_bytes + page - 1) / page * page;
    slots_.reserve(count);
    auto lane = address_lane::reserve(
        stride, (std::max)(8 * count, (std::min)(most_places, lane_bytes / stride)));
    if (lane == nullptr || !stale_addresses::all().add(lane.get())) return refuse();
    lane_ = lane.release();  // known from now on
    is_locked_ = locks;
    while (slots_.size() < count) {
      std::byte* const data = lane_->open();
      if (data == nullptr) return refuse();
      slots_.push_back(data);
      std::memset(data, 0, stride);  // so that no page fault falls into the loop's first batches
      is_locked_ = is_locked_ && ::mlock(data, stride) == 0;
    }
    return true;
  }

  /// Whether the slots are here.
  [[nodiscard]] explicit operator bool() const noexcept { return !slots_.empty(); }
  /// Whether they are locked into RAM.
  [[nodiscard]] bool is_locked() const noexcept { return is_locked_; }
  /// Where a slot lies now.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept { return slots_[slot]; }

  /// The batches are laid out like this. May throw `std::bad_alloc`.
  template <record_type Record>
  void name_fields(const batch_layout<Record>& layout) {
    if (*this) lane_->name_fields(layout);
  }
  /// They are laid out as those of `other`. May throw `std::bad_alloc`.
  void name_fields_as(const fresh_addresses& other) {
    if (*this && other) lane_->name_fields_as(*other.lane_);
  }
  /// A lease of this batch begins, in `slot`.
  void name_batch(std::size_t slot, const batch_info& batch) noexcept {
    if (*this) lane_->name_batch(slots_[slot], batch);
  }

  /// Moves a slot that nothing uses, without its contents. It never takes more memory than before.
  void renew(std::size_t slot) noexcept {
    if (!*this) return;
    move(slot).close();
    // Within the limit, which has just got as much back.
    if (is_locked_) ::mlock(slots_[slot], lane_->stride());
  }

  /// One of the slots, for those whose `fresh_addresses` stay where they are.
  class one {
   public:
    one() = default;
    one(fresh_addresses& of, std::size_t slot) noexcept : of_(&of), slot_(slot) {}
    /// As the function of that name.
    void name_batch(const batch_info& batch) const noexcept { of_->name_batch(slot_, batch); }
    /// Moves the slot, without its contents, and writes down where it lies then. Where it lay is to
    /// be closed when nothing uses that any more.
    [[nodiscard]] left_place move(std::byte*& data) const noexcept {
      if (!*of_) return {nullptr, nullptr};
      const left_place left = of_->move(slot_);
      data = of_->slots_[slot_];
      return left;
    }

   private:
    fresh_addresses* of_ = nullptr;
    std::size_t slot_ = 0;
  };

 private:
#if defined(PENSTOCK_THREAD_SANITIZER)
  static constexpr bool is_thread_sanitized = true;  // it has memory for each address ever used
#else
  static constexpr bool is_thread_sanitized = false;
#endif
  // An address comes again after so many batches of its ring, or as many as lie in so many bytes.
  static constexpr std::size_t most_places = 4096;
  static constexpr std::size_t lane_bytes = std::size_t{4} << 30;
  static constexpr std::size_t most_bytes = std::size_t{1} << 40;

  /// Where the system refuses the slot stays, and its addresses serve one more batch.
  left_place move(std::size_t slot) noexcept {
    std::byte* const next = lane_->open();
    return {lane_, next != nullptr ? std::exchange(slots_[slot], next) : nullptr};
  }
  bool refuse() noexcept {
    close_all();
    std::fprintf(stderr,
                 "penstock, checked build: the system has no addresses for batches to have their "
                 "own: an address that is kept beyond its lease is not reported\n");
    return false;
  }
  void close_all() noexcept {
    for (std::byte* const data : slots_) lane_->close(data);
    slots_.clear();
  }

  address_lane* lane_ = nullptr;   // never freed
  std::vector<std::byte*> slots_;  // where each lies
  bool is_locked_ = false;
};

/// The addresses of slots in the memory of `Device`.
template <class Device>
using slot_addresses =
    std::conditional_t<std::same_as<Device, cpu_device>, fresh_addresses, fixed_addresses>;

#else

template <class>
using slot_addresses = fixed_addresses;

#endif

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
