// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Deletes what the last lease has held: slots, whose destructor waits for streams. Where that is
/// the work of one of them, which would wait for itself, the stream does it after all that it was
/// given before. No event of the slots can be recorded later than that: no lease is left.
template <class StreamRef>
struct delete_outside_of_work {
  template <class T>
  void operator()(T* last) const noexcept {
    run(last, [](void* one) noexcept { delete static_cast<T*>(one); });
  }
  static void run(void* last, void (*destroy)(void*) noexcept) noexcept;
};

template <class StreamRef>
void delete_outside_of_work<StreamRef>::run(void* last, void (*destroy)(void*) noexcept) noexcept {
  if constexpr (requires { StreamRef::running(); }) {
    if (const auto stream = StreamRef::running()) {
      try {
        stream->launch([=]() noexcept { destroy(last); });
      } catch (...) {  // no memory for the launch: it stays, since work may still use it
      }
      return;
    }
  }
  destroy(last);
}

/// An object that leases share, on the heap. Its destructor may wait for work on streams of
/// `StreamRef`.
template <class T, class StreamRef, class... Args>
[[nodiscard]] std::shared_ptr<T> shared_by_leases(Args&&... args) {
  return std::shared_ptr<T>{new T(std::forward<Args>(args)...),
                            delete_outside_of_work<StreamRef>{}};
}

/// The compile-time message for copying a lease.
template <class Lease>
constexpr void refuse_copy_of_lease() noexcept {
  static_assert(
      sizeof(Lease) == 0,
      "penstock: a batch is a lease and is not copied: loop with `auto& batch`; to keep it, "
      "std::move(batch)");
}

}  // namespace detail

/// A lease of a slot of `Slots`, which provides `data` and `layout`, whatever the record of the
/// batch in it. The derived classes define how a lease ends.
template <class Slots, class SlotNumber>
class slot_lease {
 public:
  /// Whether the lease holds a batch. An empty lease may be assigned to, destroyed, and asked which
  /// batch it held last; any use that needs a batch ends the program with a message.
  [[nodiscard]] explicit operator bool() const noexcept { return slots_ != nullptr; }

  /// The number of samples: `batch_size`, or fewer in the last batch of an epoch and where bad
  /// samples are skipped (`error_action::skip`).
  [[nodiscard]] std::size_t size() const noexcept { return info_.size; }
  /// The number of samples without padding (`partial_batch::pad`).
  [[nodiscard]] std::size_t valid() const noexcept { return info_.valid_size; }
  /// The batch's epoch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return info_.epoch; }
  /// The batch's number within its epoch.
  [[nodiscard]] std::uint64_t number() const noexcept { return info_.batch; }
  /// The batch's position in the sequence of all batches: `feed.state_at(batch.position())` is the
  /// state from which a loop resumes with this batch.
  [[nodiscard]] batch_position position() const noexcept { return {info_.epoch, info_.batch}; }
  /// The tag that the batch's source has set; 0 by default.
  [[nodiscard]] std::uint64_t tag() const noexcept { return info_.tag; }
  /// Sets the tag, which travels with the batch: for a source that passes on the batches of a
  /// loader.
  void set_tag(std::uint64_t word) noexcept { info_.tag = word; }
  /// Identifies the batch.
  [[nodiscard]] const batch_info& info() const noexcept { return info_; }
  /// The slot that holds the batch, in [0, number of slots). A slot's addresses never change,
  /// except on the CPU device in a checked build (docs/checked.md).
  [[nodiscard]] std::size_t slot() const noexcept { return slot_; }

  /// The memory of the batch, all fields, see `batch_layout`: on the host for a `host_batch`, on
  /// the device for a `device_batch`.
  [[nodiscard]] std::byte* data() noexcept {
    use();
    return slots_->data(slot_);
  }
  /// The memory of the batch, for reading.
  [[nodiscard]] const std::byte* data() const noexcept {
    use();
    return slots_->data(slot_);
  }

 protected:
  /// @cond derived
  slot_lease() = default;
  slot_lease(std::shared_ptr<Slots>&& ring, SlotNumber slot, const batch_info& info,
             detail::lease_guard guard) noexcept
      : slots_(std::move(ring)),
        slot_(slot),
        info_(info),
        guard_(std::move(guard)) {}  // NOLINT: trivial, except in a checked build
  slot_lease(slot_lease&&) noexcept = default;
  slot_lease& operator=(slot_lease&&) noexcept = default;
  ~slot_lease() = default;

  /// Checks that the lease holds a batch.
  void use() const noexcept {
    guard_.use();
    if (slots_ == nullptr) detail::no_batch();
  }

  std::shared_ptr<Slots> slots_;  // null: an empty lease
  SlotNumber slot_ = 0;
  batch_info info_;
  [[no_unique_address]] detail::lease_guard guard_;
  /// @endcond
};

/// A lease of a batch of `Record`: `Base`, derived from `slot_lease`, with views of the fields.
template <record_type Record, class Base>
class lease : public Base {
 public:
  using record_type = Record;

  /// All samples of the batch.
  [[nodiscard]] batch_view<Record> view() noexcept {
    return {this->data(), layout(), 0, this->size(), this->guard_.tag()};
  }
  /// All samples of the batch, for reading.
  [[nodiscard]] const_batch_view<Record> view() const noexcept {
    return {this->data(), layout(), 0, this->size(), this->guard_.tag()};
  }

  /// A `tensor_view` of one field, with the samples as outermost dimension.
  template <name Name>
  [[nodiscard]] auto get() noexcept {
    return view().template get<Name>();
  }
  /// A `tensor_view` of one field, for reading.
  template <name Name>
  [[nodiscard]] auto get() const noexcept {
    return view().template get<Name>();
  }

 protected:
  /// @cond derived
  using Base::Base;
  lease() = default;
  lease(lease&&) noexcept = default;
  lease& operator=(lease&&) noexcept = default;
  ~lease() = default;
  /// @endcond

 private:
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept {
    return detail::layout_as<Record>(this->slots_->layout());
  }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
