// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Deletes an object after the last lease that shared it. The destructor of the object waits for
/// the streams that use its slots. If the last lease ends in work on such a stream, the stream
/// would wait for itself. In that case, the deletion is queued on the stream, after all work that
/// is already queued. No slot event can be recorded later, because no lease is left. An object that
/// must not be destroyed in a child created by fork() has a member `is_in_child()`, which returns
/// true there.
template <class StreamRef>
struct delete_outside_of_work {
  template <class T>
  void operator()(T* last) const noexcept {
    if constexpr (requires { static_cast<bool>(last->is_in_child()); }) {
      if (last->is_in_child()) return;
    }
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
      } catch (...) {
        // If the memory for queuing the deletion cannot be allocated, the object leaks, because
        // work may still use the object.
      }
      return;
    }
  }
  destroy(last);
}

/// Creates an object on the heap that leases share. The object's destructor may wait for work on
/// streams of type `StreamRef`.
template <class T, class StreamRef, class... Args>
[[nodiscard]] std::shared_ptr<T> shared_by_leases(Args&&... args) {
  return std::shared_ptr<T>{new T(std::forward<Args>(args)...),
                            delete_outside_of_work<StreamRef>{}};
}

/// Rejects the copy of a lease at compile time, with a message.
template <class Lease>
constexpr void reject_copy_of_lease() noexcept {
  static_assert(sizeof(Lease) == 0,
                "penstock: a batch is a lease and cannot be copied: loop with `auto& batch`; to "
                "keep the batch, use std::move(batch)");
}

}  // namespace detail

/// A lease of a slot in `Ring`, without the record type of the batch. A lease is movable but not
/// copyable, and shares ownership of the ring. When a lease ends, it returns the slot to the ring.
/// Only one thread at a time may use a lease. A lease may end on any thread. Derived classes
/// provide access to additional batch information.
///
/// A ring has these members:
///
/// - `slot_number`, the type of a slot index;
/// - `data(slot)`, and `layout()`, or `layout_of(slot)` if the slots differ;
/// - `close_lease(slot, info, guard)`, called when the host no longer uses the slot;
/// - `release(slot)`, which allows the slot to be refilled after all work that may still use it;
/// - optionally `begin_lease(slot)`; and, if leases are handed to streams, `info(slot)` and
///   `hand_out(slot, stream)`, which returns the guard.
template <class Ring>
class slot_lease {
 public:
  /// The type of a slot index.
  using slot_number = typename Ring::slot_number;

  /// Creates an empty lease.
  slot_lease() = default;
  /// Creates a lease of `slot`, which contains the batch `info`. `guard` tracks the lease in a
  /// checked build.
  slot_lease(std::shared_ptr<Ring> ring, slot_number slot, const batch_info& info,
             detail::lease_guard guard) noexcept
      : slots_(std::move(ring)),
        slot_(slot),
        info_(info),
        guard_(std::move(guard)) {  // NOLINT: trivial, except in a checked build
    if constexpr (requires { slots_->begin_lease(slot); }) slots_->begin_lease(slot);
  }
  /// Creates a lease of `slot`, which contains the batch `info`. A checked build may throw
  /// std::bad_alloc, in which case the caller still owns the slot.
  slot_lease(std::shared_ptr<Ring> ring, slot_number slot,
             const batch_info& info) noexcept(!detail::checked)
      : slot_lease(std::move(ring), slot, info, detail::lease_guard{info.epoch, info.batch}) {}
  /// Creates a lease of `slot`, which ends in the order of `stream`. The ring provides the
  /// `batch_info`.
  template <class Stream>
    requires requires(Ring& ring, slot_number slot, Stream& stream) { ring.hand_out(slot, stream); }
  slot_lease(std::shared_ptr<Ring> ring, slot_number slot, Stream&& stream) noexcept
      : slots_(std::move(ring)),
        slot_(slot),
        info_(slots_->info(slot)),
        guard_(slots_->hand_out(slot, stream)) {}
  slot_lease(slot_lease&&) noexcept = default;
  /// Converts the lease of a ring derived from `Ring`.
  template <std::derived_from<Ring> Derived>
  explicit slot_lease(slot_lease<Derived>&& other) noexcept
      : slots_(std::move(other.slots_)),
        slot_(other.slot_),
        info_(other.info_),
        guard_(std::move(other.guard_)) {}
  slot_lease& operator=(slot_lease&& other) noexcept {
    if (this != &other) {
      release();
      slots_ = std::move(other.slots_);
      slot_ = other.slot_;
      info_ = other.info_;
      guard_ = std::move(other.guard_);
    }
    return *this;
  }
  ~slot_lease() { release(); }

  /// Returns true if the lease holds a batch. An empty lease supports assignment, destruction, and
  /// access to the information of the last batch. Any other use aborts with a message.
  [[nodiscard]] explicit operator bool() const noexcept { return slots_ != nullptr; }

  /// Returns the number of samples. The last batch of an epoch may have fewer than `batch_size`
  /// samples, as may a batch with skipped samples (`error_action::skip`).
  [[nodiscard]] std::size_t size() const noexcept { return info_.size; }
  /// Returns the number of samples without padding (`last_batch::pad`).
  [[nodiscard]] std::size_t valid() const noexcept { return info_.valid_size; }
  /// Returns the epoch of the batch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return info_.epoch; }
  /// Returns the batch index within the epoch.
  [[nodiscard]] std::uint64_t number() const noexcept { return info_.batch; }
  /// Returns the batch position in the sequence of all batches. A loop that starts from
  /// `feed.state_at(batch.position())` resumes with this batch.
  [[nodiscard]] batch_position position() const noexcept { return {info_.epoch, info_.batch}; }
  /// Returns the tag set by the batch source, 0 by default.
  [[nodiscard]] std::uint64_t tag() const noexcept { return info_.tag; }
  /// Returns the number of batches that were dropped immediately before this batch because the
  /// consumer was too slow. Always 0 unless the source may drop batches, such as an `intake`.
  /// Samples that a loader could not read are counted in `info().skipped`.
  [[nodiscard]] std::uint64_t skipped() const noexcept { return info_.dropped; }
  /// Sets the tag, which is copied with the batch. Intended for a source that forwards the batches
  /// of a loader.
  void set_tag(std::uint64_t word) noexcept { info_.tag = word; }
  /// Returns the description of the batch.
  [[nodiscard]] const batch_info& info() const noexcept { return info_; }
  /// Returns the index of the slot that holds the batch. The addresses of a slot never change.
  [[nodiscard]] std::size_t slot() const noexcept { return slot_; }

  /// Returns the memory of the batch with all fields (see `batch_layout`), on the host for a
  /// `host_batch`, and on the device for a `device_batch`.
  [[nodiscard]] std::byte* data() noexcept {
    use();
    return slots_->data(slot_);
  }
  /// Returns the memory of the batch, read-only.
  [[nodiscard]] const std::byte* data() const noexcept {
    use();
    return slots_->data(slot_);
  }

 protected:
  /// @cond derived
  template <class>
  friend class slot_lease;

  /// Aborts with a message unless the lease holds a batch.
  void use() const noexcept {
    guard_.use();
    if (slots_ == nullptr) detail::no_batch();
  }
  /// Ends the lease, if any.
  void release() noexcept {
    if (slots_ != nullptr) leave()->release(slot_);
  }
  /// Ends the use of the slot on the host and empties the lease. The caller returns the slot to the
  /// ring.
  [[nodiscard]] std::shared_ptr<Ring> leave() noexcept {
    slots_->close_lease(slot_, info_, guard_);
    return std::move(slots_);
  }

  std::shared_ptr<Ring> slots_;  // null if the lease is empty
  slot_number slot_ = 0;
  batch_info info_;
  [[no_unique_address]] detail::lease_guard guard_;
  /// @endcond
};

/// A lease of a batch of `Record`. Adds field views to `Base`, which is a `slot_lease` or a derived
/// class.
template <record_type Record, class Base>
class lease : public Base {
 public:
  using record_type = Record;

  using Base::Base;
  /// Creates an empty lease.
  lease() = default;
  /// Creates a typed lease from `untyped`, which contains a batch of `Record`. Intended for the
  /// library.
  template <std::same_as<Base> Untyped>
  explicit lease(Untyped untyped) noexcept : Base(std::move(untyped)) {}
  lease(lease&&) noexcept = default;
  /// Rejects copies, such as `auto batch` in a loop, with a compile-time message.
  template <std::same_as<lease> Lease>
  lease(Lease&) {  // NOLINT: implicit, as a copy is
    detail::reject_copy_of_lease<Lease>();
  }
  lease& operator=(lease&&) noexcept = default;
  ~lease() = default;

  /// Returns a view of all samples.
  [[nodiscard]] batch_view<Record> view() noexcept {
    return {this->data(), layout(), 0, this->size(), this->guard_.tag()};
  }
  /// Returns a read-only view of all samples.
  [[nodiscard]] const_batch_view<Record> view() const noexcept {
    return {this->data(), layout(), 0, this->size(), this->guard_.tag()};
  }

  /// Returns a view of a field, as a `ragged_view` if the field is ragged, and otherwise as a
  /// `tensor_view` whose outermost dimension counts the samples.
  template <name Name>
  [[nodiscard]] auto get() noexcept {
    return view().template get<Name>();
  }
  /// Returns a read-only view of a field.
  template <name Name>
  [[nodiscard]] auto get() const noexcept {
    return view().template get<Name>();
  }

  /// Returns a read-only view of the batch in host memory, which the host can read while the device
  /// uses its copy. Requires `transfer_options::keep_host`. `Source` is the record of the transfer
  /// source. Specify it if a transform changes the record, as in `batch.host<digit>()`. The view is
  /// valid until the lease ends. The end of the lease does not wait for stream work that reads the
  /// view. If batches are not copied (`zero_copy`), the view refers to the memory that the step
  /// uses.
  ///
  /// Throws `option_error` if `keep_host` is not set, and `std::logic_error` if `Source` is not the
  /// record of the transfer source.
  template <penstock::record_type Source = Record>
    requires requires(const Base& batch) { batch.template host_view<Source>(); }
  [[nodiscard]] const_batch_view<Source> host() const {
    return this->template host_view<Source>();
  }

  /// Declares that work on `stream` uses the batch in device memory, as in
  /// `get<"x">(batch.used_on(stream))`. A checked build reports a stream other than the lease's own
  /// stream if it was not passed to `also_used_on`. Work on such a stream is not ordered after the
  /// copy, and the reuse of the slot is not ordered after that work. Does nothing in other builds.
  template <class Stream>
    requires requires(const Base& batch, Stream& stream) { batch.require_ordered(stream); }
  lease& used_on(Stream&& stream) noexcept {
    this->require_ordered(stream);
    return *this;
  }
  /// Declares that work on `stream` reads the batch. Otherwise the same as the non-const overload.
  template <class Stream>
    requires requires(const Base& batch, Stream& stream) { batch.require_ordered(stream); }
  const lease& used_on(Stream&& stream) const noexcept {
    this->require_ordered(stream);
    return *this;
  }

 private:
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept {
    if constexpr (requires { this->slots_->layout_of(this->slot_); }) {
      return detail::layout_as<Record>(this->slots_->layout_of(this->slot_));
    } else {
      return detail::layout_as<Record>(this->slots_->layout());
    }
  }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
