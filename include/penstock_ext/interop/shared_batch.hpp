// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/name.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a lease does not have.
struct nothing {};

template <class Batch>
inline constexpr bool has_view = requires(Batch& batch) { batch.view(); };
template <class Batch>
inline constexpr bool has_slot = requires(const Batch& batch) { batch.slot(); };
template <class Batch>
inline constexpr bool has_stream = requires(const Batch& batch) { batch.stream(); };

template <class Batch>
struct stream_of_lease {
  using type = nothing;
};
template <class Batch>
  requires requires { typename Batch::stream_ref; }
struct stream_of_lease<Batch> {
  using type = typename Batch::stream_ref;
};

template <class Batch>
[[nodiscard]] auto view_of([[maybe_unused]] Batch& batch) noexcept {
  if constexpr (has_view<Batch>) {
    return batch.view();
  } else {
    return nothing{};
  }
}
template <class Batch>
[[nodiscard]] auto slot_of([[maybe_unused]] const Batch& batch) noexcept {
  if constexpr (has_slot<Batch>) {
    return batch.slot();
  } else {
    return nothing{};
  }
}
template <class Batch>
[[nodiscard]] auto device_of([[maybe_unused]] const Batch& batch) noexcept {
  if constexpr (requires { batch.device(); }) {
    return batch.device();
  } else {
    return nothing{};
  }
}
template <class Batch>
[[nodiscard]] auto pinned_of([[maybe_unused]] const Batch& batch) noexcept {
  if constexpr (requires { batch.pinned(); }) {
    return batch.pinned();
  } else {
    return nothing{};
  }
}
template <class Batch>
[[nodiscard]] auto stream_of([[maybe_unused]] const Batch& batch) noexcept {
  if constexpr (has_stream<Batch>) {
    return batch.stream();
  } else {
    return nothing{};
  }
}

/// The lease that the copies of a `shared_batch` have in common, and what it was asked once: that
/// does not change any more, so every thread reads it as it likes. All else goes through
/// `with_lease`.
template <class Batch>
class shared_lease {
 public:
  /// Takes a lease that holds a batch.
  explicit shared_lease(Batch&& batch)
      : batch_(std::move(batch)),
        data_(batch_.data()),
        view_(view_of(batch_)),
        slot_(slot_of(batch_)),
        stream_(stream_of(batch_)),
        device_(device_of(batch_)),
        pinned_(pinned_of(batch_)) {}
  shared_lease(shared_lease&&) = delete;

  /// What the lease said, which every thread may read.
  [[nodiscard]] auto data() const noexcept { return data_; }
  [[nodiscard]] const auto& view() const noexcept { return view_; }
  [[nodiscard]] auto slot() const noexcept { return slot_; }
  [[nodiscard]] auto stream() const noexcept { return stream_; }
  [[nodiscard]] const auto& device() const noexcept { return device_; }
  [[nodiscard]] auto pinned() const noexcept { return pinned_; }

  /// What `work` makes of the lease; one thread at a time.
  template <class Work>
  decltype(auto) with_lease(Work work) {
    const std::lock_guard lock{mutex_};
    // A checked build lets a thread use the lease that was used by none since it was moved.
    if constexpr (checked) batch_ = Batch(std::move(batch_));
    return work(batch_);
  }

 private:
  // Guards the lease while it lives: `also_used_on` keeps a list of streams. Its end needs no lock:
  // it comes after the last use, by the count of the copies.
  std::mutex mutex_;
  Batch batch_;
  decltype(std::declval<Batch&>().data()) data_;
  decltype(view_of(std::declval<Batch&>())) view_;
  [[no_unique_address]] decltype(slot_of(std::declval<Batch&>())) slot_;
  [[no_unique_address]] decltype(stream_of(std::declval<Batch&>())) stream_;
  [[no_unique_address]] decltype(device_of(std::declval<Batch&>())) device_;
  [[no_unique_address]] decltype(pinned_of(std::declval<Batch&>())) pinned_;
};

}  // namespace detail

/// A lease of a batch, to be shared: moved and not copied, true while it holds a batch, and with
/// the batch's memory and numbers. `host_batch` and `device_batch` are models, and so is every
/// `source_batch`.
template <class B>
concept batch_lease =
    std::movable<B> && !std::copyable<B> && requires(B& batch, const B& constant) {
      typename B::record_type;
      static_cast<bool>(constant);
      { batch.data() } -> std::convertible_to<const std::byte*>;
      { constant.info() } -> std::convertible_to<batch_info>;
    };

/// A lease that can be copied: all copies hold one batch, and the end of the last one ends the
/// lease, on whichever thread that is. Made by `share`. For tensors of other libraries, callbacks
/// and containers, which copy what keeps their memory alive.
///
///     auto batch = ps::share(std::move(lease));          // one allocation
///     pool.post([batch] { use(ps::get<"x">(batch)); });  // the slot stays as long as the work
///
/// Threads: a handle is one thread's at a time, as a `std::shared_ptr` is; copies of it may be used
/// and destroyed by any threads at once. Their views are of the same memory: whoever writes it has
/// to be alone with what it writes. Those of `also_used_on` take turns.
///
/// Where the lease is of device memory, its end records the release on the lease's stream and on
/// each that a copy has named by `also_used_on`. Those streams must outlive the last copy, which a
/// CUDA stream's host functions may not hold: they may not call CUDA.
///
/// A handle without a batch behaves as an empty lease does.
template <batch_lease Batch>
class shared_batch {
  using shared_type = detail::shared_lease<Batch>;

 public:
  /// The lease that is shared.
  using batch_type = Batch;
  using record_type = typename Batch::record_type;
  /// What its streams are referred to by, where it has any.
  using stream_ref = typename detail::stream_of_lease<Batch>::type;

  /// An empty handle.
  shared_batch() = default;
  /// Takes over a lease; an empty one gives an empty handle. Throws `std::bad_alloc`, and the lease
  /// stays the caller's then.
  explicit shared_batch(Batch&& batch) : info_(batch.info()) {
    if (batch) shared_ = std::make_shared<shared_type>(std::move(batch));
  }

  /// Whether there is a batch. An empty handle may be assigned to, destroyed, and asked which batch
  /// it held last. Any use that needs a batch ends the program with a message.
  [[nodiscard]] explicit operator bool() const noexcept { return shared_ != nullptr; }

  /// The samples of the batch.
  [[nodiscard]] std::size_t size() const noexcept { return info_.size; }
  /// The samples of the batch without its padding.
  [[nodiscard]] std::size_t valid() const noexcept { return info_.valid_size; }
  /// The batch's epoch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return info_.epoch; }
  /// The batch's number within its epoch.
  [[nodiscard]] std::uint64_t number() const noexcept { return info_.batch; }
  /// Which batch it is.
  [[nodiscard]] const batch_info& info() const noexcept { return info_; }
  /// The slot that holds the batch, where the lease says it.
  [[nodiscard]] std::size_t slot() const noexcept
    requires detail::has_slot<Batch>
  {
    return shared().slot();
  }

  /// The memory of the batch, all fields: to write where the lease gives it to write.
  [[nodiscard]] auto data() noexcept { return shared().data(); }
  /// The memory of the batch, to read.
  [[nodiscard]] const std::byte* data() const noexcept { return shared().data(); }

  /// All samples of the batch, where the lease has views.
  [[nodiscard]] auto view() noexcept
    requires detail::has_view<Batch>
  {
    return shared().view();
  }
  /// All samples of the batch, to read.
  [[nodiscard]] auto view() const noexcept
    requires detail::has_view<Batch>
  {
    using const_view = decltype(std::declval<const Batch&>().view());
    return const_view{shared().view()};
  }
  /// A `tensor_view` of one field, the samples as outermost dimension.
  template <name Name>
  [[nodiscard]] auto get() noexcept
    requires detail::has_view<Batch>
  {
    return view().template get<Name>();
  }
  /// A `tensor_view` of one field, to read.
  template <name Name>
  [[nodiscard]] auto get() const noexcept
    requires detail::has_view<Batch>
  {
    return view().template get<Name>();
  }

  /// The stream that the batch was handed to, see `device_batch::stream`.
  [[nodiscard]] stream_ref stream() const noexcept
    requires detail::has_stream<Batch>
  {
    return shared().stream();
  }
  /// Makes `other` wait for the batch's copy too, and the release wait for `other`, see
  /// `device_batch::also_used_on`; named again it waits again and counts once. From any threads at
  /// once: one after the other, under a lock of the batch's own. Throws what the lease throws.
  void also_used_on(stream_ref other) const
    requires detail::has_stream<Batch>
  {
    shared().with_lease([&other](Batch& batch) { batch.also_used_on(other); });
  }
  /// Says that work on `stream` uses the batch, see `device_batch::used_on`: a checked build
  /// reports a stream that nothing orders. From any threads at once. Does nothing otherwise.
  shared_batch& used_on(stream_ref stream) noexcept
    requires detail::has_stream<Batch>
  {
    require_ordered(stream);
    return *this;
  }
  /// Says that work on `stream` reads the batch.
  const shared_batch& used_on(stream_ref stream) const noexcept
    requires detail::has_stream<Batch>
  {
    require_ordered(stream);
    return *this;
  }

  /// The device whose memory it is, where the lease says it. From any threads at once.
  [[nodiscard]] auto device() const
    requires requires(const Batch& batch) { batch.device(); }
  {
    return shared().device();
  }
  /// Whether the memory is page-locked, where the lease says it. From any threads at once.
  [[nodiscard]] bool pinned() const
    requires requires(const Batch& batch) { batch.pinned(); }
  {
    return shared().pinned();
  }

 private:
  [[nodiscard]] shared_type& shared() const noexcept {
    if (shared_ == nullptr) detail::no_batch();
    return *shared_;
  }

  void require_ordered([[maybe_unused]] const stream_ref& stream) const noexcept {
    if constexpr (detail::checked) {
      shared().with_lease([&stream](const Batch& batch) { batch.used_on(stream); });
    }
  }

  std::shared_ptr<shared_type> shared_;  // null: an empty handle
  batch_info info_;
};

/// Makes a lease one that can be copied: `auto batch = ps::share(std::move(lease))`. One
/// allocation; throws `std::bad_alloc`, and the lease stays the caller's then.
template <class Batch>
[[nodiscard]] auto share(Batch&& batch) {
  static_assert(!std::is_lvalue_reference_v<Batch>,
                "penstock::share: it takes the lease over: ps::share(std::move(batch))");
  if constexpr (!std::is_lvalue_reference_v<Batch>) {
    return shared_batch<Batch>{std::forward<Batch>(batch)};
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
