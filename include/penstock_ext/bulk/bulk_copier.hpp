// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/load/options.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/threads/support/exit_handler.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/threads/worker_pool.hpp>
#include <penstock_ext/bulk/detail/staging_copy.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A source of bytes for an upload. `size()` returns the number of bytes. `read(offset, out)` fills
/// `out` with the bytes starting at `offset`, or throws. Several threads call `read` concurrently.
/// A source may have `finish()`, which is called once after the last `read` and throws if the bytes
/// that were read are corrupt. A source may have `read_non_temporal(offset, out)`, which is
/// equivalent to `read` but uses stores that bypass the caches. An upload calls it instead of
/// `read` if a copy engine reads the pieces, and the pieces exceed the caches of the threads.
template <class S>
concept bulk_source = std::move_constructible<S> &&
                      requires(const S& source, std::uint64_t offset, std::span<std::byte> out) {
                        { source.size() } -> std::convertible_to<std::uint64_t>;
                        source.read(offset, out);
                      };

/// A destination for downloaded bytes. `write(offset, bytes)` stores a piece or throws. Several
/// threads call `write` concurrently, with pieces that do not overlap, in any order. `finish()` is
/// called once after all pieces. The bytes must become visible to others only in `finish()`. A sink
/// that is destroyed without `finish()` must leave no trace. A sink may have `size()`, in which
/// case it accepts exactly that number of bytes.
template <class S>
concept bulk_sink = std::move_constructible<S> &&
                    requires(S& sink, std::uint64_t offset, std::span<const std::byte> bytes) {
                      sink.write(offset, bytes);
                      sink.finish();
                    };

/// A `bulk_source` that reads host memory, pinned or not. The memory must not change until the
/// upload ends.
class memory_source {
 public:
  /// References `bytes`.
  explicit memory_source(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  /// Returns the number of bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  /// Copies the bytes starting at `offset` to `out`.
  void read(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
  /// Copies the bytes starting at `offset` to `out`, with stores that bypass the caches.
  void read_non_temporal(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    detail::copy_non_temporal(out.data(), bytes_.data() + offset, out.size());
  }

 private:
  std::span<const std::byte> bytes_;
};

/// A `bulk_sink` that writes to host memory, which must remain valid until the download ends.
class memory_sink {
 public:
  /// References `bytes`.
  explicit memory_sink(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}
  /// Returns the number of bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  /// Copies `bytes` to the memory starting at `offset`.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
  }
  /// Does nothing.
  void finish() noexcept {}

 private:
  std::span<std::byte> bytes_;
};

static_assert(bulk_source<memory_source> && bulk_sink<memory_sink>);

/// The device memory of an upload (`Byte` is `std::byte`) or a download (`const std::byte`).
/// Consists of one or more ranges that are contiguous in the source or sink, such as the tensors of
/// a model. The program owns the memory, which must remain valid until the transfer ends.
template <class Byte>
class device_ranges {
 public:
  /// References one range.
  template <std::convertible_to<std::span<Byte>> Range>
  device_ranges(const Range& range) : device_ranges(std::vector<std::span<Byte>>{range}) {}
  /// References several ranges, some of which may be empty.
  device_ranges(std::vector<std::span<Byte>> ranges) : ranges_(std::move(ranges)) {
    begins_.reserve(ranges_.size());
    for (const auto& range : ranges_) {
      begins_.push_back(size_);
      size_ += range.size();
    }
  }

  /// Returns the total number of bytes in all ranges.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Splits the `count` bytes starting at `offset` at range boundaries, and calls `visit(range,
  /// position)` for each part. `position` is the offset of the part within the `count` bytes.
  template <class Visit>
  void visit(std::uint64_t offset, std::size_t count, const Visit& visit) const {
    auto next = std::ranges::upper_bound(begins_, offset) - begins_.begin();
    for (std::size_t done = 0; done < count; ++next) {
      const auto i = static_cast<std::size_t>(next - 1);
      const auto skipped = static_cast<std::size_t>(offset + done - begins_[i]);
      const std::size_t part = (std::min)(ranges_[i].size() - skipped, count - done);
      if (part != 0) visit(ranges_[i].subspan(skipped, part), done);
      done += part;
    }
  }

 private:
  std::vector<std::span<Byte>> ranges_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t size_ = 0;
};

/// The options of bulk transfers. Invalid values throw `option_error`.
struct bulk_options {
  /// Number of threads that read the source or write the sink, at least 1. Use more threads if one
  /// thread is slower than the bus.
  std::size_t workers = 4;
  /// The number of bytes that are read, copied and written at a time. Must be a multiple of 4096.
  std::size_t piece_bytes = std::size_t{4} << 20;
  /// The number of page-locked pieces. `automatic` means two per worker, which fills one piece
  /// while the other is copied. If there are fewer pieces than workers, some workers are not used.
  count_or_automatic pieces = automatic;
  /// The maximum memory for the pieces. If the pieces do not fit, fewer pieces are allocated, at
  /// least one.
  std::optional<memory_budget> budget = {};
  /// If true, a download first copies the memory on the device, so that the program may change the
  /// memory directly after the call. The first such download allocates device memory of that size.
  bool snapshot = false;
  /// Stops the transfer between two pieces. The transfer then fails with `cancelled`.
  std::stop_token stop{};
};

/// The progress of a bulk transfer, in bytes.
struct bulk_progress {
  /// For an upload, bytes whose copy is queued; for a download, bytes written.
  std::uint64_t done = 0;
  std::uint64_t total = 0;  ///< total bytes of the transfer
};

/// Thrown if the source or sink and the device memory of a bulk transfer differ in size.
class [[gnu::visibility("default")]] bulk_error : public error {
 public:
  using error::error;
};

namespace detail {

/// The memory of bulk transfers, and the stream on which they are copied.
template <device Device>
class bulk_ring {
 public:
  using stream_ref = typename Device::stream_ref;
  /// The timeline of the copy stream, which marks points in its work.
  using timeline = stream_timeline<Device>;
  using point = typename timeline::point;

  /// Throws `option_error`, `pinned_budget_exceeded`, `out_of_memory`, and errors from the device.
  bulk_ring(const Device& of, const bulk_options& options)
      : device(of),
        piece_bytes(checked(options).piece_bytes),
        reserved_(reserved(options)),
        pinned_(of, reserved_.bytes(), memory_kind::pinned, piece_bytes),
        copied(static_cast<std::size_t>(reserved_.slot_count())),
        copies(of.make_stream()),
        // A transfer marks each of its pieces and its end. With this many events, an event is
        // recorded again only after a later point is known to be reached.
        ends(of, copies, 2 * (copied.size() + 1), event_wait::by_host) {}
  bulk_ring(bulk_ring&&) = delete;
  /// Frees the memory after the copies that use it.
  ~bulk_ring() { synchronize_all(copies); }

  /// Returns the memory of a page-locked piece.
  [[nodiscard]] std::byte* piece(std::size_t i) const noexcept { return pinned_.slot(i); }
  [[nodiscard]] std::size_t pieces() const noexcept { return copied.size(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return pinned_.bytes(); }
  [[nodiscard]] std::size_t device_bytes() const noexcept {
    return snapshot_ ? snapshot_->bytes() : 0;
  }
  [[nodiscard]] bool pinned() const noexcept { return pinned_.pinned(); }

  /// Copies all of `from` on the device in the order of `stream`. No copy may still be using the
  /// snapshot memory, which is replaced if it is too small. Throws `out_of_memory`, and errors from
  /// the device.
  [[nodiscard]] std::span<const std::byte> snapshot_of(const device_ranges<const std::byte>& from,
                                                       stream_ref stream) {
    const auto bytes = static_cast<std::size_t>(from.size());
    if (bytes > device_bytes()) {
      snapshot_.reset();
      snapshot_.emplace(device, bytes, memory_kind::device);
    }
    from.visit(0, bytes, [&](std::span<const std::byte> range, std::size_t position) {
      device.copy_async(snapshot_->data() + position, range.data(), range.size(), stream);
    });
    return {snapshot_ ? snapshot_->data() : nullptr, bytes};
  }

  /// Waits for all work on `stream`, which may use the memory. If the wait fails, the memory is
  /// leaked, and the next snapshot allocates new memory.
  void synchronize_all(stream_ref stream) noexcept {
    if (synchronize_before_free(device, stream)) return;
    pinned_.leak();
    if (snapshot_) snapshot_->leak();
    snapshot_.reset();
  }

  /// Returns the number of pieces specified by `options`.
  static std::size_t pieces_of(const bulk_options& options) noexcept {
    return options.pieces == automatic ? 2 * options.workers : options.pieces.value();
  }
  /// Returns `options` if they are valid. Throws `option_error` otherwise.
  static const bulk_options& checked(const bulk_options& options) {
    constexpr std::size_t max = 1024;
    constexpr std::size_t page = 4096;
    constexpr std::size_t largest = std::size_t{1} << 30;
    const auto require = [](const char* name, std::size_t value) {
      if (value >= 1 && value <= max) return;
      throw_option_error(name, {value, " is not in 1..", max});
    };
    require("workers", options.workers);
    if (options.pieces != automatic) require("pieces", options.pieces.value());
    const std::size_t bytes = options.piece_bytes;
    if (bytes == 0 || bytes % page != 0 || bytes > largest) {
      throw_option_error("piece_bytes",
                         {bytes, " is not a multiple of ", page, " in ", page, "..", largest});
    }
    return options;
  }

  [[nodiscard]] bool is_in_child() const noexcept { return process_.is_in_child(); }
  /// Throws `std::logic_error` in a child created by fork(), which does not have the threads.
  void require_own() const {
    process_.require("bulk_transfer",
                     "wait in that process, and make a separate bulk_copier in this process");
  }

  Device device;
  std::size_t piece_bytes;

 private:
  static memory_reservation reserved(const bulk_options& options) {
    const memory_budget budget = options.budget.value_or(memory_budget::bytes(~std::uint64_t{0}));
    return budget.reserve({.slot_count = pieces_of(options),
                           .min = 1,
                           .slot_bytes = options.piece_bytes,
                           .lower = "piece_bytes",
                           .raise = "budget"});
  }

  fork_guard process_{true};
  memory_reservation reserved_;
  slab<Device> pinned_;
  std::optional<slab<Device>> snapshot_;

 public:
  /// Returns the point after all copies queued so far. Propagates errors from the device.
  [[nodiscard]] point mark() {
    const auto end = ends.mark(capture_check::done);  // the library owns the stream
    end.rethrow_error();
    return end.at;
  }

  std::vector<point> copied;            // point at which the latest copy of each piece ends
  typename Device::stream_type copies;  // the destructor waits for the copies
  timeline ends;
};

/// The shared state of the threads in a bulk transfer. Each thread has its own pieces of the ring,
/// so a thread waits only for the device, the source and the sink. A child created by fork() does
/// not have the threads, and never destroys this object.
///
/// Invariant: a thread that leaves publishes its earlier actions through `running_`. The last
/// thread to leave ends the transfer, and then advances `ended_`. Only that thread and threads that
/// have seen `ended_` read `error_`.
template <device Device>
class bulk_work {
 public:
  using ring_type = bulk_ring<Device>;
  using stream_ref = typename Device::stream_ref;
  using point = typename ring_type::point;

  /// Creates a transfer of `total` bytes without starting it.
  bulk_work(std::shared_ptr<ring_type> ring, std::uint64_t total, const bulk_options& options)
      : ring_(std::move(ring)),
        stop_(options.stop),
        total_(total),
        pieces_(total / ring_->piece_bytes + (total % ring_->piece_bytes != 0 ? 1 : 0)),
        threads_((std::min)(options.workers, ring_->pieces())),
        reads_non_temporal_(!runs_host_functions<stream_ref> &&
                            prefers_non_temporal(ring_->host_bytes() / threads_)),
        begins_(ring_->device.make_event(event_wait::by_streams)),
        running_(threads_) {}
  bulk_work(bulk_work&&) = delete;
  ~bulk_work() { join(); }

  /// Makes the copies wait for all work queued on `stream` so far. Propagates errors from the
  /// device.
  void begin_after(stream_ref stream) {
    ring_->device.record(begins_, stream);
    ring_->device.wait(ring_->copies, begins_);
  }
  /// Starts the threads. Each thread calls `move(worker)`. If all calls succeed, the last thread
  /// calls `finish()`. Both functions are destroyed at the end of the transfer. Throws
  /// `std::system_error`.
  void start(std::function<void(std::size_t)> move, std::function<void()> finish) {
    move_ = std::move(move);
    finish_ = std::move(finish);
    try {
      pool_.emplace(
          threads_, [this](const std::stop_token&, std::size_t worker) { work(worker); },
          [this]() noexcept {
            if (ended_.load() == 0) cancel();
          });
    } catch (...) {  // The started threads have ended. The next line ends their copies.
      ring_->synchronize_all(ring_->copies);
      throw;
    }
  }
  /// Waits until all threads have finished. Must not be called in a child created by fork().
  void join() const noexcept {
    if (!pool_) return;
    ended_.wait([](std::uint32_t ended) { return ended != 0; }, false);
  }
  /// Ends the transfer before the next piece. Any thread may call this.
  void cancel() noexcept { is_cancelled_.store(true, std::memory_order_relaxed); }

  /// Returns the exception that ended the transfer early, or null. Call this after `join`.
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return error_; }
  /// Returns the point at which all copies of an upload end, or 0 for a download, whose copies are
  /// complete. Call this after `join`.
  [[nodiscard]] point all_copied() const noexcept { return all_; }
  [[nodiscard]] const ring_type& ring() const noexcept { return *ring_; }
  [[nodiscard]] bool was_ended() const noexcept { return ended_.load() != 0; }
  /// Marks the failure as reported. Returns true if the failure was already marked.
  bool mark_reported() noexcept { return is_reported_.exchange(true, std::memory_order_relaxed); }
  [[nodiscard]] bulk_progress progress() const noexcept {
    return {done_.load(std::memory_order_relaxed), total_};
  }

  /// Runs the part of an upload on one thread.
  template <class Source>
  void upload(const Source& source, const device_ranges<std::byte>& to, std::size_t worker) {
    ring_type& ring = *ring_;
    for (std::size_t i = worker;; i = i + threads_ < ring.pieces() ? i + threads_ : worker) {
      const auto at = claim();
      if (!at) return;
      ring.ends.wait(ring.copied[i]);
      std::byte* const from = ring.piece(i);
      read(source, at->offset, {from, at->bytes});
      to.visit(at->offset, at->bytes, [&](std::span<std::byte> range, std::size_t position) {
        copy(range.data(), from + position, range.size());
      });
      ring.copied[i] = ring.mark();
      done_.fetch_add(at->bytes, std::memory_order_relaxed);
    }
  }
  /// Marks the end of all upload copies as `all_copied`. Propagates errors from the device.
  void mark_all_copied() { all_ = ring_->mark(); }

  /// Runs the part of a download on one thread. The next pieces are copied while the thread writes
  /// a piece.
  template <class Sink>
  void download(Sink& sink, const device_ranges<const std::byte>& from, std::size_t worker) {
    ring_type& ring = *ring_;
    std::vector<claimed> own((ring.pieces() - worker + threads_ - 1) / threads_);
    const auto fill = [&](std::size_t i) {
      own[i] = claim().value_or(claimed{});
      if (own[i].bytes == 0) return;
      std::byte* const to = ring.piece(worker + i * threads_);
      from.visit(own[i].offset, own[i].bytes,
                 [&](std::span<const std::byte> range, std::size_t position) {
                   ring.device.copy_async(to + position, range.data(), range.size(), ring.copies);
                 });
      ring.copied[worker + i * threads_] = ring.mark();
    };
    for (std::size_t i = 0; i < own.size(); ++i) fill(i);
    for (std::size_t i = 0; own[i].bytes != 0; i = (i + 1) % own.size()) {
      const std::size_t piece = worker + i * threads_;
      ring.ends.wait(ring.copied[piece]);
      sink.write(own[i].offset, {ring.piece(piece), own[i].bytes});
      done_.fetch_add(own[i].bytes, std::memory_order_relaxed);
      fill(i);
    }
  }

 private:
  struct claimed {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };

  template <class Source>
  void read(const Source& source, std::uint64_t offset, std::span<std::byte> out) const {
    if constexpr (requires { source.read_non_temporal(offset, out); }) {
      if (reads_non_temporal_) return source.read_non_temporal(offset, out);
    }
    source.read(offset, out);
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    const Device& device = ring_->device;
    const stream_ref copies = ring_->copies;
    if constexpr (requires { device.copy_to_device(to, from, bytes, copies); }) {
      device.copy_to_device(to, from, bytes, copies);
    } else {
      device.copy_async(to, from, bytes, copies);
    }
  }

  /// Claims the next piece. Returns `std::nullopt` if all pieces are claimed or the transfer has
  /// failed. Throws `cancelled` if the transfer was cancelled or a stop was requested.
  std::optional<claimed> claim() {
    if (has_failed_.load(std::memory_order_relaxed)) return {};
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= pieces_) return {};
    if (is_cancelled_.load(std::memory_order_relaxed) || stop_.stop_requested()) {
      throw cancelled(str_cat({"cancelled: a bulk transfer was stopped after ",
                               done_.load(std::memory_order_relaxed), " of ", total_, " bytes"}));
    }
    const std::uint64_t offset = number * ring_->piece_bytes;
    return claimed{offset, static_cast<std::size_t>(
                               (std::min)(total_ - offset, std::uint64_t{ring_->piece_bytes}))};
  }

  void work(std::size_t worker) noexcept {
    const exit_handler handler{[this] { exit(); }};
    guard([&] {
      ring_->device.make_current();
      move_(worker);
    });
    leave();
  }
  /// Marks the transfer as cancelled because a source or sink has called `exit()` on this thread.
  void exit() noexcept {
    guard([] { throw cancelled("cancelled: exit() was called in a bulk transfer"); });
    if (running_.load(std::memory_order_relaxed) == 0) return end();  // called by `finish`
    leave();
  }
  void leave() noexcept {
    // Release and acquire ordering: the last thread sees the effects of all threads.
    if (running_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (!has_failed_.load(std::memory_order_relaxed)) guard(finish_);
    end();
  }
  void end() noexcept {
    // After a failure, queued copies must no longer use the memory of the program.
    if (has_failed_.load(std::memory_order_relaxed)) ring_->synchronize_all(ring_->copies);
    move_ = nullptr;  // Also destroys the source or sink. An unfinished sink leaves no trace.
    finish_ = nullptr;
    ended_.store(1);
  }
  template <class Call>
  void guard(const Call& call) noexcept {
    try {
      call();
    } catch (...) {
      if (!has_failed_.exchange(true, std::memory_order_relaxed)) {
        error_ = std::current_exception();
      }
    }
  }

  std::shared_ptr<ring_type> ring_;
  std::stop_token stop_;
  std::uint64_t total_;
  std::uint64_t pieces_;
  std::size_t threads_;
  // False on the CPU device, whose copies run on a core that finds the pieces in its caches.
  bool reads_non_temporal_;
  typename Device::event_type begins_;
  point all_ = 0;  // end of an upload, set after all copies are queued
  std::function<void(std::size_t)> move_;
  std::function<void()> finish_;
  std::atomic<std::uint64_t> next_{0};     // relaxed, because each piece is claimed by one thread
  std::atomic<std::uint64_t> done_{0};     // relaxed, because it is only displayed
  std::atomic<bool> is_cancelled_{false};  // relaxed; noticed within two pieces
  // Relaxed ordering suffices, because only the thread that sets the flag writes `error_`.
  std::atomic<bool> has_failed_{false};
  std::exception_ptr error_;
  std::atomic<bool> is_reported_{false};  // relaxed, because it does not order other data
  std::atomic<std::size_t> running_;      // number of threads that have not left
  waitable_counter ended_;
  std::optional<worker_pool<std::function<void(std::stop_token, std::size_t)>,
                            std::function<void()>>>
      pool_;  // declared last, because its threads use the other members
};

}  // namespace detail

/// The handle of a running transfer (see `upload` and `download`). Move-only. Only one thread at a
/// time may use a handle, but any thread may call `progress`, `done` and `cancel`.
///
/// The destructor waits for the end of the transfer, so that a started checkpoint is completely
/// written. Call `cancel` first to shorten the wait. The destructor never throws. An exception that
/// was not retrieved is printed to stderr. In a child created by fork(), the destructor does not
/// wait, and `wait` throws `std::logic_error`.
template <device Device>
class bulk_transfer {
  using work_type = detail::bulk_work<Device>;

 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  /// Creates a handle without a transfer. Such a handle counts as ended, so its functions never
  /// wait.
  bulk_transfer() = default;
  /// Creates the handle of `work`. Intended for `bulk_copier`.
  explicit bulk_transfer(std::shared_ptr<work_type> work) noexcept : work_(std::move(work)) {}
  bulk_transfer(bulk_transfer&&) noexcept = default;
  bulk_transfer& operator=(bulk_transfer&& other) noexcept {
    if (this != &other) {
      end();
      work_ = std::move(other.work_);
    }
    return *this;
  }
  ~bulk_transfer() { end(); }

  /// Blocks until the transfer is complete. An upload is complete when it is in device memory, and
  /// a download is complete when the sink has finished. Throws the exception of the source, the
  /// sink or the device, or `cancelled`. After a failed upload, the contents of the device memory
  /// are unspecified, but no copy writes to it any longer.
  void wait() {
    const auto work = work_;  // During `exit()`, another thread may destroy this object.
    const auto all = joined(work.get());
    if (all == 0) return;
    work->mark_reported();  // The caller receives the device error now.
    work->ring().ends.wait(all);
  }
  /// Makes all later work on `stream` wait for the copies of an upload. Blocks only until the
  /// source is read, and not until the copies are complete. Throws the same errors as `wait()` and
  /// as `require_usable` of the device.
  void wait(stream_ref stream) {
    const auto work = work_;
    const auto all = joined(work.get());
    if (all == 0) return;
    work->ring().device.require_usable(stream);
    work->ring().ends.wait(all, stream);
  }

  /// Returns true if `wait` would not block. Propagates errors from the device.
  [[nodiscard]] bool done() const {
    if (work_ == nullptr || work_->ring().is_in_child()) return true;
    if (!work_->was_ended()) return false;
    return work_->failure() != nullptr || work_->ring().ends.reached(work_->all_copied());
  }
  /// Returns the number of bytes moved so far, and the total.
  [[nodiscard]] bulk_progress progress() const noexcept {
    return work_ == nullptr ? bulk_progress{} : work_->progress();
  }
  /// Stops the transfer before its next piece, and makes it fail with `cancelled`. Has no effect if
  /// all pieces have begun. Does not wait.
  void cancel() noexcept {
    if (work_ != nullptr) work_->cancel();
  }

 private:
  /// Waits for the threads, and throws the exception that ended them early. Returns the point at
  /// which all copies end, or 0 if no copy remains to wait for.
  [[nodiscard]] static typename work_type::point joined(work_type* work) {
    if (work == nullptr) return 0;
    work->ring().require_own();
    work->join();
    if (work->failure() == nullptr) return work->all_copied();
    work->mark_reported();
    std::rethrow_exception(work->failure());
  }
  void end() noexcept {
    if (work_ == nullptr) return;
    const bool was_reported = work_->mark_reported();
    try {
      if (!work_->ring().is_in_child()) wait();
    } catch (...) {
      if (!was_reported) detail::print_unhandled("bulk transfer: an", std::current_exception());
    }
    work_.reset();
  }

  std::shared_ptr<work_type> work_;
};

/// Runs bulk transfers one after another, and owns their memory. Page-locked pieces are allocated
/// at construction, and device memory for snapshots is allocated at the first snapshot. Use a
/// copier for checkpoints, so that they do not allocate or free memory while the step runs. Only
/// one thread at a time may use a copier. Transfers may outlive the copier. In a child created by
/// fork(), its functions throw `std::logic_error`.
template <device Device = cpu_device>
class bulk_copier {
 public:
  /// The device type.
  using device_type = Device;
  /// A reference to a stream of the device.
  using stream_ref = typename Device::stream_ref;
  /// The handle of a transfer.
  using transfer_type = bulk_transfer<Device>;

  /// Throws `option_error`, `pinned_budget_exceeded`, `out_of_memory`, and errors from the device.
  explicit bulk_copier(const Device& device, bulk_options options = {})
      : options_(std::move(options)),
        ring_(std::make_shared<detail::bulk_ring<Device>>(device, options_)) {}

  /// Copies all of `source` to the device memory `to`, after the work queued on `stream` so far.
  /// Threads read the source. Blocks only while the previous transfer is running. The program may
  /// use `to` after `wait`, or on a stream after `wait(stream)`. Throws `bulk_error` unless
  /// `source` and `to` have the same size, `std::system_error` if a thread cannot be started, and
  /// errors from the device.
  template <bulk_source Source>
  [[nodiscard]] transfer_type upload(stream_ref stream, device_ranges<std::byte> to,
                                     Source source) {
    require_same_size("upload: the source", source.size(), to.size());
    const auto work = prepared(stream, to.size());
    const auto from = std::make_shared<Source>(std::move(source));
    work->begin_after(stream);
    work->start([at = work.get(), from, to = std::move(to)](
                    std::size_t worker) { at->upload(std::as_const(*from), to, worker); },
                [at = work.get(), from] {
                  if constexpr (requires { from->finish(); }) from->finish();
                  at->mark_all_copied();
                });
    return transfer_type{last_ = work};
  }

  /// Copies the device memory `from` to `sink`, with the contents after the work queued on `stream`
  /// so far. With `snapshot`, the call queues one copy on the device, and later work on `stream`
  /// may change `from`. Without `snapshot`, `from` must not change until `wait` returns. Threads
  /// write the sink. Blocks like `upload`. Throws the same errors as `upload`, and `out_of_memory`.
  template <bulk_sink Sink>
  [[nodiscard]] transfer_type download(stream_ref stream, Sink sink,
                                       device_ranges<const std::byte> from) {
    if constexpr (requires { sink.size(); }) {
      require_same_size("download: the sink", sink.size(), from.size());
    }
    const auto work = prepared(stream, from.size());
    const auto to = std::make_shared<Sink>(std::move(sink));  // before any work is queued
    try {
      if (options_.snapshot) from = ring_->snapshot_of(from, stream);
      work->begin_after(stream);
      work->start([at = work.get(), to,
                   from = std::move(from)](std::size_t worker) { at->download(*to, from, worker); },
                  [to] { to->finish(); });
    } catch (...) {  // Copies to the snapshot may be queued, and no later call would wait for them.
      if (options_.snapshot) ring_->synchronize_all(stream);
      throw;
    }
    return transfer_type{last_ = work};
  }

  /// Returns the size of the page-locked memory in bytes.
  [[nodiscard]] std::size_t host_bytes() const noexcept { return ring_->host_bytes(); }
  /// Returns the size of the device memory for snapshots in bytes.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return ring_->device_bytes(); }
  /// Returns true if the host memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return ring_->pinned(); }

 private:
  static void require_same_size(const char* what, std::uint64_t found, std::uint64_t expected) {
    if (found == expected) return;
    throw bulk_error(detail::str_cat({what, " has ", found, " bytes, but the device memory has ",
                                      expected, ": give both the same size"}));
  }
  /// Creates a transfer, after the previous transfer has released the memory.
  [[nodiscard]] std::shared_ptr<detail::bulk_work<Device>> prepared(stream_ref stream,
                                                                    std::uint64_t bytes) {
    ring_->require_own();
    ring_->device.require_usable(stream);
    if (last_ != nullptr) last_->join();
    last_.reset();
    using work = detail::bulk_work<Device>;
    return {new work{ring_, bytes, options_}, [](const work* one) {
              if (!one->ring().is_in_child()) delete one;
            }};
  }

  bulk_options options_;
  std::shared_ptr<detail::bulk_ring<Device>> ring_;
  std::shared_ptr<detail::bulk_work<Device>> last_;
};

namespace detail {

/// Creates a copier for one transfer of `bytes` bytes, with only the memory that this transfer
/// needs.
template <device Device>
[[nodiscard]] bulk_copier<Device> copier_of(const Device& device, bulk_options options,
                                            std::uint64_t bytes) {
  static_cast<void>(bulk_ring<Device>::checked(options));
  constexpr std::uint64_t page = 4096;
  const std::uint64_t rounded =
      (std::max)(bytes / page + (bytes % page != 0 ? 1 : 0), std::uint64_t{1}) * page;
  if (options.piece_bytes > rounded) options.piece_bytes = static_cast<std::size_t>(rounded);
  const std::uint64_t max = (rounded - 1) / options.piece_bytes + 1;
  if (bulk_ring<Device>::pieces_of(options) > max) options.pieces = static_cast<std::size_t>(max);
  return bulk_copier<Device>{device, std::move(options)};
}

}  // namespace detail

/// Calls `bulk_copier::upload` on a temporary copier, whose memory is freed with the transfer:
///
///     auto loading = ps::upload(device, stream, weights, ps::memory_source{bytes});
///     loading.wait(stream);  // later work on the stream sees the weights
///
template <device Device, bulk_source Source>
[[nodiscard]] bulk_transfer<Device> upload(const Device& device, typename Device::stream_ref stream,
                                           device_ranges<std::byte> to, Source source,
                                           bulk_options options = {}) {
  return detail::copier_of(device, std::move(options), to.size())
      .upload(stream, std::move(to), std::move(source));
}

/// Calls `bulk_copier::download` on a temporary copier, whose memory is freed with the transfer.
template <device Device, bulk_sink Sink>
[[nodiscard]] bulk_transfer<Device> download(const Device& device,
                                             typename Device::stream_ref stream, Sink sink,
                                             device_ranges<const std::byte> from,
                                             bulk_options options = {}) {
  return detail::copier_of(device, std::move(options), from.size())
      .download(stream, std::move(sink), std::move(from));
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
