// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

#if PENSTOCK_CHECKED

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/name.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A stretch of addresses, cut into places of one size, which the slots of a ring use one after
/// another: one batch a place. Only places that are open take memory and may be touched; one that
/// is closed again is open anew after all others. Never freed, so that a signal handler may look
/// at it: the addresses and the names stay.
class address_lane {
 public:
  /// What lay at an address.
  struct finding {
    std::uint64_t epoch;
    std::uint64_t batch;
    const name* field;  // null: not known
  };

  /// `count` places of `stride` bytes, whole pages; null where the system has no such stretch.
  /// Throws `std::bad_alloc`.
  [[nodiscard]] static std::unique_ptr<address_lane> reserve(std::size_t stride,
                                                             std::size_t count) {
    auto places = std::make_unique<place[]>(count);
    void* const begin = ::mmap(nullptr, stride * count, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    return std::unique_ptr<address_lane>{
        new address_lane{static_cast<std::byte*>(begin), stride, count, std::move(places)}};
  }
  address_lane(address_lane&&) = delete;
  /// Only of one that nobody knows yet.
  ~address_lane() { ::munmap(begin_, stride_ * count_); }

  /// The bytes of a place.
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }

  /// Opens the next place, whose memory is zero; null where the system refuses. From any threads;
  /// fewer than half of the places may be open.
  [[nodiscard]] std::byte* open() noexcept {
    for (;;) {
      const std::size_t next = next_.fetch_add(1, std::memory_order_relaxed) % count_;
      place& to = places_[next];
      if (to.is_open.exchange(true, std::memory_order_acquire)) continue;
      to.is_named.store(false, std::memory_order_relaxed);
      std::byte* const data = begin_ + next * stride_;
      if (::mprotect(data, stride_, PROT_READ | PROT_WRITE) == 0) return data;
      to.is_open.store(false, std::memory_order_release);
      return nullptr;
    }
  }

  /// Closes the place at `data`, and frees its memory: touching it faults. Neighbours that are
  /// closed are one mapping, so that their number counts for nothing.
  void close(std::byte* data) noexcept {
    [[maybe_unused]] const void* const closed = ::mmap(
        data, stride_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    of(data).is_open.store(false, std::memory_order_release);
  }

  /// A lease of this batch begins, which lies at `data`.
  void name_batch(const std::byte* data, const batch_info& batch) noexcept {
    place& at = of(data);
    at.epoch.store(batch.epoch, std::memory_order_relaxed);
    at.batch.store(batch.batch, std::memory_order_relaxed);
    at.is_named.store(true, std::memory_order_release);
  }

  /// The batches are laid out like this. Before there is one; may throw `std::bad_alloc`.
  template <record_type Record>
  void name_fields(const batch_layout<Record>& layout) {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (name_field<Is>(layout), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// They are laid out as those of `other`, which knows its fields. Before there is one; may throw
  /// `std::bad_alloc`.
  void name_fields_as(const address_lane& other) { fields_ = other.fields_; }

  /// Which batch lay at `address`, and is over. Safe in a signal handler.
  [[nodiscard]] std::optional<finding> find(const std::byte* address) const noexcept {
    // As numbers: the address may be any.
    const auto offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(begin_);
    if (offset >= stride_ * count_) return std::nullopt;
    const place& at = places_[offset / stride_];
    if (!at.is_named.load(std::memory_order_acquire)) return std::nullopt;
    finding found{at.epoch.load(std::memory_order_relaxed),
                  at.batch.load(std::memory_order_relaxed), nullptr};
    std::size_t nearest = 0;
    for (const auto& [begin, key] : fields_) {
      if (begin > offset % stride_ || begin < nearest) continue;
      nearest = begin;
      found.field = key;
    }
    return found;
  }

 private:
  struct place {
    // Invariant: the thread that has set it opens, uses and closes the place.
    std::atomic<bool> is_open{false};
    std::atomic<bool> is_named{false};  // the next two are of a batch that lies there, or lay
    std::atomic<std::uint64_t> epoch{0};
    std::atomic<std::uint64_t> batch{0};
  };

  address_lane(std::byte* begin, std::size_t stride, std::size_t count,
               std::unique_ptr<place[]> places) noexcept
      : begin_(begin), stride_(stride), count_(count), places_(std::move(places)) {}

  [[nodiscard]] place& of(const std::byte* data) const noexcept {
    return places_[static_cast<std::size_t>(data - begin_) / stride_];
  }

  template <std::size_t Index, record_type Record>
  void name_field(const batch_layout<Record>& layout) {
    using field = typename Record::template field_at<Index>;
    fields_.emplace_back(layout.template offset<Index>(), &field::key);
    if constexpr (field::is_ragged) {
      fields_.emplace_back(layout.template offsets_at<Index>(), &field::key);
    }
  }

  std::byte* begin_;
  std::size_t stride_;
  std::size_t count_;
  std::unique_ptr<place[]> places_;
  std::vector<std::pair<std::size_t, const name*>> fields_;  // where each begins in a place
  std::atomic<std::size_t> next_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#endif
