// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/device/detail/cpu_queue.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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
