// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <penstock/core/version.hpp>

#include <cstdio>
#include <cstdlib>

#if PENSTOCK_CHECKED
#include <atomic>
#include <concepts>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

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

#if defined(__CUDACC__)
#define PENSTOCK_HOST_DEVICE __host__ __device__
#else
#define PENSTOCK_HOST_DEVICE
#endif

/// @file
/// The checked build: `-DPENSTOCK_CHECKED=1`, or the CMake option, for the whole program. For
/// development: views grow by two words, and each access through one looks at its lease. Without it all
/// of this is empty. What is reported, as one line on stderr with the batch's epoch and index, and ends
/// the program (`checked_failure`, where a debugger may stop):
///
/// - a view (`tensor_view`, `batch_view`, `sample`) that is used after its lease has ended. A lease that
///   is moved keeps its views. A view of a device batch is dead at once for the thread that ended the
///   lease, and for the streams that it was used on behind the work that they had got by then;
/// - a lease that is used (`get`, `view`, `data`, `release_after`, `also_used_on`) on a second thread
///   without a move in between, or that holds no batch. Any thread may end it, and use its views;
/// - two threads that advance one loop at once;
/// - on the CPU device, an element of a device batch (`operator()`, `[]`) that is used before the
///   batch's copy is complete; and a batch whose data the loop's body has taken (`data`, `flat`),
///   though the feed was given a stream and nobody has used that stream until the lease ended;
/// - `used_on(stream)` for a stream that the end of the lease does not wait for.
///
/// Free memory is filled with 0xFF, which is NaN in every float format and -1 in every signed integer:
/// host slots when they come back, or once the copy out of them is done, and the slots of a CPU device
/// behind the work that used them. What a dataset left unwritten shows as well. Under
/// AddressSanitizer, a host slot that was released while no copy ran must not be touched until it is
/// refilled.
///
/// Not seen: a pointer or reference taken out of a view, but as said above; views in device code, and
/// device memory of CUDA, which is not filled; a stream that work was given to without `used_on`, or one
/// that was destroyed before the lease. Every build throws for a stream of another device
/// (`also_used_on`), and at the next step for a lease that ended during a capture of its stream.

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// In any build: the program was about to use memory that it does not have. One line, and the end.
[[noreturn, gnu::cold, gnu::noinline]] inline void wrong_use(const char* message) noexcept {
  std::fprintf(stderr, "penstock: %s\n", message);
  std::fflush(stderr);
  std::abort();
}

/// Of a lease.
[[noreturn, gnu::cold, gnu::noinline]] inline void no_batch() noexcept {
  wrong_use(
      "a lease was used that holds no batch: it was moved from, given back by release_after, or "
      "never "
      "given one");
}

}  // namespace detail

#if PENSTOCK_CHECKED

/// Where a checked build ends that was used wrongly: a place for a breakpoint. Writes one line to stderr
/// and aborts.
[[noreturn, gnu::noinline]] inline void checked_failure(const char* message) noexcept {
  std::fprintf(stderr, "penstock, checked build: %s\n", message);
  std::fflush(stderr);
  std::abort();
}

namespace detail {

inline constexpr bool checked = true;

/// Whether the calling thread is a CPU stream's.
[[nodiscard, gnu::visibility("default")]] inline bool& runs_a_stream() noexcept {
  thread_local bool runs = false;
  return runs;
}
/// It is.
inline void mark_stream_thread() noexcept { runs_a_stream() = true; }

/// A number for each thread of the process's life; never 0. Visible, so that shared libraries which hide
/// their symbols still count threads in one place.
[[nodiscard, gnu::visibility("default")]] inline std::uint64_t this_thread() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

/// What is known of a lease, for its views to look at. Never freed, only used again for another lease,
/// so a view may look for ever; atomic throughout, since one that is stale looks at any time.
class lease_record {
 public:
  /// A lease with this number, new in the process, of the batch with these numbers.
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

  /// The data of the lease with this number is complete: at once, or after its copy. A late call
  /// for a lease of long ago changes nothing.
  void arrive(std::uint64_t serial) noexcept {
    std::uint64_t last = arrived_.load(std::memory_order_relaxed);
    while (last < serial && !arrived_.compare_exchange_weak(last, serial, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
    }
  }

  /// Whether a thread that runs no stream's work has taken the data.
  [[nodiscard]] bool was_seen_in_body() const noexcept {
    return seen_in_body_.load(std::memory_order_relaxed);
  }

  /// A view of the lease with this number is used.
  void require_alive(std::uint64_t serial) const noexcept {
    if (alive_.load(std::memory_order_acquire) == serial &&
        ended_by_.load(std::memory_order_relaxed) != this_thread()) {
      return;
    }
    fail(serial,
         "a view was used after its lease had ended. Keep the lease as long as its views are used "
         "(move it out of the loop), or copy the data out");
  }

  /// An element of it is: its copy has to be complete.
  void require_data(std::uint64_t serial) const noexcept {
    note_address(serial);
    if (arrived_.load(std::memory_order_acquire) >= serial) return;
    fail(serial,
         "a view was looked at before the batch's copy was complete. The feed was given a stream: "
         "look at it in that stream's work, synchronise first, or leave the stream out (transfer "
         "feed{loader}) where the loop's body is the step");
  }

  /// The address of its data is taken, perhaps for work on a stream.
  void note_address(std::uint64_t serial) const noexcept {
    require_alive(serial);
    if (!runs_a_stream() && !was_seen_in_body()) {
      seen_in_body_.store(true, std::memory_order_relaxed);
    }
  }

  /// The lease is used by the calling thread.
  void require_one_user(std::uint64_t serial) noexcept {
    std::uint64_t user = 0;
    if (user_.compare_exchange_strong(user, this_thread(), std::memory_order_relaxed) ||
        user == this_thread()) {
      return;
    }
    fail(serial,
         "two threads use its lease. Take the views on one thread and share those, or move the "
         "lease to the thread that goes on with it");
  }

  /// The lease was moved: whoever uses it next is its user.
  void pass_on() noexcept { user_.store(0, std::memory_order_relaxed); }

  /// The lease ends, and nothing may use a view any more.
  void end() noexcept { alive_.store(0, std::memory_order_release); }

  /// The lease ends here, and the work of so many streams may still use its views.
  void end_behind(std::size_t streams) noexcept {
    streams_.store(streams, std::memory_order_relaxed);
    ended_by_.store(this_thread(), std::memory_order_relaxed);
  }
  /// One of them is past it; true for the last one, which sees what all of them have done.
  [[nodiscard]] bool is_behind_last_stream() noexcept {
    return streams_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// Reports what was done wrong with the lease with this number.
  [[noreturn]] void fail(std::uint64_t serial, const char* what) const noexcept {
    // Acquire: the look at whose they are comes behind.
    const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
    const std::uint64_t index = index_.load(std::memory_order_acquire);
    std::string message = "a batch of long ago: ";
    if (named_.load(std::memory_order_relaxed) == serial) {
      message = "batch " + std::to_string(index) + " of epoch " + std::to_string(epoch) + ": ";
    }
    checked_failure((message + what).c_str());
  }

 private:
  std::atomic<std::uint64_t> alive_{0};  // number of the lease whose views may be used; 0: none
  std::atomic<std::uint64_t> named_{0};  // number of the lease that the next two belong to
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> index_{0};
  std::atomic<std::uint64_t> user_{0};  // the thread that uses the lease; 0: none since its move
  std::atomic<std::uint64_t> ended_by_{0};  // the thread that ended a device lease; 0: not ended
  std::atomic<std::uint64_t> arrived_{0};   // number of the newest lease whose data is complete
  mutable std::atomic<bool> seen_in_body_{false};  // a thread of no stream has taken the data
  std::atomic<std::size_t> streams_{0};  // whose work may still use the views of an ended lease

  friend class lease_records;
  lease_record* next_at_rest_ = nullptr;  // of `lease_records`, under its lock
};

/// All records of the process. A record rests for a thousand leases, so that a stale view can tell the
/// name of its batch.
class lease_records {
 public:
  /// One for all shared libraries of the program, as `this_thread`. Never destroyed: views may be looked
  /// at until the process ends.
  [[nodiscard, gnu::visibility("default")]] static lease_records& all() {
    static auto* const records = new lease_records;
    return *records;
  }

  /// A record for a lease of the batch with these numbers, and the lease's number. May throw
  /// std::bad_alloc; giving back takes no memory.
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

  /// The lease is over.
  void give_back(lease_record* record) noexcept {
    const std::lock_guard lock{mutex_};
    record->next_at_rest_ = nullptr;
    (resting_++ == 0 ? first_ : last_->next_at_rest_) = record;
    last_ = record;
  }

 private:
  static constexpr std::size_t at_rest = 1024;

  std::mutex mutex_;  // guards the rest
  std::deque<lease_record> records_;
  lease_record* first_ = nullptr;  // of those at rest, in a list: the longest at rest
  lease_record* last_ = nullptr;   // and the shortest; means nothing while there is none
  std::size_t resting_ = 0;
  std::uint64_t serial_ = 0;
};

/// What a view knows of its lease: nothing, where it comes from none.
class lease_tag {
 public:
  lease_tag() = default;
  lease_tag(const lease_record* record, std::uint64_t serial) noexcept
      : record_(record), serial_(serial) {}

  /// The view is used: on the host the lease has to live.
  PENSTOCK_HOST_DEVICE constexpr void require_alive() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (record_ != nullptr) record_->require_alive(serial_);
#endif
  }
  /// An element is used: its copy has to be complete as well.
  PENSTOCK_HOST_DEVICE constexpr void require_data() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (record_ != nullptr) record_->require_data(serial_);
#endif
  }
  /// The address of the data is taken.
  PENSTOCK_HOST_DEVICE constexpr void note_address() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (record_ != nullptr) record_->note_address(serial_);
#endif
  }

 private:
  const lease_record* record_ = nullptr;
  std::uint64_t serial_ = 0;
};

/// Fills free memory with what no one takes for data.
inline void poison(void* data, std::size_t bytes) noexcept { std::memset(data, 0xFF, bytes); }

/// From now on nobody may touch the memory, as far as AddressSanitizer sees.
inline void forbid([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  __asan_poison_memory_region(data, bytes);
#endif
}
/// Until now.
inline void allow([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

/// A device lease that has ended, while streams may still work on its memory.
class ended_lease {
 public:
  explicit ended_lease(lease_record* record) noexcept : record_(record) {}

  /// Called once a stream: queues the end in it; the last one to get there poisons the memory. A stream
  /// that does not run functions of the host's, as CUDA's, does neither, and its device code checks
  /// nothing.
  template <class Stream>
  void behind(Stream stream, void* data, std::size_t bytes) const {
    const auto end = [record = record_, data, bytes]() noexcept {
      if (!record->is_behind_last_stream()) return;
      record->end();
      poison(data, bytes);
      lease_records::all().give_back(record);
    };
    if constexpr (requires { stream.launch(end); }) {
      stream.launch(end);
    } else if (record_->is_behind_last_stream()) {
      lease_records::all().give_back(record_);
    }
  }

 private:
  lease_record* record_;
};

/// The part of a lease that a checked build watches. Moves with it.
class lease_guard {
 public:
  lease_guard() = default;
  /// A lease of this batch begins, whose data is complete. May throw std::bad_alloc: to be made where
  /// that can be told, before the lease.
  lease_guard(std::uint64_t epoch, std::uint64_t index) {
    std::tie(record_, serial_) = lease_records::all().take(epoch, index);
    record_->arrive(serial_);
  }
  /// A lease of this batch begins, whose data is complete once `copies` gets here: before an event
  /// that is recorded next. A stream that does not run functions of the host's is not looked at.
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

  /// The calling thread uses the lease.
  void use() const noexcept {
    if (record_ == nullptr) {
      checked_failure(
          "a lease was used that holds no batch: it was moved from, given back by release_after, "
          "or "
          "never given one");
    }
    record_->require_one_user(serial_);
  }

  /// What the lease's views carry.
  [[nodiscard]] lease_tag tag() const noexcept { return {record_, serial_}; }

  /// Whether a thread that runs no stream's work has taken the data.
  [[nodiscard]] bool was_seen_in_body() const noexcept { return record_->was_seen_in_body(); }

  /// Reports a wrong use.
  [[noreturn]] void fail(const char* what) const noexcept { record_->fail(serial_, what); }

  /// The lease ends, if there is one: its views are dead.
  void end() noexcept {
    if (record_ == nullptr) return;
    record_->end();
    lease_records::all().give_back(std::exchange(record_, nullptr));
  }

  /// The lease ends for the host, and later for each of so many streams.
  [[nodiscard]] ended_lease end_behind(std::size_t streams) noexcept {
    record_->end_behind(streams);
    return ended_lease{std::exchange(record_, nullptr)};
  }

 private:
  lease_record* record_ = nullptr;
  std::uint64_t serial_ = 0;
};

/// Sees to it that one thread at a time goes through. Copies are of one gate.
class call_gate {
 public:
  /// None; only to be assigned to.
  call_gate() = default;
  explicit call_gate(std::in_place_t) : busy_(std::make_shared<std::atomic<bool>>(false)) {}

  class inside {
   public:
    explicit inside(const std::shared_ptr<std::atomic<bool>>& busy) noexcept : busy_(busy) {
      if (!busy_->exchange(true, std::memory_order_relaxed)) return;
      checked_failure(
          "two threads advance one loop at once. Let one thread take the batches and move them to "
          "the others");
    }
    inside(inside&&) = delete;
    ~inside() { busy_->store(false, std::memory_order_relaxed); }

   private:
    std::shared_ptr<std::atomic<bool>> busy_;
  };

  /// The calling thread goes through until the returned object goes.
  [[nodiscard]] inside enter() const noexcept { return inside{busy_}; }

 private:
  std::shared_ptr<std::atomic<bool>> busy_;
};

}  // namespace detail

#else  // the same without anything in it

namespace detail {

inline constexpr bool checked = false;

inline void mark_stream_thread() noexcept {}

class lease_tag {
 public:
  PENSTOCK_HOST_DEVICE constexpr void require_alive() const noexcept {}
  PENSTOCK_HOST_DEVICE constexpr void require_data() const noexcept {}
  PENSTOCK_HOST_DEVICE constexpr void note_address() const noexcept {}
};

inline void poison(void*, std::size_t) noexcept {}
inline void forbid(const void*, std::size_t) noexcept {}
inline void allow(const void*, std::size_t) noexcept {}

class ended_lease {
 public:
  template <class Stream>
  constexpr void behind(const Stream&, void*, std::size_t) const noexcept {}
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

#undef PENSTOCK_HOST_DEVICE
#undef PENSTOCK_ADDRESS_SANITIZER
