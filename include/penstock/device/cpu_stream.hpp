// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/flush_to_zero.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/exit_handler.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The modelled speed of a CPU device. Zero means that operations are as fast as the machine. A
/// modelled delay sleeps, so overlap can be shown and tested on a few cores.
struct cpu_device_options {
  /// The copy bandwidth in bytes per second. A copy takes at least its size divided by the
  /// bandwidth.
  double copy_bytes_per_second = 0.0;
  /// The delay of a launch or copy between reaching the head of its stream and starting.
  std::chrono::nanoseconds launch_latency{0};
};

namespace detail {

using host_clock = std::chrono::steady_clock;

[[nodiscard]] constexpr bool is_modelled(const cpu_device_options& options) noexcept {
  return options.copy_bytes_per_second > 0.0 || options.launch_latency.count() > 0;
}

/// The modelled start and end times of the operations on one stream. An operation starts when it
/// has been queued, the previous operation has ended, and everything that the stream waits for has
/// ended. A thread that wakes up late does not delay these times, because hardware would not be
/// delayed either. Only the stream thread may call the members, except `end_of`.
class stream_time {
 public:
  static constexpr std::size_t remembered = 256;

  /// Returns the earliest start time of an operation queued at `queued`, without launch latency.
  [[nodiscard]] host_clock::time_point start_of(host_clock::time_point queued) const noexcept {
    return (std::max)(queued, busy_until_);
  }
  /// Delays the following operations to `moment` or later.
  void busy_until(host_clock::time_point moment) noexcept {
    busy_until_ = (std::max)(busy_until_, moment);
  }
  [[nodiscard]] host_clock::time_point busy_until() const noexcept { return busy_until_; }

  /// Records the end of the operation at `position`, which has run but is not yet published as
  /// complete.
  void on_end(std::uint64_t position) noexcept {
    ends_[position % remembered].store(busy_until_.time_since_epoch().count(),
                                       std::memory_order_relaxed);
  }
  /// Returns the end time of the operation at `position`, which the caller has observed as
  /// complete. If 256 operations have run since, returns the end time of a later operation that has
  /// also ended. Any thread may call this.
  [[nodiscard]] host_clock::time_point end_of(std::uint64_t position) const noexcept {
    return host_clock::time_point{
        host_clock::duration{ends_[position % remembered].load(std::memory_order_relaxed)}};
  }

 private:
  host_clock::time_point busy_until_{};
  // The end times are written before the release store that publishes the operation as complete.
  std::array<std::atomic<host_clock::rep>, remembered> ends_{};
};

/// Runs `work` at `start`, or later if the thread wakes up late. Returns the modelled end, which is
/// `start` plus the duration of the work, without the delay.
template <class Work>
host_clock::time_point modelled_run(host_clock::time_point start, Work&& work) {
  std::this_thread::sleep_until(start);
  const auto begin = host_clock::now();
  work();
  return start + (host_clock::now() - begin);
}

/// Copies `bytes` bytes at the modelled bandwidth. Returns the modelled end.
inline host_clock::time_point modelled_copy(void* to, const void* from, std::size_t bytes,
                                            const cpu_device_options& options,
                                            host_clock::time_point start) {
  const auto own_end =
      modelled_run(start, [to, from, bytes]() noexcept { std::memcpy(to, from, bytes); });
  if (options.copy_bytes_per_second <= 0.0) return own_end;
  const std::chrono::duration<double> span{static_cast<double>(bytes) /
                                           options.copy_bytes_per_second};
  const auto bus_end = start + std::chrono::duration_cast<std::chrono::nanoseconds>(span);
  std::this_thread::sleep_until(bus_end);
  return (std::max)(own_end, bus_end);
}

/// Inline storage for the work of one operation on a CPU stream.
class operation {
 public:
  static constexpr std::size_t bytes = PENSTOCK_CHECKED ? 240 : 112;  // checked views are larger

  /// Stores `work` until `run`. The storage must be empty.
  template <class Work>
  void hold(Work work) noexcept {
    static_assert(sizeof(Work) <= bytes && alignof(Work) <= alignof(std::max_align_t),
                  "penstock: work for a CPU stream is stored inline: capture at most 96 bytes, and "
                  "larger state by pointer");
    static_assert(std::is_nothrow_move_constructible_v<Work>);
    ::new (static_cast<void*>(storage_)) Work(std::move(work));
    run_ = [](void* storage) {
      struct destroyed_after_run {
        Work& work;
        ~destroyed_after_run() { work.~Work(); }
      } holder{*std::launder(static_cast<Work*>(storage))};
      holder.work();
    };
  }

  /// Runs the work, and destroys it even if it throws.
  void run() { run_(storage_); }

 private:
  void (*run_)(void*);
  alignas(std::max_align_t) std::byte storage_[bytes];
};

/// Specifies what a push does if the ring is full.
enum class when_ring_full : unsigned char {
  wait,   ///< waits for room, except on the thread of the queue
  spill,  ///< stores the operation on the heap
};

/// Thrown by a wait for a stream whose thread exists only in the parent process of a fork().
class [[gnu::visibility("default")]] stream_of_parent : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Thrown by a wait for a stream that no longer runs work, because its work, or the work of a
/// stream that it waits for, has called `exit()`.
class [[gnu::visibility("default")]] stream_of_exit : public cancelled {
 public:
  using cancelled::cancelled;
};

/// The queue of a CPU stream: a bounded ring of operations, which are stored inline. A single
/// thread runs the operations in order. Threads that push take a lock. The running thread takes the
/// lock only if operations are on the heap, and never waits for room or for itself.
class cpu_queue : public std::enable_shared_from_this<cpu_queue> {
 public:
  static constexpr std::size_t capacity = 256;

  explicit cpu_queue(const cpu_device_options& options) : options_(options) {}
  cpu_queue(cpu_queue&&) = delete;

  [[nodiscard]] const cpu_device_options& options() const noexcept { return options_; }

  /// Appends `work`. Waits while the ring is full, except on the thread of the queue. Because only
  /// that thread makes room, it stores the operation on the heap instead. With
  /// `when_ring_full::spill`, every thread does so. `work` is moved in, and destroyed after it has
  /// run.
  template <when_ring_full Full = when_ring_full::wait, class Work>
  void push(Work work) {
    std::unique_lock lock{push_};
    next_place<Full>(lock).hold(std::move(work));
    publish_next();
  }

  /// Runs `work` immediately on the calling thread if the queue is empty. Otherwise returns false.
  /// The order is preserved, because the next push waits for the lock, and an event recorded now
  /// marks completed work.
  template <class Work>
  bool run_if_idle(const Work& work) {
    const std::lock_guard lock{push_};
    if (pushed_.load(std::memory_order_relaxed) != completed()) return false;
    work();
    record_use();
    return true;
  }

  /// In a checked build, counts a use of the queue that pushes no operation, but may let the host
  /// observe the progress of the queue.
  void record_use() noexcept {
    if constexpr (checked) uses_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Returns the number of operations pushed plus the number of uses counted by `record_use`.
  [[nodiscard]] std::uint64_t uses() const noexcept {
    return pushed() + uses_.load(std::memory_order_relaxed);
  }

  /// Returns the number of operations pushed. An event that is recorded now marks this position.
  [[nodiscard]] std::uint64_t pushed() const noexcept {
    return pushed_.load(std::memory_order_acquire);
  }
  /// Returns the number of operations that have run.
  [[nodiscard]] std::uint64_t completed() const noexcept {
    return completed_.load(std::memory_order_acquire);
  }
  /// Waits until `position` operations have run. Throws `std::logic_error` on the thread of the
  /// queue, where the wait would never end. Also throws `stream_of_exit`, and `stream_of_parent` in
  /// a child process.
  void wait_until_completed(std::uint64_t position) const {
    if (completed() >= position) return;
    if (runs_here() && !was_abandoned()) {
      throw std::logic_error(
          "penstock::cpu_stream: work on a stream cannot wait for later work on the same stream");
    }
    if (is_in_child()) throw_in_child();
    if (!wait_unless_abandoned(position)) throw_abandoned();
  }
  /// Waits until `position` operations have run. Returns false if they will never run.
  [[nodiscard]] bool wait_unless_abandoned(std::uint64_t position) const noexcept {
    completed_signal_.wait(
        [&](std::uint32_t) { return completed() >= position || was_abandoned(); });
    return completed() >= position;
  }

  /// Returns true if the queue no longer runs work (see `stream_of_exit`).
  [[nodiscard]] bool was_abandoned() const noexcept {
    return was_abandoned_.load(std::memory_order_acquire);
  }

  /// Returns true if this process is a child created by fork(), and the stream thread is in the
  /// parent process.
  [[nodiscard]] bool is_in_child() const noexcept { return ::getpid() != process_; }

  /// Returns the thread-local pointer to the queue whose work the calling thread runs, or null on
  /// other threads. The symbol is visible, so that shared libraries with hidden symbols share the
  /// variable.
  [[nodiscard, gnu::visibility("default")]] static cpu_queue*& running() noexcept {
    thread_local cpu_queue* queue = nullptr;
    return queue;
  }
  [[nodiscard]] bool runs_here() const noexcept { return running() == this; }

  /// Runs operations until an operation has called `stop`, and then the operations that this
  /// operation and later operations push. Called by the stream thread. Returns immediately if an
  /// operation waits for an abandoned stream.
  void run() noexcept {
    const exit_handler handler{[this] { abandon(); }};
    scoped_flush_to_zero::enable_permanently();
    mark_stream_thread();
    running() = this;
    // Modelled delays are shorter than the kernel's default timer slack of 50 us.
    if (is_modelled()) ::prctl(PR_SET_TIMERSLACK, 1UL);
    std::uint64_t position = 0;
    while (position < end_) {
      pushed_signal_.wait([&](std::uint32_t) { return pushed() > position; });
      if (first_spilled_.load(std::memory_order_relaxed) == position) {
        run_spilled();
      } else {
        run(ring_[position % capacity]);
      }
      if (was_abandoned_.load(std::memory_order_relaxed)) return;  // stored on this thread
      if (is_modelled()) time_.on_end(position);
      completed_.store(++position, std::memory_order_release);
      completed_signal_.store(static_cast<std::uint32_t>(position));
    }
  }

  /// Makes `run` return after this operation and the operations that it pushes. Only operations on
  /// the stream thread may call this. Operations pushed later by other threads, which is possible
  /// during `exit()`, do not run.
  void stop() noexcept { end_ = pushed(); }

  [[nodiscard]] bool is_modelled() const noexcept { return detail::is_modelled(options_); }

  /// Returns the earliest start time of an operation queued at `queued`.
  [[nodiscard]] host_clock::time_point start_of(host_clock::time_point queued) const noexcept {
    return time_.start_of(queued) + options_.launch_latency;
  }
  /// Returns the modelled end of the work that has run so far.
  [[nodiscard]] host_clock::time_point busy_until() const noexcept { return time_.busy_until(); }
  void busy_until(host_clock::time_point moment) noexcept { time_.busy_until(moment); }

  /// Waits until `other` has run its first `position` operations. Later work of this queue also
  /// starts after them in modelled time. If `other` was abandoned, abandons this queue. Only the
  /// thread of this queue may call this.
  void wait_for(const cpu_queue& other, std::uint64_t position) noexcept {
    const bool is_late = other.completed() < position;
    if (is_late && !other.wait_unless_abandoned(position)) return abandon();
    if (!is_modelled()) return;
    if (other.is_modelled()) {
      time_.busy_until(other.time_.end_of(position - 1));
    } else if (is_late) {
      time_.busy_until(host_clock::now());  // an estimate, because `other` has no modelled times
    }
  }

  /// Throws the first exception of an operation since the last call.
  void rethrow_error() {
    std::exception_ptr error;
    {
      const std::lock_guard lock{error_};
      error = std::exchange(retained_error_, nullptr);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  struct spilled_operation : operation {
    std::uint64_t position = 0;
  };

  /// Ends the waits of all threads for this queue. Called only on the thread of the queue, by an
  /// operation that never ends.
  void abandon() noexcept {
    was_abandoned_.store(true, std::memory_order_release);
    completed_signal_.advance();
  }

  [[nodiscard]] bool has_room() const noexcept { return pushed() - completed() < capacity; }

  /// Returns the storage for the next operation. `lock` holds `push_`, except while the function
  /// waits for room.
  template <when_ring_full Full>
  operation& next_place(std::unique_lock<std::mutex>& lock) {
    while (!has_room()) {
      if (Full == when_ring_full::spill || runs_here()) return spill();
      if (is_in_child()) throw_in_child();
      lock.unlock();  // The stream thread may need the lock to push.
      completed_signal_.wait([this](std::uint32_t) { return has_room() || was_abandoned(); });
      if (was_abandoned()) throw_abandoned();
      lock.lock();
    }
    return ring_[pushed_.load(std::memory_order_relaxed) % capacity];
  }

  /// Publishes the next operation in the ring to the stream thread. The caller holds the lock.
  void publish_next() noexcept {
    const std::uint64_t count = pushed_.load(std::memory_order_relaxed) + 1;
    // Invariant: operations below pushed_ are ready to run. A thread that loads pushed_ acquires
    // them.
    pushed_.store(count, std::memory_order_release);
    if (runs_here() && end_ != endless) end_ = count;
    pushed_signal_.store(static_cast<std::uint32_t>(count));
  }

  /// Throws in a child process, where a wait would never end.
  [[noreturn, gnu::cold]] void throw_in_child() const {
    throw stream_of_parent(
        str_cat({"penstock::cpu_stream: its thread belongs to process ", process_,
                 ", and this process is a child of it by fork(): make the stream in the child"}));
  }

  [[noreturn, gnu::cold]] static void throw_abandoned() {
    throw stream_of_exit("cancelled: exit() was called in work on a CPU stream, which has stopped");
  }

  /// Returns storage on the heap for the next operation. The caller holds the lock.
  operation& spill() {
    const std::uint64_t position = pushed_.load(std::memory_order_relaxed);
    spilled_.emplace_back().position = position;
    if (spilled_.size() == 1) first_spilled_.store(position, std::memory_order_relaxed);
    return spilled_.back();
  }

  /// Runs the first operation on the heap. Does not hold the lock during the run, because the
  /// operation may spill other operations.
  void run_spilled() noexcept {
    std::list<spilled_operation> first;
    {
      const std::lock_guard lock{push_};
      first.splice(first.begin(), spilled_, spilled_.begin());
      first_spilled_.store(spilled_.empty() ? none_spilled : spilled_.front().position,
                           std::memory_order_relaxed);
    }
    run(first.front());
  }

  void run(operation& next) noexcept {
    try {
      next.run();
    } catch (...) {
      const std::lock_guard lock{error_};
      if (!retained_error_) retained_error_ = std::current_exception();
    }
  }

  cpu_device_options options_;
  const ::pid_t process_ = ::getpid();  // process that runs the stream thread
  std::mutex push_;
  std::mutex error_;
  std::exception_ptr retained_error_;
  std::atomic<std::uint64_t> uses_{0};  // relaxed, because it is only a count
  static constexpr std::uint64_t endless = ~std::uint64_t{0};
  std::uint64_t end_ = endless;  // the stream thread runs the operations before this position
  stream_time time_;
  std::array<operation, capacity> ring_;
  // Guarded by `push_`. Invariant: an operation is in the ring at its position modulo the ring
  // size, or, if the ring was full, in this list, ordered by position.
  std::list<spilled_operation> spilled_;
  // The first position in the list. Stored under `push_`, before the store of `pushed_` that
  // publishes the operation. Therefore the stream thread can check without a lock whether its next
  // operation is on the heap.
  static constexpr std::uint64_t none_spilled = ~std::uint64_t{0};
  std::atomic<std::uint64_t> first_spilled_{none_spilled};
  // 64-bit counts, so that an event recorded billions of operations ago stays complete. Threads
  // sleep on the 32-bit counters next to them.
  alignas(detail::cache_line) std::atomic<std::uint64_t> pushed_{0};
  detail::waitable_counter pushed_signal_;
  alignas(detail::cache_line) std::atomic<std::uint64_t> completed_{0};
  // Also advances when the queue is abandoned, to end all waits.
  detail::waitable_counter completed_signal_;
  // Set by the stream thread, which completes no operation afterwards. Release and acquire
  // ordering: a thread that stops waiting because of this flag sees the effects of all completed
  // operations.
  std::atomic<bool> was_abandoned_{false};
};

}  // namespace detail

class cpu_stream;
class cpu_device;

/// A point in a CPU stream. An event is complete when all work queued before the event was recorded
/// has ended. An event that was never recorded is complete. Several threads may wait for an event
/// concurrently, even while one thread records it again on the same stream. While an event is
/// moved, or recorded on another stream, no other thread may use it.
class cpu_event {
 public:
  cpu_event() = default;
  cpu_event(cpu_event&& other) noexcept { *this = std::move(other); }
  cpu_event& operator=(cpu_event&& other) noexcept {
    queue_ = std::move(other.queue_);
    position_.store(other.position_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    time_ = std::move(other.time_);
    return *this;
  }

 private:
  friend class cpu_device;
  // Shared ownership, so that the event stays valid after the stream is destroyed.
  std::shared_ptr<detail::cpu_queue> queue_;
  // Relaxed ordering suffices, because this position does not publish data. A thread that waits for
  // a record is ordered after that record, so it reads the position of that record or a later
  // position. The queue counter makes the work visible.
  std::atomic<std::uint64_t> position_{0};
  // The completion time of a timed event. The stream stores it before it publishes the completion.
  std::shared_ptr<detail::host_clock::time_point> time_;
};

/// A reference to a CPU stream or the inline stream. Work on the inline stream runs immediately on
/// the calling thread, and waits block that thread.
class cpu_stream_ref {
 public:
  /// References `stream`, which must outlive this object. Throws `std::logic_error` for a
  /// moved-from stream.
  cpu_stream_ref(const cpu_stream& stream);  // NOLINT: implicit by intent
  cpu_stream_ref(const cpu_stream&&) = delete;
  cpu_stream_ref(std::nullptr_t) = delete;
  cpu_stream_ref(int) = delete;

  /// Returns the inline stream, which represents the calling thread.
  [[nodiscard]] static cpu_stream_ref calling_thread() noexcept { return cpu_stream_ref{}; }

  /// Returns the stream whose work the calling thread is running. Returns `std::nullopt` on other
  /// threads, and if that work has called `exit()`.
  [[nodiscard]] static std::optional<cpu_stream_ref> running() noexcept {
    detail::cpu_queue* const queue = detail::cpu_queue::running();
    if (queue == nullptr || queue->was_abandoned()) return std::nullopt;
    cpu_stream_ref own;
    own.queue_ = queue;
    return own;
  }

  /// Runs `work()` in stream order. Returns immediately, except on the inline stream and while 256
  /// operations are queued. Work may launch into its own stream. Such a launch never waits, and
  /// uses heap memory if more than 256 operations are queued. `work` is moved in and is at most 96
  /// bytes. Exceptions of `work` are thrown by `launch` on the inline stream, and otherwise by
  /// `synchronize`.
  template <class Work>
  void launch(Work work) const {
    launch_or<detail::when_ring_full::wait>(work);
  }

  /// Launches without waiting, for checked builds. Uses heap memory if more than 256 operations are
  /// queued.
  template <class Work>
  void launch_without_wait(Work work) const {
    launch_or<detail::when_ring_full::spill>(work);
  }

  /// Blocks until all work on the stream has ended. Rethrows exceptions of the work. Throws
  /// `std::logic_error` if called from the stream's own work, and `cancelled` if the work has
  /// called `exit()`.
  void synchronize() const {
    if (queue_ == nullptr) return;
    queue_->wait_until_completed(queue_->pushed());
    queue_->record_use();
    queue_->rethrow_error();
  }

  /// Returns true if all work queued so far has ended. Does not wait or rethrow exceptions.
  [[nodiscard]] bool is_complete() const noexcept {
    if (queue_ == nullptr) return true;
    if (queue_->completed() < queue_->pushed()) return false;
    queue_->record_use();
    return true;
  }

  /// Returns the device that created the stream. For the inline stream, this is a device without
  /// modelled delays.
  [[nodiscard]] cpu_device device() const noexcept;

  /// Returns a counter for checked builds. The counter changes with each launch, copy, record and
  /// wait on the stream, and when `is_complete` returns true. Returns `std::nullopt` for the inline
  /// stream.
  [[nodiscard]] std::optional<std::uint64_t> uses() const noexcept {
    return queue_ != nullptr ? std::optional{queue_->uses()} : std::nullopt;
  }

  /// Returns an address that identifies the stream in messages.
  [[nodiscard]] const void* get() const noexcept { return queue_; }

  friend bool operator==(cpu_stream_ref, cpu_stream_ref) = default;

 private:
  friend class cpu_device;
  cpu_stream_ref() = default;

  template <detail::when_ring_full Full, class Work>
  void launch_or(Work& work) const {
    if (queue_ == nullptr) {
      work();
    } else if (queue_->is_modelled()) {
      queue_->push<Full>(
          [queue = queue_, queued = detail::host_clock::now(), work = std::move(work)]() mutable {
            queue->busy_until(detail::modelled_run(queue->start_of(queued), work));
          });
    } else {
      queue_->push<Full>(std::move(work));
    }
  }

  detail::cpu_queue* queue_ = nullptr;
};

/// A stream with its own thread, which runs the queued work in order, with denormals flushed to
/// zero. The destructor waits for all work, including work launched by that work. If the stream's
/// own work destroys the stream, the destructor does not wait, and the thread ends after the work.
///
/// If the work calls `exit()`, the stream and all streams that wait for it stop running work. Waits
/// for these streams throw `cancelled`.
///
/// Move-only. A moved-from stream supports assignment and destruction. All other uses throw
/// `std::logic_error`. In a child process created by fork(), the stream has no thread, so waits
/// throw `std::logic_error`, and the destructor does not wait.
class cpu_stream {
 public:
  /// Starts the stream's thread. Throws `std::system_error` if the thread cannot be started.
  explicit cpu_stream(const cpu_device_options& options = {})
      : queue_(std::make_shared<detail::cpu_queue>(options)), thread_(started(queue_)) {}

  cpu_stream(cpu_stream&&) noexcept = default;
  cpu_stream& operator=(cpu_stream&& other) noexcept {
    if (this != &other) {
      finish();
      queue_ = std::move(other.queue_);
      thread_ = std::move(other.thread_);
    }
    return *this;
  }
  ~cpu_stream() { finish(); }

  /// Queues `work` (see `cpu_stream_ref::launch`).
  template <class Work>
  void launch(Work work) const {
    cpu_stream_ref{*this}.launch(std::move(work));
  }
  /// Blocks until all work on the stream has ended. Rethrows exceptions of the work.
  void synchronize() const { cpu_stream_ref{*this}.synchronize(); }
  /// Returns true if all work queued so far has ended. Does not wait.
  [[nodiscard]] bool is_complete() const { return cpu_stream_ref{*this}.is_complete(); }
  /// Returns the device that created the stream.
  [[nodiscard]] cpu_device device() const;

 private:
  friend class cpu_device;
  friend class cpu_stream_ref;

  static std::thread started(const std::shared_ptr<detail::cpu_queue>& queue) {
    try {
      return std::thread{[queue] { queue->run(); }};
    } catch (const std::system_error& error) {
      throw std::system_error(error.code(),
                              "cpu_stream: its thread cannot be started: raise the limit on "
                              "threads (ulimit -u, the container's limit on pids)");
    }
  }

  void finish() noexcept {
    if (!thread_.joinable()) return;
    if (queue_->is_in_child()) {
      thread_.detach();  // The thread exists only in the parent process.
      return;
    }
    try {
      queue_->push([queue = queue_.get()]() noexcept { queue->stop(); });
    } catch (const detail::stream_of_exit&) {  // The stream has stopped or is about to stop.
    }
    detail::join_unless_caller(thread_);  // A detached thread keeps the queue alive.
  }

  std::shared_ptr<detail::cpu_queue> queue_;
  std::thread thread_;
};

inline cpu_stream_ref::cpu_stream_ref(const cpu_stream& stream) : queue_(stream.queue_.get()) {
  if (queue_ != nullptr) return;  // null for the inline stream
  throw std::logic_error("penstock::cpu_stream: it was moved from and refers to no stream");
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
