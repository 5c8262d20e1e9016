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
#include <penstock/threads/float_mode.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a CPU device pretends to be. Zero means: as fast as the machine is. A modelled delay waits
/// and does not burn the core, so overlap can be shown and tested on few cores.
struct cpu_device_options {
  /// The time a copy takes is at least its bytes divided by this.
  double copy_bytes_per_second = 0.0;
  /// The time from a launch or a copy reaching the head of its stream to its start.
  std::chrono::nanoseconds launch_latency{0};
};

namespace detail {

using host_clock = std::chrono::steady_clock;

[[nodiscard]] constexpr bool is_modelled(const cpu_device_options& options) noexcept {
  return options.copy_bytes_per_second > 0.0 || options.launch_latency.count() > 0;
}

/// The begins and ends of one stream's operations, as modelled. An operation begins when it has
/// been queued, the one before has ended, and so has what the stream was made to wait for. A thread
/// that wakes up late does not move these moments: hardware goes on by itself. Of the stream's
/// thread, but for `end_of`.
class stream_time {
 public:
  static constexpr std::size_t remembered = 256;

  /// The earliest moment at which an operation queued at `queued` may begin, its latency before it.
  [[nodiscard]] host_clock::time_point start_of(host_clock::time_point queued) const noexcept {
    return (std::max)(queued, busy_until_);
  }
  /// What follows begins at `moment` or later.
  void busy_until(host_clock::time_point moment) noexcept {
    busy_until_ = (std::max)(busy_until_, moment);
  }
  [[nodiscard]] host_clock::time_point busy_until() const noexcept { return busy_until_; }

  /// The operation at `position` has run, and is told to be complete next.
  void note_end(std::uint64_t position) noexcept {
    ends_[position % remembered].store(busy_until_.time_since_epoch().count(),
                                       std::memory_order_relaxed);
  }
  /// When the operation at `position` ended, which the caller has seen complete; or a later one,
  /// which has ended too, if 256 have run since. On any thread.
  [[nodiscard]] host_clock::time_point end_of(std::uint64_t position) const noexcept {
    return host_clock::time_point{
        host_clock::duration{ends_[position % remembered].load(std::memory_order_relaxed)}};
  }

 private:
  host_clock::time_point busy_until_{};
  // Written before the release by which the operation is told to be complete.
  std::array<std::atomic<host_clock::rep>, remembered> ends_{};
};

/// Runs `work` at `start`, or later where the thread wakes late. Returns the modelled end: `start`
/// and the time of the work, without the lateness.
template <class Work>
host_clock::time_point modelled_run(host_clock::time_point start, Work&& work) {
  std::this_thread::sleep_until(start);
  const auto begin = host_clock::now();
  work();
  return start + (host_clock::now() - begin);
}

/// Copies like memcpy, and takes as long as the modelled bus would. Returns the modelled end.
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

/// A place for the work of one operation of a CPU stream, which is held inline.
class operation {
 public:
  static constexpr std::size_t bytes = PENSTOCK_CHECKED ? 240 : 112;  // larger views

  /// Moves `work` in, until `run`. The place holds nothing before.
  template <class Work>
  void hold(Work work) noexcept {
    static_assert(sizeof(Work) <= bytes && alignof(Work) <= alignof(std::max_align_t),
                  "penstock: work for a CPU stream is held inline: capture at most 96 bytes, "
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

  /// Runs the work, and destroys it, also where it throws.
  void run() { run_(storage_); }

 private:
  void (*run_)(void*);
  alignas(std::max_align_t) std::byte storage_[bytes];
};

/// What a push does that finds the ring full.
enum class when_full : unsigned char {
  wait,   ///< for room, but on the queue's own thread
  spill,  ///< keeps the operation on the heap
};

/// The queue of one CPU stream: a bounded ring of operations that are held inline, run in order by
/// one thread. Threads that push take a lock, the running thread only where operations are on the
/// heap; it never waits for room, nor for itself.
class cpu_queue : public std::enable_shared_from_this<cpu_queue> {
 public:
  static constexpr std::size_t capacity = 256;

  explicit cpu_queue(const cpu_device_options& options) : options_(options) {}
  cpu_queue(cpu_queue&&) = delete;

  [[nodiscard]] const cpu_device_options& options() const noexcept { return options_; }

  /// Appends `work`; waits while the ring is full, but on the queue's own thread: only that one
  /// makes room, so what does not fit is kept on the heap there, and on every thread with
  /// `when_full::spill`. `work` is moved in and destroyed after its run.
  template <when_full Full = when_full::wait, class Work>
  void push(Work work) {
    std::unique_lock lock{push_};
    next_place<Full>(lock).hold(std::move(work));
    publish_next();
  }

  /// Runs `work` at once on the calling thread if nothing is queued; false otherwise. In order all
  /// the same: the next push comes after the lock, and events recorded now mark what is
  /// complete.
  template <class Work>
  bool run_if_idle(const Work& work) {
    const std::lock_guard lock{push_};
    if (pushed_.load(std::memory_order_relaxed) != completed()) return false;
    work();
    note_use();
    return true;
  }

  /// In a checked build: counts what moves no position and may still tell the host how far this is.
  void note_use() noexcept {
    if constexpr (checked) uses_.fetch_add(1, std::memory_order_relaxed);
  }
  /// How often the queue was given work or such a use.
  [[nodiscard]] std::uint64_t uses() const noexcept {
    return pushed() + uses_.load(std::memory_order_relaxed);
  }

  /// How many operations have been pushed: the place that an event recorded now marks.
  [[nodiscard]] std::uint64_t pushed() const noexcept {
    return pushed_.load(std::memory_order_acquire);
  }
  /// How many operations have run.
  [[nodiscard]] std::uint64_t completed() const noexcept {
    return completed_.load(std::memory_order_acquire);
  }
  /// Throws `std::logic_error` on the queue's own thread, which would wait for itself.
  void wait_until_completed(std::uint64_t position) const {
    if (completed() >= position) return;
    if (runs_here()) {
      throw std::logic_error(
          "penstock::cpu_stream: work on a stream can't wait for what that stream has yet to do");
    }
    if (is_in_child()) throw_in_child();
    completed_signal_.wait([&](std::uint32_t) { return completed() >= position; });
  }

  /// Whether fork() has made this process out of the one that the stream's thread is in.
  [[nodiscard]] bool is_in_child() const noexcept { return ::getpid() != process_; }

  /// Whose work the calling thread runs; null on a thread of no stream. Of the thread's own: no
  /// other thread can tell as well whether it is that one.
  [[nodiscard]] static cpu_queue*& running() noexcept {
    thread_local cpu_queue* queue = nullptr;
    return queue;
  }
  [[nodiscard]] bool runs_here() const noexcept { return running() == this; }

  /// The body of the stream's thread: runs operations until one of them has called `stop`, and
  /// those that operations have pushed after it.
  void run() noexcept {
    flushed_denormals::keep_on();
    mark_stream_thread();
    running() = this;
    // Modelled delays are shorter than the kernel's default timer slack of 50 us.
    if (is_modelled()) ::prctl(PR_SET_TIMERSLACK, 1UL);
    std::uint64_t position = 0;
    while (!stopped_ || pushed() > position) {
      pushed_signal_.wait([&](std::uint32_t) { return pushed() > position; });
      if (first_spilled_.load(std::memory_order_relaxed) == position) {
        run_spilled();
      } else {
        run(ring_[position % capacity]);
      }
      if (is_modelled()) time_.note_end(position);
      completed_.store(++position, std::memory_order_release);
      completed_signal_.store(static_cast<std::uint32_t>(position));
    }
  }

  /// Called by the last operation, on the stream's thread.
  void stop() noexcept { stopped_ = true; }

  [[nodiscard]] bool is_modelled() const noexcept { return detail::is_modelled(options_); }

  /// The earliest moment at which an operation queued at `queued` may start.
  [[nodiscard]] host_clock::time_point start_of(host_clock::time_point queued) const noexcept {
    return time_.start_of(queued) + options_.launch_latency;
  }
  /// The modelled end of what has run so far.
  [[nodiscard]] host_clock::time_point busy_until() const noexcept { return time_.busy_until(); }
  void busy_until(host_clock::time_point moment) noexcept { time_.busy_until(moment); }

  /// Waits until `other` has run what stands before `position`. As modelled, too, what follows here
  /// starts after that. On the queue's own thread.
  void wait_for(const cpu_queue& other, std::uint64_t position) {
    const bool is_late = other.completed() < position;
    if (is_late) other.wait_until_completed(position);
    if (!is_modelled()) return;
    if (other.is_modelled()) {
      time_.busy_until(other.time_.end_of(position - 1));
    } else if (is_late) {
      time_.busy_until(host_clock::now());  // nothing tells more exactly
    }
  }

  /// Throws the first exception that an operation has thrown since the last call.
  void rethrow_error() {
    std::exception_ptr error;
    {
      const std::lock_guard lock{error_};
      error = std::exchange(kept_error_, nullptr);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  struct spilled_operation : operation {
    std::uint64_t position = 0;
  };

  [[nodiscard]] bool has_room() const noexcept { return pushed() - completed() < capacity; }

  /// The place of the next operation. `lock` holds `push_`, but while this waits for room.
  template <when_full Full>
  operation& next_place(std::unique_lock<std::mutex>& lock) {
    while (!has_room()) {
      if (Full == when_full::spill || runs_here()) return spill();
      if (is_in_child()) throw_in_child();
      lock.unlock();  // for the running thread, whose work may push
      completed_signal_.wait([this](std::uint32_t) { return has_room(); });
      lock.lock();
    }
    return ring_[pushed_.load(std::memory_order_relaxed) % capacity];
  }

  /// Lets the stream's thread run what stands in the next place, under the lock still.
  void publish_next() noexcept {
    const std::uint64_t count = pushed_.load(std::memory_order_relaxed) + 1;
    // Invariant: operations below pushed_ are complete to read; a thread that loads pushed_
    // acquires them.
    pushed_.store(count, std::memory_order_release);
    pushed_signal_.store(static_cast<std::uint32_t>(count));
  }

  /// A thread that waits in a child process would wait forever.
  [[noreturn, gnu::cold]] void throw_in_child() const {
    throw std::logic_error(
        joined({"penstock::cpu_stream: its thread is in process ", process_,
                ", of which this one is a child by fork(): make the stream in the child"}));
  }

  /// A place on the heap for the next operation, under the lock.
  operation& spill() {
    const std::uint64_t position = pushed_.load(std::memory_order_relaxed);
    spilled_.emplace_back().position = position;
    if (spilled_.size() == 1) first_spilled_.store(position, std::memory_order_relaxed);
    return spilled_.back();
  }

  /// Runs the first operation on the heap. The lock is free meanwhile: the operation may spill
  /// others.
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
      if (!kept_error_) kept_error_ = std::current_exception();
    }
  }

  cpu_device_options options_;
  const ::pid_t process_ = ::getpid();  // where the thread is
  std::mutex push_;
  std::mutex error_;
  std::exception_ptr kept_error_;
  std::atomic<std::uint64_t> uses_{0};  // counts, and orders nothing
  bool stopped_ = false;                // of the stream's thread
  stream_time time_;
  std::array<operation, capacity> ring_;
  // Under `push_`. Invariant: an operation stands in the ring at its position modulo the ring's
  // size, or here in the order of positions, if the ring was full: each position has one place.
  std::list<spilled_operation> spilled_;
  // The first position in the list. Stored under `push_`, and before the store of `pushed_` by
  // which the stream's thread learns of the operation: that thread needs no lock to read whether
  // the one that it runs next is on the heap.
  static constexpr std::uint64_t none_spilled = ~std::uint64_t{0};
  std::atomic<std::uint64_t> first_spilled_{none_spilled};
  // 64 bits count, so that an event recorded billions of operations ago stays complete; the 32-bit
  // words beside them are what threads sleep on.
  alignas(detail::cache_line) std::atomic<std::uint64_t> pushed_{0};
  detail::waitable_counter pushed_signal_;
  alignas(detail::cache_line) std::atomic<std::uint64_t> completed_{0};
  detail::waitable_counter completed_signal_;
};

}  // namespace detail

class cpu_stream;
class cpu_device;

/// A point in a CPU stream: complete when all work queued before the record is done. An event that
/// was never recorded is complete. Record it on one thread while no other uses it; several may wait
/// for it at once.
class cpu_event {
 public:
  cpu_event() = default;
  cpu_event(cpu_event&&) noexcept = default;
  cpu_event& operator=(cpu_event&&) noexcept = default;

 private:
  friend class cpu_device;
  // The queue is shared, so that the event stays valid after the stream is destroyed.
  std::shared_ptr<detail::cpu_queue> queue_;
  std::uint64_t position_ = 0;
  // For a timed event: the time of completion, written by the stream before it.
  std::shared_ptr<detail::host_clock::time_point> time_;
};

/// A reference to a CPU stream, or the inline stream: its work runs at once on the calling thread,
/// and a wait blocks that thread.
class cpu_stream_ref {
 public:
  /// Refers to `stream`, which must outlive it. Throws `std::logic_error` for a moved-from stream.
  cpu_stream_ref(const cpu_stream& stream);  // NOLINT: implicit by intent
  cpu_stream_ref(const cpu_stream&&) = delete;
  cpu_stream_ref(std::nullptr_t) = delete;
  cpu_stream_ref(int) = delete;

  /// The stream that is the calling thread itself.
  [[nodiscard]] static cpu_stream_ref calling_thread() noexcept { return cpu_stream_ref{}; }

  /// The stream whose work the calling thread is running; `std::nullopt` on other threads.
  [[nodiscard]] static std::optional<cpu_stream_ref> running() noexcept {
    if (detail::cpu_queue::running() == nullptr) return std::nullopt;
    cpu_stream_ref own;
    own.queue_ = detail::cpu_queue::running();
    return own;
  }

  /// Runs `work()` in stream order. Returns at once, except on the inline stream and while 256
  /// operations are queued. Work may launch into its own stream: that never waits, and uses heap
  /// memory beyond 256 operations. `work` is moved in and has at most 96 bytes. Its exceptions are
  /// rethrown by `synchronize`; on the inline stream by `launch`.
  template <class Work>
  void launch(Work work) const {
    launch_or<detail::when_full::wait>(work);
  }

  /// For checked builds: `launch` without a wait, which uses heap memory beyond 256 operations.
  template <class Work>
  void launch_without_wait(Work work) const {
    launch_or<detail::when_full::spill>(work);
  }

  /// Blocks until all work of the stream is done; rethrows its exceptions. Throws
  /// `std::logic_error` when called from the stream's own work.
  void synchronize() const {
    if (queue_ == nullptr) return;
    queue_->wait_until_completed(queue_->pushed());
    queue_->note_use();
    queue_->rethrow_error();
  }

  /// Whether all work queued so far is done. Does not wait, and does not rethrow exceptions.
  [[nodiscard]] bool is_complete() const noexcept {
    if (queue_ == nullptr) return true;
    if (queue_->completed() < queue_->pushed()) return false;
    queue_->note_use();
    return true;
  }

  /// The device that made the stream; for the inline stream, one that models nothing.
  [[nodiscard]] cpu_device device() const noexcept;

  /// For checked builds: a number that changes with each launch, copy, record and wait on the
  /// stream, and where `is_complete` has said so; `std::nullopt` for the inline stream.
  [[nodiscard]] std::optional<std::uint64_t> uses() const noexcept {
    return queue_ != nullptr ? std::optional{queue_->uses()} : std::nullopt;
  }

  friend bool operator==(cpu_stream_ref, cpu_stream_ref) = default;

 private:
  friend class cpu_device;
  cpu_stream_ref() = default;

  template <detail::when_full Full, class Work>
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

/// A stream with its own thread, which runs the queued work in order, with denormals flushed. The
/// destructor waits for all work, including work that it launches into the stream. Destroyed by its
/// own work, it does not wait; the thread ends when the work is done. Move-only; a moved-from
/// stream may be assigned to and destroyed, anything else throws `std::logic_error`. In a child
/// made by fork(), which lacks the thread, waiting throws `std::logic_error`, and the destructor
/// does not wait.
class cpu_stream {
 public:
  /// Starts the stream's thread. Throws `std::system_error` if it can't be started.
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

  /// Queues `work`, see `cpu_stream_ref::launch`.
  template <class Work>
  void launch(Work work) const {
    cpu_stream_ref{*this}.launch(std::move(work));
  }
  /// Blocks until all work of the stream is done; rethrows its exceptions.
  void synchronize() const { cpu_stream_ref{*this}.synchronize(); }
  /// Whether all work queued so far is done. Does not wait.
  [[nodiscard]] bool is_complete() const { return cpu_stream_ref{*this}.is_complete(); }
  /// The device that made the stream.
  [[nodiscard]] cpu_device device() const;

 private:
  friend class cpu_device;
  friend class cpu_stream_ref;

  static std::thread started(const std::shared_ptr<detail::cpu_queue>& queue) {
    try {
      return std::thread{[queue] { queue->run(); }};
    } catch (const std::system_error& refusal) {
      throw std::system_error(refusal.code(),
                              "cpu_stream: its thread can't be started: raise the limit on "
                              "threads (ulimit -u, the container's limit on pids)");
    }
  }

  void finish() noexcept {
    if (!thread_.joinable()) return;
    if (queue_->is_in_child()) {
      thread_.detach();  // it is not here to be waited for
      return;
    }
    queue_->push([queue = queue_.get()]() noexcept { queue->stop(); });
    if (queue_->runs_here()) {
      thread_.detach();  // it keeps the queue
    } else {
      thread_.join();
    }
  }

  std::shared_ptr<detail::cpu_queue> queue_;
  std::thread thread_;
};

inline cpu_stream_ref::cpu_stream_ref(const cpu_stream& stream) : queue_(stream.queue_.get()) {
  if (queue_ != nullptr) return;  // null is the inline stream, not asked for yet
  throw std::logic_error("penstock::cpu_stream: it was moved from, and refers to no stream");
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
