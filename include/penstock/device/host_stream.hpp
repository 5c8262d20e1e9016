#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/core/float_mode.hpp>
#include <penstock/core/sequence.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// What a host device pretends to be. Zero means: as fast as the machine is. A modelled delay waits
/// and does not burn the core, so overlap can be shown and tested on few cores.
struct host_device_options {
  /// The time a copy takes is at least its bytes divided by this.
  double copy_bytes_per_second = 0.0;
  /// The time from a launch or a copy reaching the head of its stream to its start.
  std::chrono::nanoseconds launch_latency{0};
};

namespace detail {

using host_clock = std::chrono::steady_clock;

/// The queue of one host stream: a bounded ring of operations that are held inline, run in order by
/// one thread. Threads that push take a lock; the running thread never does.
class host_queue : public std::enable_shared_from_this<host_queue> {
 public:
  static constexpr std::size_t capacity = 256;
  static constexpr std::size_t operation_bytes = PENSTOCK_CHECKED ? 240 : 112;  // larger views

  explicit host_queue(const host_device_options& options) : options_(options) {}
  host_queue(host_queue&&) = delete;

  [[nodiscard]] const host_device_options& options() const noexcept { return options_; }

  /// Appends `work`; waits while the ring is full. `work` is moved in and destroyed after its run.
  template <class Work>
  void push(Work work) {
    static_assert(sizeof(Work) <= operation_bytes && alignof(Work) <= alignof(std::max_align_t),
                  "penstock: work for a host stream is held inline: capture at most 96 bytes, "
                  "larger state by pointer");
    static_assert(std::is_nothrow_move_constructible_v<Work>);
    const std::lock_guard lock{push_};
    const std::uint64_t position = pushed_.load(std::memory_order_relaxed);
    completed_signal_.wait([&](std::uint32_t) { return position - completed() < capacity; });
    operation& slot = ring_[position % capacity];
    ::new (static_cast<void*>(slot.storage)) Work(std::move(work));
    slot.run = [](void* storage) {
      struct destroyed_after_run {
        Work& work;
        ~destroyed_after_run() { work.~Work(); }
      } holder{*std::launder(static_cast<Work*>(storage))};
      holder.work();
    };
    // Invariant: operations below pushed_ are complete to read; who loads pushed_ acquires them.
    pushed_.store(position + 1, std::memory_order_release);
    pushed_signal_.store(static_cast<std::uint32_t>(position + 1));
  }

  /// Runs `work` at once on the calling thread if nothing is queued; false otherwise. In order all the
  /// same: whoever pushes next does so behind the lock, and events recorded now mark what is complete.
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
  void wait_until_completed(std::uint64_t position) const noexcept {
    completed_signal_.wait([&](std::uint32_t) { return completed() >= position; });
  }

  /// The body of the stream's thread: runs operations until one of them calls `stop`.
  void run() noexcept {
    flushed_denormals::keep_on();
    mark_stream_thread();
    // Modelled delays are shorter than the kernel's default timer slack of 50 us.
    if (is_modelled()) ::prctl(PR_SET_TIMERSLACK, 1UL);
    std::uint64_t position = 0;
    while (!stopped_) {
      pushed_signal_.wait([&](std::uint32_t) { return pushed() > position; });
      operation& next = ring_[position % capacity];
      try {
        next.run(next.storage);
      } catch (...) {
        keep_error(std::current_exception());
      }
      completed_.store(++position, std::memory_order_release);
      completed_signal_.store(static_cast<std::uint32_t>(position));
    }
  }

  /// Called by the last operation, on the stream's thread.
  void stop() noexcept { stopped_ = true; }

  [[nodiscard]] bool is_modelled() const noexcept {
    return options_.copy_bytes_per_second > 0.0 || options_.launch_latency.count() > 0;
  }

  /// The earliest moment at which an operation queued at `queued` may start. Delays count from the
  /// end of the one before as modelled, so that late wake-ups do not add up.
  [[nodiscard]] host_clock::time_point start_of(host_clock::time_point queued) const noexcept {
    return (std::max)(queued, busy_until_) + options_.launch_latency;
  }
  void busy_until(host_clock::time_point moment) noexcept { busy_until_ = moment; }

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
  struct operation {
    void (*run)(void*);
    alignas(std::max_align_t) std::byte storage[operation_bytes];
  };

  void keep_error(std::exception_ptr error) noexcept {
    const std::lock_guard lock{error_};
    if (!kept_error_) kept_error_ = std::move(error);
  }

  host_device_options options_;
  std::mutex push_;
  std::mutex error_;
  std::exception_ptr kept_error_;
  std::atomic<std::uint64_t> uses_{0};   // counts, and orders nothing
  bool stopped_ = false;                 // of the stream's thread
  host_clock::time_point busy_until_{};  // of the stream's thread
  std::array<operation, capacity> ring_;
  // 64 bits count, so that an event recorded billions of operations ago stays complete; the 32-bit
  // words beside them are what threads sleep on.
  alignas(cache_line) std::atomic<std::uint64_t> pushed_{0};
  sequence pushed_signal_;
  alignas(cache_line) std::atomic<std::uint64_t> completed_{0};
  sequence completed_signal_;
};

/// Runs `work` at `start`, or later where the thread wakes late. Returns the modelled end: `start` and
/// the time of the work, without the lateness.
template <class Work>
host_clock::time_point modelled_run(host_clock::time_point start, Work&& work) {
  std::this_thread::sleep_until(start);
  const auto begin = host_clock::now();
  work();
  return start + (host_clock::now() - begin);
}

/// Copies like memcpy, and takes as long as the modelled bus would. Returns the modelled end.
inline host_clock::time_point modelled_copy(void* to, const void* from, std::size_t bytes,
                                            const host_device_options& options,
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

}  // namespace detail

class host_stream;
class host_device;

/// A mark in a host stream: "all that was given to the stream before". Never recorded: complete.
/// Used by one thread at a time.
class host_event {
 public:
  host_event() = default;
  host_event(host_event&&) noexcept = default;
  host_event& operator=(host_event&&) noexcept = default;

 private:
  friend class host_device;
  // The queue is shared, so that the mark stays valid when the stream is gone.
  std::shared_ptr<detail::host_queue> queue_;
  std::uint64_t position_ = 0;
};

/// Refers to a host stream, or is the calling thread itself: work given to the inline stream runs at
/// once on the thread that gives it, and a wait blocks that thread.
class host_stream_ref {
 public:
  /// Refers to `stream`, which must outlive it.
  host_stream_ref(host_stream& stream) noexcept;  // NOLINT: implicit by intent
  host_stream_ref(std::nullptr_t) = delete;
  host_stream_ref(int) = delete;

  /// The stream that is the calling thread itself.
  [[nodiscard]] static host_stream_ref calling_thread() noexcept { return host_stream_ref{}; }

  /// Runs `work()` behind all that was given to the stream before. Returns at once but for the
  /// inline stream. `work` is moved in: at most 96 bytes. What it throws, `synchronize` throws; on
  /// the inline stream `launch` itself.
  template <class Work>
  void launch(Work work) const {
    if (queue_ == nullptr) {
      work();
    } else if (queue_->is_modelled()) {
      queue_->push(
          [queue = queue_, queued = detail::host_clock::now(), work = std::move(work)]() mutable {
            queue->busy_until(detail::modelled_run(queue->start_of(queued), work));
          });
    } else {
      queue_->push(std::move(work));
    }
  }

  /// For checked builds: a number that moves with each launch into the stream, copy, record, and wait
  /// for it; nothing for the inline stream.
  [[nodiscard]] std::optional<std::uint64_t> uses() const noexcept {
    return queue_ != nullptr ? std::optional{queue_->uses()} : std::nullopt;
  }

  friend bool operator==(host_stream_ref, host_stream_ref) = default;

 private:
  friend class host_device;
  host_stream_ref() = default;

  detail::host_queue* queue_ = nullptr;
};

/// Owns a thread that runs the work given to the stream, in order, with denormals flushed. The
/// destructor waits for all of it. Move-only; a moved-from stream may be assigned to and destroyed.
class host_stream {
 public:
  /// Starts the stream's thread. Throws `std::system_error` when the system refuses one.
  explicit host_stream(const host_device_options& options = {})
      : queue_(std::make_shared<detail::host_queue>(options)), thread_(started(queue_)) {}

  host_stream(host_stream&&) noexcept = default;
  host_stream& operator=(host_stream&& other) noexcept {
    if (this != &other) {
      finish();
      queue_ = std::move(other.queue_);
      thread_ = std::move(other.thread_);
    }
    return *this;
  }
  ~host_stream() { finish(); }

  /// Queues `work`, see `host_stream_ref::launch`.
  template <class Work>
  void launch(Work work) {
    host_stream_ref{*this}.launch(std::move(work));
  }

 private:
  friend class host_device;
  friend class host_stream_ref;

  static std::thread started(const std::shared_ptr<detail::host_queue>& queue) {
    try {
      return std::thread{[queue] { queue->run(); }};
    } catch (const std::system_error& refusal) {
      throw std::system_error(refusal.code(),
                              "host_stream: its thread can't be started: raise the limit on "
                              "threads (ulimit -u, the container's limit on pids)");
    }
  }

  void finish() noexcept {
    if (!thread_.joinable()) return;
    queue_->push([queue = queue_.get()]() noexcept { queue->stop(); });
    thread_.join();
  }

  std::shared_ptr<detail::host_queue> queue_;
  std::thread thread_;
};

inline host_stream_ref::host_stream_ref(host_stream& stream) noexcept
    : queue_(stream.queue_.get()) {}

}  // namespace penstock::inline PENSTOCK_ABI
