// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mutex>
#include <utility>

#include <penstock/core/checked.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a lease does not have.
struct nothing {};

template <class Batch>
inline constexpr bool has_view = requires(Batch& batch) {
  batch.view();
};
template <class Batch>
inline constexpr bool has_slot = requires(const Batch& batch) {
  batch.slot();
};
template <class Batch>
inline constexpr bool has_stream = requires(const Batch& batch) {
  batch.stream();
};

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
}  // namespace PENSTOCK_ABI
}  // namespace penstock
