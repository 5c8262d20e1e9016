// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A placeholder for members that a lease lacks.
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

/// Returns `get(batch)` if that is well-formed, otherwise `nothing`.
template <class Batch, class Get>
[[nodiscard]] auto got([[maybe_unused]] Batch& batch, [[maybe_unused]] Get get) noexcept {
  if constexpr (std::invocable<Get, Batch&>) {
    return get(batch);
  } else {
    return nothing{};
  }
}
template <class Batch>
[[nodiscard]] auto view_of(Batch& batch) noexcept {
  return got(batch, [](auto& of) -> decltype(of.view()) { return of.view(); });
}
template <class Batch>
[[nodiscard]] auto slot_of(const Batch& batch) noexcept {
  return got(batch, [](auto& of) -> decltype(of.slot()) { return of.slot(); });
}
template <class Batch>
[[nodiscard]] auto device_of(const Batch& batch) noexcept {
  return got(batch, [](auto& of) -> decltype(of.device()) { return of.device(); });
}
template <class Batch>
[[nodiscard]] auto pinned_of(const Batch& batch) noexcept {
  return got(batch, [](auto& of) -> decltype(of.pinned()) { return of.pinned(); });
}
template <class Batch>
[[nodiscard]] auto stream_of(const Batch& batch) noexcept {
  return got(batch, [](auto& of) -> decltype(of.stream()) { return of.stream(); });
}

/// The lease shared by the copies of a `shared_batch`, and its immutable properties, which any
/// thread may read. All other access must use `with_lease`.
template <class Batch>
class shared_lease {
  // Guards the lease, because `also_used_on` changes its list of streams. Ending the lease needs no
  // lock, because the reference count orders it after the last use.
  std::mutex mutex_;
  Batch batch_;

 public:
  /// Takes ownership of a non-empty lease.
  explicit shared_lease(Batch&& batch) : batch_(std::move(batch)) {}
  shared_lease(shared_lease&&) = delete;

  /// Calls `work` with the lease. Calls are serialized.
  template <class Work>
  decltype(auto) with_lease(Work work) {
    const std::lock_guard lock{mutex_};
    // In a checked build, a lease belongs to the first thread that uses it, until it is moved.
    // Moving the lease allows the calling thread to use it.
    if constexpr (checked) batch_ = Batch(std::move(batch_));
    return work(batch_);
  }

  const decltype(std::declval<Batch&>().data()) data = batch_.data();
  const decltype(view_of(std::declval<Batch&>())) view = view_of(batch_);
  [[no_unique_address]] const decltype(slot_of(std::declval<Batch&>())) slot = slot_of(batch_);
  [[no_unique_address]] const decltype(stream_of(std::declval<Batch&>())) stream =
      stream_of(batch_);
  [[no_unique_address]] const decltype(device_of(std::declval<Batch&>())) device =
      device_of(batch_);
  [[no_unique_address]] const decltype(pinned_of(std::declval<Batch&>())) pinned =
      pinned_of(batch_);
};

}  // namespace detail

/// A lease that can be shared. A lease must be move-only, convert to true while it holds a batch,
/// and provide the batch memory and identification. Models are `host_batch`, `device_batch`, and
/// every `source_batch`.
template <class B>
concept batch_lease =
    std::movable<B> && !std::copyable<B> && requires(B& batch, const B& constant) {
      typename B::record_type;
      static_cast<bool>(constant);
      { batch.data() } -> std::convertible_to<const std::byte*>;
      { constant.info() } -> std::convertible_to<batch_info>;
    };

/// A copyable lease, created by `share`. All copies hold the same batch, and destroying the last
/// copy, on any thread, ends the lease. Suits tensors of other libraries, callbacks and containers,
/// which need to copy the owner of their memory.
///
///     auto batch = ps::share(std::move(lease));          // one allocation
///     pool.post([batch] { use(ps::get<"x">(batch)); });  // the slot stays as long as the work
///
/// Thread-safe like `std::shared_ptr`: only one thread at a time may use a handle, but different
/// threads may use and destroy different copies concurrently. All copies share the batch memory, so
/// writes need exclusive access. Calls of `also_used_on` are serialized.
///
/// For device memory, ending the lease records the release on the lease's stream and on each stream
/// passed to `also_used_on`. All these streams must outlive the last copy. A CUDA host function
/// (cudaLaunchHostFunc) must not hold a copy, because such functions may not call CUDA.
///
/// An empty handle behaves like an empty lease.
template <batch_lease Batch>
class shared_batch {
  using shared_type = detail::shared_lease<Batch>;

 public:
  /// The lease type.
  using batch_type = Batch;
  using record_type = typename Batch::record_type;
  /// The type of references to the lease's streams, if the lease has streams.
  using stream_ref = typename detail::stream_of_lease<Batch>::type;

  /// Creates an empty handle.
  shared_batch() = default;
  /// Takes ownership of a lease. An empty lease results in an empty handle. Throws
  /// `std::bad_alloc`, in which case the caller keeps the lease.
  explicit shared_batch(Batch&& batch) : info_(batch.info()) {
    if (batch) shared_ = std::make_shared<shared_type>(std::move(batch));
  }

  /// Returns true if the handle holds a batch. An empty handle may be assigned to, destroyed, and
  /// queried for the identification of its last batch. Any other use of an empty handle terminates
  /// the program with a message.
  [[nodiscard]] explicit operator bool() const noexcept { return shared_ != nullptr; }

  /// Returns the number of samples in the batch.
  [[nodiscard]] std::size_t size() const noexcept { return info_.size; }
  /// Returns the number of samples without padding.
  [[nodiscard]] std::size_t valid() const noexcept { return info_.valid_size; }
  /// Returns the batch's epoch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return info_.epoch; }
  /// Returns the batch index within the epoch.
  [[nodiscard]] std::uint64_t number() const noexcept { return info_.batch; }
  /// Returns the identification of the batch.
  [[nodiscard]] const batch_info& info() const noexcept { return info_; }
  /// Returns the slot index of the batch, if the lease provides it.
  [[nodiscard]] std::size_t slot() const noexcept
    requires detail::has_slot<Batch>
  {
    return shared().slot;
  }

  /// Returns the batch memory, which is writable if the lease's memory is.
  [[nodiscard]] auto data() noexcept { return shared().data; }
  /// Returns the batch memory for reading.
  [[nodiscard]] const std::byte* data() const noexcept { return shared().data; }

  /// Returns a view of all samples, if the lease provides views.
  [[nodiscard]] auto view() noexcept
    requires detail::has_view<Batch>
  {
    return shared().view;
  }
  /// Returns a read-only view of all samples.
  [[nodiscard]] auto view() const noexcept
    requires detail::has_view<Batch>
  {
    using const_view = decltype(std::declval<const Batch&>().view());
    return const_view{shared().view};
  }
  /// Returns a `tensor_view` of a field, with the samples as the outermost dimension.
  template <name Name>
  [[nodiscard]] auto get() noexcept
    requires detail::has_view<Batch>
  {
    return view().template get<Name>();
  }
  /// Returns a read-only `tensor_view` of a field.
  template <name Name>
  [[nodiscard]] auto get() const noexcept
    requires detail::has_view<Batch>
  {
    return view().template get<Name>();
  }

  /// Returns the stream for which the batch was acquired (see `device_batch::stream`).
  [[nodiscard]] stream_ref stream() const noexcept
    requires detail::has_stream<Batch>
  {
    return shared().stream;
  }
  /// Makes `other` wait for the batch copy, and the slot release wait for `other` (see
  /// `device_batch::also_used_on`). A repeated stream waits again but is not recorded twice.
  /// Thread-safe, serialized by a lock of the batch. Propagates errors from the lease.
  void also_used_on(stream_ref other) const
    requires detail::has_stream<Batch>
  {
    shared().with_lease([&other](Batch& batch) { batch.also_used_on(other); });
  }
  /// Calls `device_batch::is_ordered_on`. Thread-safe.
  [[nodiscard]] bool is_ordered_on(stream_ref stream) const noexcept
    requires requires(const Batch& batch) { batch.is_ordered_on(stream); }
  {
    return shared().with_lease([&](const Batch& batch) { return batch.is_ordered_on(stream); });
  }
  /// Calls `device_batch::record_result`. Only `results` calls this.
  void record_result(const void* owner, const void* data) const
    requires requires(const Batch& batch) { batch.record_result(owner, data); }
  {
    shared().with_lease([&](const Batch& batch) { batch.record_result(owner, data); });
  }
  /// Calls `device_batch::results`. Only `step_graphs` calls this.
  [[nodiscard]] auto results() const noexcept
    requires requires(const Batch& batch) { batch.results(); }
  {
    return shared().with_lease([](const Batch& batch) { return batch.results(); });
  }
  /// Declares that work on `stream` uses the batch (see `device_batch::used_on`). A checked build
  /// reports an error if the stream is not ordered after the copy. Other builds do nothing.
  /// Thread-safe.
  shared_batch& used_on(stream_ref stream) noexcept
    requires detail::has_stream<Batch>
  {
    require_ordered(stream);
    return *this;
  }
  /// Declares that work on `stream` reads the batch.
  const shared_batch& used_on(stream_ref stream) const noexcept
    requires detail::has_stream<Batch>
  {
    require_ordered(stream);
    return *this;
  }

  /// Returns the device that owns the memory, if the lease provides it. Thread-safe.
  [[nodiscard]] auto device() const
    requires requires(const Batch& batch) { batch.device(); }
  {
    return shared().device;
  }
  /// Returns true if the memory is page-locked, if the lease provides this. Thread-safe.
  [[nodiscard]] bool pinned() const
    requires requires(const Batch& batch) { batch.pinned(); }
  {
    return shared().pinned;
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

  std::shared_ptr<shared_type> shared_;  // null if the handle is empty
  batch_info info_;
};

/// Converts a lease to a copyable handle: `auto batch = ps::share(std::move(lease))`. Allocates
/// once. Throws `std::bad_alloc`, in which case the caller keeps the lease.
template <class Batch>
[[nodiscard]] auto share(Batch&& batch) {
  static_assert(!std::is_lvalue_reference_v<Batch>,
                "penstock::share: it takes ownership of the lease: ps::share(std::move(batch))");
  if constexpr (!std::is_lvalue_reference_v<Batch>) {
    return shared_batch<Batch>{std::forward<Batch>(batch)};
  }
}

namespace detail {

/// Returns true if the calling thread is executing work of this stream.
template <class StreamRef>
[[nodiscard]] bool runs_work_of([[maybe_unused]] StreamRef stream) noexcept {
  if constexpr (requires {
                  { StreamRef::running() } -> std::same_as<std::optional<StreamRef>>;
                }) {
    return StreamRef::running() == std::optional{stream};
  } else {
    return false;
  }
}

/// Blocks until the copy of a batch in host memory is complete, so that this thread can read the
/// batch.
template <class Batch>
void wait_on_host([[maybe_unused]] const shared_batch<Batch>& batch) {
  if constexpr (requires { batch.stream().synchronize(); }) {
    if (!runs_work_of(batch.stream())) batch.stream().synchronize();
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
