// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include <penstock/core/version.hpp>

#if PENSTOCK_CHECKED
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <tuple>

#include <penstock/core/error.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define PENSTOCK_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PENSTOCK_ADDRESS_SANITIZER
#endif
#endif
#if defined(PENSTOCK_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif
#endif

#include <penstock/core/support/host_device_begin.hpp>

/// @file
/// The checked build, which `-DPENSTOCK_CHECKED=1` enables for the whole program. The CMake
/// target defines the macro in Debug builds. Views grow by two words, and each access through a
/// view checks the lease. docs/checked.md lists the errors that a checked build reports. In other
/// builds, the same names exist but are empty, so views and leases do not grow, and calls compile
/// to nothing.

#if PENSTOCK_CHECKED
/// Returns true if the calling thread is running a kernel. Defined only by programs that run
/// kernels on the host, such as the tests with the fake CUDA runtime in tests/fake_cuda. In all
/// other programs the address of this function is null.
extern "C" [[gnu::weak, gnu::visibility("default")]] bool penstock_runs_device_code() noexcept;
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The message for the use of a lease that does not hold a batch.
inline constexpr const char* lease_without_batch =
    "a lease was used that holds no batch: it was moved from, released by release_after, never "
    "held a batch, or was captured by reference in work that ran after the loop body. Capture the "
    "view, "
    "`x = ps::get<\"x\">(batch)`";

/// Prints a one-line message and aborts, before the program uses memory that it does not own.
/// Active in every build.
[[noreturn, gnu::cold, gnu::noinline]] inline void wrong_use(const char* message) noexcept {
  std::fprintf(stderr, "penstock: %s\n", message);
  std::fflush(stderr);
  std::abort();
}

/// Reports the use of a lease that does not hold a batch.
[[noreturn, gnu::cold, gnu::noinline]] inline void no_batch() noexcept {
  wrong_use(lease_without_batch);
}

}  // namespace detail

#if PENSTOCK_CHECKED

/// Reports an error that a checked build has detected: writes one line to stderr and aborts.
/// Debuggers can set a breakpoint on this function.
[[noreturn, gnu::noinline]] inline void checked_failure(const char* message) noexcept {
  std::fprintf(stderr, "penstock, checked build: %s\n", message);
  std::fflush(stderr);
  std::abort();
}

namespace detail {

inline constexpr bool checked = true;

/// Returns the thread-local flag that is true on threads of CPU streams.
[[nodiscard, gnu::visibility("default")]] inline bool& runs_a_stream() noexcept {
  thread_local bool runs = false;
  return runs;
}
/// Marks the calling thread as a thread of a CPU stream.
inline void mark_stream_thread() noexcept { runs_a_stream() = true; }

/// Returns the ID of the calling thread, unique in the process and never 0. The symbol is visible,
/// so that shared libraries with hidden symbols share one counter.
[[nodiscard, gnu::visibility("default")]] inline std::uint64_t this_thread() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

/// The state of a lease, which views check. Records are reused for other leases but never freed,
/// because a stale view may read a record at any time. For the same reason, all members are atomic.
class lease_record {
 public:
  /// Begins the lease `serial` for batch `index` of `epoch`. The serial number must be unique in
  /// the process.
  void begin(std::uint64_t serial, std::uint64_t epoch, std::uint64_t index) noexcept {
    named_.store(0, std::memory_order_relaxed);
    epoch_.store(epoch, std::memory_order_relaxed);
    index_.store(index, std::memory_order_relaxed);
    user_.store(0, std::memory_order_relaxed);
    ended_by_.store(0, std::memory_order_relaxed);
    seen_in_body_.store(false, std::memory_order_relaxed);
    named_.store(serial, std::memory_order_release);
    alive_.store(serial, std::memory_order_release);
  }

  /// Marks the data of lease `serial` as complete, either immediately or when the copy has
  /// finished. A late call for an earlier lease has no effect.
  void arrive(std::uint64_t serial) noexcept {
    std::uint64_t last = arrived_.load(std::memory_order_relaxed);
    while (last < serial && !arrived_.compare_exchange_weak(last, serial, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
    }
  }

  /// Returns true if a thread that does not belong to a stream has accessed the data.
  [[nodiscard]] bool was_seen_in_body() const noexcept {
    return seen_in_body_.load(std::memory_order_relaxed);
  }

  /// Checks that lease `serial` is held. Called when a view is used.
  void require_alive(std::uint64_t serial) const noexcept {
    if (alive_.load(std::memory_order_acquire) == serial &&
        ended_by_.load(std::memory_order_relaxed) != this_thread()) {
      return;
    }
    fail(serial,
         runs_a_stream()
             ? "a view was used after its lease had ended. Work on a stream used the view, and the "
               "end of the lease did not wait for that work, because the feed has no stream or a "
               "different one. "
               "Pass this stream to the feed (transfer feed{loader, stream}), add a second stream "
               "with also_used_on(stream), or keep the lease as long as its views are used"
             : "a view was used after its lease had ended. Keep the lease as long as its views are "
               "used (move it out of the loop), or copy the data out");
  }

  /// Checks that the copy of lease `serial` is complete. Called when an element of a view is
  /// accessed.
  void require_data(std::uint64_t serial) const noexcept {
    record_address(serial);
    if (arrived_.load(std::memory_order_acquire) >= serial) return;
    fail(serial,
         "a view was read before the batch's copy was complete. The feed has a stream: read the "
         "view in work on that stream, synchronize first, or omit the stream (transfer "
         "feed{loader}) if the loop's body is the step");
  }

  /// Checks that lease `serial` is held, and records the access to the data. Called when the data
  /// address of a view is taken, which may be for work on a stream.
  void record_address(std::uint64_t serial) const noexcept {
    require_alive(serial);
    if (!runs_a_stream() && !was_seen_in_body()) {
      seen_in_body_.store(true, std::memory_order_relaxed);
    }
  }

  /// Checks that only one thread uses the lease. Called when the lease is used.
  void require_one_user(std::uint64_t serial) noexcept {
    std::uint64_t user = 0;
    if (user_.compare_exchange_strong(user, this_thread(), std::memory_order_relaxed) ||
        user == this_thread()) {
      return;
    }
    fail(serial,
         "two threads use its lease. In work on a stream, capture the view, `x = "
         "ps::get<\"x\">(batch)`, not the batch. Threads may share a view, or move the lease to "
         "the thread that continues with it");
  }

  /// Transfers the lease to another thread. Called when the lease is moved. The next thread that
  /// uses the lease becomes the user.
  void pass_on() noexcept { user_.store(0, std::memory_order_relaxed); }

  /// Ends the lease, which invalidates the views.
  void end() noexcept { alive_.store(0, std::memory_order_release); }

  /// Ends the lease on the host while work queued on `streams` streams may still use the views. If
  /// the calling thread belongs to a stream, that thread may also use the views, because its work
  /// may have been queued before the lease ended.
  void end_behind(std::size_t streams) noexcept {
    streams_.store(streams, std::memory_order_relaxed);
    if (!runs_a_stream()) ended_by_.store(this_thread(), std::memory_order_relaxed);
  }
  /// Records that a stream has reached the end of the lease. Returns true for the last stream to do
  /// so. The work of all streams is then visible to the caller.
  [[nodiscard]] bool is_behind_last_stream() noexcept {
    return streams_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// Reports an error in the use of lease `serial`.
  [[noreturn]] void fail(std::uint64_t serial, const char* what) const noexcept {
    // Acquire ordering, because `named_` must be read after `epoch_` and `index_`. `named_` is the
    // serial number of the lease that they describe.
    const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
    const std::uint64_t index = index_.load(std::memory_order_acquire);
    const bool is_named = named_.load(std::memory_order_relaxed) == serial;
    checked_failure((is_named ? str_cat({"batch ", index, " of epoch ", epoch, ": ", what})
                              : str_cat({"an earlier batch: ", what}))
                        .c_str());
  }

 private:
  std::atomic<std::uint64_t> alive_{0};  // serial number of the lease whose views may be used, or 0
  // Serial number of the lease that epoch_ and index_ describe.
  std::atomic<std::uint64_t> named_{0};
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> index_{0};
  // ID of the thread that uses the lease, or 0 if the lease is unused or was moved.
  std::atomic<std::uint64_t> user_{0};
  // ID of the non-stream thread that ended a device lease, or 0.
  std::atomic<std::uint64_t> ended_by_{0};
  // Serial number of the newest lease whose data is complete.
  std::atomic<std::uint64_t> arrived_{0};
  // True if a thread outside all streams has accessed the data.
  mutable std::atomic<bool> seen_in_body_{false};
  // Number of streams whose work may still use an ended lease.
  std::atomic<std::size_t> streams_{0};

  friend class lease_records;
  // Next element in the list of `lease_records`, guarded by the list mutex.
  lease_record* next_at_rest_ = nullptr;
};

/// All records of the process. A record stays idle for at least a thousand other leases before it
/// is reused, so a stale view can still report its batch.
class lease_records {
 public:
  /// Returns the records of the process, which all shared libraries share. The records are never
  /// destroyed, because views may be used until the process ends.
  [[nodiscard, gnu::visibility("default")]] static lease_records& all() {
    static auto* const records = new lease_records;
    return *records;
  }

  /// Begins a lease for batch `index` of `epoch`. Returns the record and the serial number of the
  /// lease. May throw std::bad_alloc. `release` never allocates.
  [[nodiscard]] std::pair<lease_record*, std::uint64_t> take(std::uint64_t epoch,
                                                             std::uint64_t index) {
    const std::lock_guard lock{mutex_};
    lease_record* record = nullptr;
    if (resting_ > at_rest) {
      record = std::exchange(first_, first_->next_at_rest_);
      --resting_;
    } else {
      record = &records_.emplace_back();
    }
    record->begin(++serial_, epoch, index);
    return {record, serial_};
  }

  /// Makes the record of an ended lease available for reuse.
  void release(lease_record* record) noexcept {
    const std::lock_guard lock{mutex_};
    record->next_at_rest_ = nullptr;
    (resting_++ == 0 ? first_ : last_->next_at_rest_) = record;
    last_ = record;
  }

 private:
  static constexpr std::size_t at_rest = 1024;

  std::mutex mutex_;  // guards all other members
  std::deque<lease_record> records_;
  lease_record* first_ = nullptr;  // longest idle record
  // Most recently released record; unspecified while the list is empty.
  lease_record* last_ = nullptr;
  std::size_t resting_ = 0;
  std::uint64_t serial_ = 0;
};

/// Returns true if the calling thread is running device code, which is not checked.
[[nodiscard]] inline bool runs_device_code() noexcept {
  return penstock_runs_device_code != nullptr && penstock_runs_device_code();
}

/// A reference from a view to its lease. Empty if the view does not belong to a lease.
class lease_tag {
 public:
  lease_tag() = default;
  lease_tag(const lease_record* record, std::uint64_t serial) noexcept
      : record_(record), serial_(serial) {}

  /// Checks that the lease is held. Called when the view is used on the host.
  PENSTOCK_HOST_DEVICE constexpr void require_alive() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->require_alive(serial_);
#endif
  }
  /// Checks that the lease is held and that the copy is complete. Called when an element is
  /// accessed.
  PENSTOCK_HOST_DEVICE constexpr void require_data() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->require_data(serial_);
#endif
  }
  /// Checks that the lease is held, and records the access to the data. Called when the data
  /// address is taken.
  PENSTOCK_HOST_DEVICE constexpr void record_address() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->record_address(serial_);
#endif
  }

 private:
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr bool is_watched() const noexcept {
#if defined(__CUDA_ARCH__)
    return false;
#else
    return record_ != nullptr && !runs_device_code();
#endif
  }

  const lease_record* record_ = nullptr;
  std::uint64_t serial_ = 0;
};

/// Fills free memory with a pattern that users recognize as invalid data.
inline void poison(void* data, std::size_t bytes) noexcept { std::memset(data, 0xFF, bytes); }

#if defined(PENSTOCK_ADDRESS_SANITIZER)
inline constexpr bool forbids_memory = true;  // true because `forbid` has an effect in this build
#else
inline constexpr bool forbids_memory = false;
#endif

/// Marks the memory as inaccessible for AddressSanitizer.
inline void forbid([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  ASAN_POISON_MEMORY_REGION(data, bytes);
#endif
}
/// Makes memory accessible again after a call of `forbid`.
inline void allow([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
#endif
}

/// A device lease that has ended on the host, while work on streams may still use its memory.
class ended_lease {
 public:
  explicit ended_lease(lease_record* record) noexcept : record_(record) {}

  /// Queues the end of the lease on `stream`. Must be called once per stream. The last stream to
  /// reach the end calls `then`. Does nothing on streams that cannot run host functions, such as
  /// CUDA streams, because device code is not checked.
  template <class Stream, class Then>
  void behind(Stream stream, const Then& then) const {
    const auto end = [record = record_, then]() noexcept {
      if (!record->is_behind_last_stream()) return;
      record->end();
      then();
      lease_records::all().release(record);
    };
    // Does not wait for room in the queue, because other threads may make room only after the
    // caller continues.
    if constexpr (requires { stream.launch_without_wait(end); }) {
      stream.launch_without_wait(end);
    } else if constexpr (requires { stream.launch(end); }) {
      stream.launch(end);
    } else if (record_->is_behind_last_stream()) {
      lease_records::all().release(record_);
    }
  }

 private:
  lease_record* record_;
};

/// The data that a checked build stores with each lease. Moves with the lease.
class lease_guard {
 public:
  lease_guard() = default;
  /// Begins a lease with complete data for batch `index` of `epoch`. May throw std::bad_alloc, so
  /// construct the guard before the lease, while the error can still be reported.
  lease_guard(std::uint64_t epoch, std::uint64_t index) {
    std::tie(record_, serial_) = lease_records::all().take(epoch, index);
    record_->arrive(serial_);
  }
  /// Begins a lease for batch `index` of `epoch`, whose data is complete once the work queued on
  /// `copies` so far has finished. Must be called before the copy event is recorded. Streams that
  /// cannot run host functions are not tracked, so their data counts as complete immediately.
  template <class Stream>
  lease_guard(std::uint64_t epoch, std::uint64_t index, Stream copies) {
    std::tie(record_, serial_) = lease_records::all().take(epoch, index);
    const auto arrive = [record = record_, serial = serial_]() noexcept { record->arrive(serial); };
    if constexpr (requires { copies.launch(arrive); }) {
      copies.launch(arrive);
    } else {
      arrive();
    }
  }
  lease_guard(lease_guard&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), serial_(other.serial_) {
    if (record_ != nullptr) record_->pass_on();
  }
  lease_guard& operator=(lease_guard&& other) noexcept {
    record_ = std::exchange(other.record_, nullptr);
    serial_ = other.serial_;
    if (record_ != nullptr) record_->pass_on();
    return *this;
  }

  /// Checks that the lease holds a batch and that only one thread uses the lease.
  void use() const noexcept {
    if (record_ == nullptr) {
      checked_failure(lease_without_batch);
    }
    record_->require_one_user(serial_);
  }

  /// Returns the tag for views of the lease.
  [[nodiscard]] lease_tag tag() const noexcept { return {record_, serial_}; }

  /// Returns true if a thread that does not belong to a stream has accessed the data.
  [[nodiscard]] bool was_seen_in_body() const noexcept { return record_->was_seen_in_body(); }

  /// Reports an error and aborts.
  [[noreturn]] void fail(const char* what) const noexcept { record_->fail(serial_, what); }

  /// Ends the lease, if any, and invalidates its views.
  void end() noexcept {
    if (record_ == nullptr) return;
    record_->end();
    lease_records::all().release(std::exchange(record_, nullptr));
  }

  /// Ends the lease on the host immediately. On each of `streams` streams, the lease ends when the
  /// stream reaches the end that the caller queues through the returned object.
  [[nodiscard]] ended_lease end_behind(std::size_t streams) noexcept {
    record_->end_behind(streams);
    return ended_lease{std::exchange(record_, nullptr)};
  }

 private:
  lease_record* record_ = nullptr;
  std::uint64_t serial_ = 0;
};

/// Checks that at most one thread at a time is inside the gate. Copies of a gate share this check.
class call_gate {
 public:
  /// Creates an empty gate, which supports only assignment and destruction.
  call_gate() = default;
  explicit call_gate(std::in_place_t) : busy_(std::make_shared<std::atomic<bool>>(false)) {}

  class inside {
   public:
    explicit inside(const std::shared_ptr<std::atomic<bool>>& busy) noexcept : busy_(busy) {
      if (!busy_->exchange(true, std::memory_order_relaxed)) return;
      checked_failure(
          "two threads advanced one loop at the same time. Let one thread take the batches and "
          "move them to the others");
    }
    inside(inside&&) = delete;
    ~inside() { busy_->store(false, std::memory_order_relaxed); }

   private:
    std::shared_ptr<std::atomic<bool>> busy_;
  };

  /// Enters the gate. The calling thread remains inside for the lifetime of the returned object.
  [[nodiscard]] inside enter() const noexcept { return inside{busy_}; }

 private:
  std::shared_ptr<std::atomic<bool>> busy_;
};

}  // namespace detail

#else

namespace detail {

inline constexpr bool checked = false;

inline void mark_stream_thread() noexcept {}

class lease_tag {
 public:
  PENSTOCK_HOST_DEVICE constexpr void require_alive() const noexcept {}
  PENSTOCK_HOST_DEVICE constexpr void require_data() const noexcept {}
  PENSTOCK_HOST_DEVICE constexpr void record_address() const noexcept {}
};

inline constexpr bool forbids_memory = false;
inline void poison(void*, std::size_t) noexcept {}
inline void forbid(const void*, std::size_t) noexcept {}
inline void allow(const void*, std::size_t) noexcept {}

class ended_lease {
 public:
  template <class Stream, class Then>
  constexpr void behind(const Stream&, const Then&) const noexcept {}
};

class lease_guard {
 public:
  constexpr lease_guard() = default;
  constexpr lease_guard(std::uint64_t, std::uint64_t) noexcept {}
  template <class Stream>
  constexpr lease_guard(std::uint64_t, std::uint64_t, const Stream&) noexcept {}
  constexpr void use() const noexcept {}
  [[nodiscard]] constexpr lease_tag tag() const noexcept { return {}; }
  [[nodiscard]] constexpr bool was_seen_in_body() const noexcept { return false; }
  constexpr void fail(const char*) const noexcept {}
  constexpr void end() noexcept {}
  [[nodiscard]] constexpr ended_lease end_behind(std::size_t) noexcept { return {}; }
};

class call_gate {
 public:
  constexpr call_gate() = default;
  constexpr explicit call_gate(std::in_place_t) noexcept {}
  struct inside {};
  [[nodiscard]] constexpr inside enter() const noexcept { return {}; }
};

}  // namespace detail

#endif

static_assert(std::is_trivially_copyable_v<detail::lease_tag>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
#undef PENSTOCK_ADDRESS_SANITIZER
