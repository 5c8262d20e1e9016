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
#include <penstock/load/options.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/threads/worker_pool.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The bytes that an upload brings to the device. `size()` is their number. `read(offset, out)`
/// fills `out`, which lies within that size, or throws; several threads call it at once. A source
/// may have `finish()`, called once after the last `read`, which throws if what was read is
/// damaged.
template <class S>
concept bulk_source = std::move_constructible<S> &&
                      requires(const S& source, std::uint64_t offset, std::span<std::byte> out) {
                        { source.size() } -> std::convertible_to<std::uint64_t>;
                        source.read(offset, out);
                      };

/// Where the bytes of a download go. `write(offset, bytes)` takes a piece or throws; several
/// threads call it at once, with pieces that do not overlap, in any order. `finish()` is called
/// once, after all of them: only what is finished may be seen by others. A sink that is destroyed
/// before has to leave no trace. A sink may have `size()`, the only number of bytes that it takes.
template <class S>
concept bulk_sink = std::move_constructible<S> &&
                    requires(S& sink, std::uint64_t offset, std::span<const std::byte> bytes) {
                      sink.write(offset, bytes);
                      sink.finish();
                    };

/// A `bulk_source` of host memory, pinned or not, which must stay as it is until the upload ends.
class memory_source {
 public:
  /// Of these bytes.
  explicit memory_source(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  /// How many there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  /// Copies those from `offset` on to `out`.
  void read(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

 private:
  std::span<const std::byte> bytes_;
};

/// A `bulk_sink` of host memory, which must stay until the download ends.
class memory_sink {
 public:
  /// Fills these bytes.
  explicit memory_sink(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}
  /// How many there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  /// Copies `bytes` to those from `offset` on.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
  }
  /// Does nothing.
  void finish() noexcept {}

 private:
  std::span<std::byte> bytes_;
};

static_assert(bulk_source<memory_source> && bulk_sink<memory_sink>);

/// Device memory of an upload (`Byte` is `std::byte`) or a download (`const std::byte`): one range,
/// or several that follow each other in the source or sink without a gap, such as the tensors of a
/// model. The memory is the program's, and must stay until the transfer ends.
template <class Byte>
class device_ranges {
 public:
  /// One range.
  template <std::convertible_to<std::span<Byte>> Range>
  device_ranges(const Range& range) : device_ranges(std::vector<std::span<Byte>>{range}) {}
  /// Several ranges, some of which may be empty.
  device_ranges(std::vector<std::span<Byte>> ranges) : ranges_(std::move(ranges)) {
    begins_.reserve(ranges_.size());
    for (const auto& range : ranges_) {
      begins_.push_back(size_);
      size_ += range.size();
    }
  }

  /// The number of bytes of all ranges.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Calls `visit(range, position)` for each part of a range among the `count` bytes from `offset`
  /// on; `position` is where among those it begins.
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

/// The options of bulk transfers. Bad values throw `option_error`.
struct bulk_options {
  /// Threads that read the source or write the sink. More are needed where one of them is slower
  /// than the bus. At least 1.
  std::size_t workers = 4;
  /// The bytes that are read, copied and written at once: a multiple of 4096.
  std::size_t piece_bytes = std::size_t{4} << 20;
  /// Page-locked pieces. `automatic`: two for each worker, which fills one while the other is
  /// copied. Fewer pieces than workers leave workers out.
  std::size_t pieces = automatic;
  /// The most memory that the pieces may take: fewer are taken where they do not fit, at least one.
  std::optional<memory_budget> budget = {};
  /// Whether a download first copies what it downloads on the device: the program may change it
  /// right after the call. Takes device memory of that size at the first such download.
  bool snapshot = false;
  /// A request ends the transfer with `cancelled`, between two pieces.
  std::stop_token stop{};
};

/// How far a bulk transfer is. Bytes.
struct bulk_progress {
  std::uint64_t done = 0;   ///< an upload: whose copy is queued; a download: that are written
  std::uint64_t total = 0;  ///< of the whole transfer
};

/// A bulk transfer whose two sides differ in size.
class [[gnu::visibility("default")]] bulk_error : public error {
 public:
  using error::error;
};

namespace detail {

/// The memory of bulk transfers, and the stream of their copies.
template <device Device>
class bulk_ring {
 public:
  using stream_ref = typename Device::stream_ref;

  /// Throws `option_error`, `pinned_budget_exceeded`, `out_of_memory`, and what the device throws.
  bulk_ring(const Device& of, const bulk_options& options)
      : device(of),
        piece_bytes(checked(options).piece_bytes),
        reserved_(reserved(options)),
        pinned_(of, reserved_.bytes(), memory_kind::pinned, piece_bytes),
        copies(of.make_stream()) {
    for (std::uint64_t i = 0; i < reserved_.slot_count(); ++i) {
      copied.push_back(of.make_event(event_wait::by_host));
    }
  }
  bulk_ring(bulk_ring&&) = delete;

  /// The memory of a page-locked piece.
  [[nodiscard]] std::byte* piece(std::size_t i) const noexcept {
    return pinned_.slot(i, piece_bytes);
  }
  [[nodiscard]] std::size_t pieces() const noexcept { return copied.size(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return pinned_.bytes(); }
  [[nodiscard]] std::size_t device_bytes() const noexcept {
    return snapshot_ ? snapshot_->bytes() : 0;
  }
  [[nodiscard]] bool pinned() const noexcept { return pinned_.pinned(); }

  /// Copies all of `from` on the device, in the order of `stream`. No copy may still use the
  /// memory, which is replaced by a larger one where it has no room. Throws `out_of_memory`, and
  /// what the device throws.
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

  /// `options`, or throws `option_error`.
  static const bulk_options& checked(const bulk_options& options) {
    constexpr std::size_t most = 1024;
    constexpr std::size_t page = 4096;
    constexpr std::size_t largest = std::size_t{1} << 30;
    const auto require = [](const char* name, std::size_t value) {
      if (value >= 1 && value <= most) return;
      refuse_option(name, {value, " is not in 1..", most});
    };
    require("workers", options.workers);
    if (options.pieces != automatic) require("pieces", options.pieces);
    const std::size_t bytes = options.piece_bytes;
    if (bytes == 0 || bytes % page != 0 || bytes > largest) {
      refuse_option("piece_bytes",
                    {bytes, " is not a multiple of ", page, " in ", page, "..", largest});
    }
    return options;
  }

  [[nodiscard]] bool is_in_child() const noexcept { return process_.is_in_child(); }
  /// Throws `std::logic_error` in a child made by fork(), which has none of the threads.
  void require_own() const {
    process_.require("bulk_transfer", "wait there, and make a bulk_copier here");
  }

  Device device;
  std::size_t piece_bytes;

 private:
  static memory_reservation reserved(const bulk_options& options) {
    const memory_budget budget = options.budget.value_or(memory_budget::bytes(~std::uint64_t{0}));
    return budget.reserve(
        {.slot_count = options.pieces == automatic ? 2 * options.workers : options.pieces,
         .least = 1,
         .slot_bytes = options.piece_bytes,
         .lower = "piece_bytes",
         .raise = "budget"});
  }

  fork_guard process_{true};
  memory_reservation reserved_;
  slab<Device> pinned_;
  std::optional<slab<Device>> snapshot_;

 public:
  std::vector<typename Device::event_type> copied;  // by piece: after its latest copy
  typename Device::stream_type copies;              // last: its end waits for the copies
};

/// One bulk transfer: what its threads share. Each thread has pieces of the ring for itself, so a
/// thread waits for nothing but the device, the source and the sink. It is never destroyed in a
/// child made by fork(), which has none of the threads.
///
/// Invariant: a thread that leaves has noted all that it did before, in `running_`; the last one
/// ends the transfer, and then advances `ended_`. Only that thread and those that have seen
/// `ended_` read `error_`.
template <device Device>
class bulk_work {
 public:
  using ring_type = bulk_ring<Device>;
  using stream_ref = typename Device::stream_ref;

  /// A transfer of so many bytes that has not begun.
  bulk_work(std::shared_ptr<ring_type> ring, std::uint64_t total, const bulk_options& options)
      : ring_(std::move(ring)),
        stop_(options.stop),
        total_(total),
        pieces_(total / ring_->piece_bytes + (total % ring_->piece_bytes != 0 ? 1 : 0)),
        threads_((std::min)(options.workers, ring_->pieces())),
        begins_(ring_->device.make_event(event_wait::by_streams)),
        running_(threads_) {}
  bulk_work(bulk_work&&) = delete;
  ~bulk_work() { join(); }

  /// Copies begin after all work that `stream` has been given. Throws what the device throws.
  void begin_after(stream_ref stream) {
    ring_->device.record(begins_, stream);
    ring_->device.wait(ring_->copies, begins_);
  }
  /// Starts the threads: `move(worker)` on each, and `finish()` on the last one if all went well;
  /// both are destroyed at the end. Throws `std::system_error`.
  void start(std::function<void(std::size_t)> move, std::function<void()> finish) {
    move_ = std::move(move);
    finish_ = std::move(finish);
    try {
      pool_.emplace(
          threads_, [this](const std::stop_token&, std::size_t worker) { work(worker); },
          [this]() noexcept {
            if (ended_.load() == 0) cancel();
          });
    } catch (...) {  // those that had started have ended, and so has what they queued, below
      settle(ring_->device, ring_->copies);
      throw;
    }
  }
  /// Waits until no thread does anything any more. Not in a child made by fork().
  void join() const noexcept {
    if (!pool_) return;
    ended_.wait([](std::uint32_t ended) { return ended != 0; }, false);
  }
  /// Ends the transfer before the next piece. From any thread.
  void cancel() noexcept { is_cancelled_.store(true, std::memory_order_relaxed); }

  /// What ended the transfer early, if something did. After `join`.
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return error_; }
  /// After all copies of an upload; null for a download, whose copies are complete. After `join`.
  [[nodiscard]] const typename Device::event_type* all_copied() const noexcept {
    return all_ ? &*all_ : nullptr;
  }
  [[nodiscard]] const Device& device() const noexcept { return ring_->device; }
  [[nodiscard]] const ring_type& ring() const noexcept { return *ring_; }
  [[nodiscard]] bool was_ended() const noexcept { return ended_.load() != 0; }
  [[nodiscard]] bulk_progress progress() const noexcept {
    return {done_.load(std::memory_order_relaxed), total_};
  }

  /// One thread's part of an upload.
  template <class Source>
  void upload(const Source& source, const device_ranges<std::byte>& to, std::size_t worker) {
    ring_type& ring = *ring_;
    for (std::size_t i = worker;; i = i + threads_ < ring.pieces() ? i + threads_ : worker) {
      const auto at = claim();
      if (!at) return;
      ring.device.synchronize(ring.copied[i]);
      std::byte* const from = ring.piece(i);
      source.read(at->offset, {from, at->bytes});
      to.visit(at->offset, at->bytes, [&](std::span<std::byte> range, std::size_t position) {
        copy(range.data(), from + position, range.size());
      });
      ring.device.record(ring.copied[i], ring.copies);
      done_.fetch_add(at->bytes, std::memory_order_relaxed);
    }
  }
  /// The end of an upload: what waits for `all_copied` waits for all of it. Throws what the device
  /// throws.
  void mark_all_copied() {
    ring_->device.record(all_.emplace(ring_->device.make_event(event_wait::by_host)),
                         ring_->copies);
  }

  /// One thread's part of a download: while it writes a piece, those after it are copied.
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
      ring.device.record(ring.copied[worker + i * threads_], ring.copies);
    };
    for (std::size_t i = 0; i < own.size(); ++i) fill(i);
    for (std::size_t i = 0; own[i].bytes != 0; i = (i + 1) % own.size()) {
      const std::size_t piece = worker + i * threads_;
      ring.device.synchronize(ring.copied[piece]);
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

  void copy(void* to, const void* from, std::size_t bytes) {
    const Device& device = ring_->device;
    const stream_ref copies = ring_->copies;
    if constexpr (requires { device.copy_to_device(to, from, bytes, copies); }) {
      device.copy_to_device(to, from, bytes, copies);
    } else {
      device.copy_async(to, from, bytes, copies);
    }
  }

  /// The next piece, unless there is none or the transfer has failed. Throws `cancelled`.
  std::optional<claimed> claim() {
    if (has_failed_.load(std::memory_order_relaxed)) return {};
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= pieces_) return {};
    if (is_cancelled_.load(std::memory_order_relaxed) || stop_.stop_requested()) {
      throw cancelled(joined({"cancelled: a bulk transfer was stopped after ",
                              done_.load(std::memory_order_relaxed), " of ", total_, " bytes"}));
    }
    const std::uint64_t offset = number * ring_->piece_bytes;
    return claimed{offset, static_cast<std::size_t>(
                               (std::min)(total_ - offset, std::uint64_t{ring_->piece_bytes}))};
  }

  void work(std::size_t worker) noexcept {
    guard([&] {
      ring_->device.make_current();
      move_(worker);
    });
    // Release and acquire: the last thread sees what all have done.
    if (running_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (!has_failed_.load(std::memory_order_relaxed)) guard(finish_);
    // Nothing that was queued uses the program's memory after a failure.
    if (has_failed_.load(std::memory_order_relaxed)) settle(ring_->device, ring_->copies);
    move_ = nullptr;  // with source or sink, which leaves no trace where it is not finished
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
  typename Device::event_type begins_;
  std::optional<typename Device::event_type> all_;  // of an upload, when all is queued
  std::function<void(std::size_t)> move_;
  std::function<void()> finish_;
  std::atomic<std::uint64_t> next_{0};     // relaxed: each piece goes to one thread
  std::atomic<std::uint64_t> done_{0};     // relaxed: a number to show
  std::atomic<bool> is_cancelled_{false};  // relaxed: seen before the next piece, or the one after
  std::atomic<bool> has_failed_{false};    // relaxed: that thread writes `error_`
  std::exception_ptr error_;
  std::atomic<std::size_t> running_;  // threads
  waitable_counter ended_;
  std::optional<worker_pool<std::function<void(std::stop_token, std::size_t)>,
                            std::function<void()>>>
      pool_;  // last: its threads use the rest
};

}  // namespace detail

/// A transfer that is on its way, see `upload` and `download`. Move-only. One thread uses it, but
/// for `progress`, `done` and `cancel`, which any thread may call.
///
/// The destructor waits for the end: a checkpoint that was begun is written. `cancel` makes that
/// short. It never throws, and says on stderr what nobody has asked for. In a child made by fork()
/// it waits for nothing, and `wait` throws `std::logic_error`.
template <device Device>
class bulk_transfer {
  using work_type = detail::bulk_work<Device>;

 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  /// No transfer: it has ended, and waits for nothing.
  bulk_transfer() = default;
  /// For `bulk_copier`.
  explicit bulk_transfer(std::shared_ptr<work_type> work) noexcept : work_(std::move(work)) {}
  bulk_transfer(bulk_transfer&&) noexcept = default;
  bulk_transfer& operator=(bulk_transfer&& other) noexcept {
    if (this != &other) {
      end();
      work_ = std::move(other.work_);
      is_reported_ = other.is_reported_;
    }
    return *this;
  }
  ~bulk_transfer() { end(); }

  /// Blocks until the transfer is complete: an upload is in device memory, a download is finished
  /// by its sink. Throws what the source, the sink or the device has thrown, or `cancelled`: an
  /// upload has then left any bytes in its device memory, which nothing writes to any more.
  void wait() {
    const auto* const all = joined();
    if (all == nullptr) return;
    is_reported_ = true;  // what the device throws now
    work_->device().synchronize(*all);
  }
  /// Makes all later work of `stream` wait for the copies of an upload. Blocks only until the
  /// source is read, and not until the copies are complete. Throws as `wait`, and what
  /// `require_usable` of the device throws.
  void wait(stream_ref stream) {
    const auto* const all = joined();
    if (all == nullptr) return;
    work_->device().require_usable(stream);
    work_->device().wait(stream, *all);
  }

  /// Whether `wait` would not block. Throws what the device throws.
  [[nodiscard]] bool done() const {
    if (work_ == nullptr || work_->ring().is_in_child()) return true;
    if (!work_->was_ended()) return false;
    const auto* const all = work_->all_copied();
    return all == nullptr || work_->failure() != nullptr || work_->device().is_complete(*all);
  }
  /// How far it is.
  [[nodiscard]] bulk_progress progress() const noexcept {
    return work_ == nullptr ? bulk_progress{} : work_->progress();
  }
  /// Ends the transfer before its next pieces, with `cancelled`, unless all of them have begun.
  /// Does not wait.
  void cancel() noexcept {
    if (work_ != nullptr) work_->cancel();
  }

 private:
  /// Waits for the threads; throws what has ended them early. The event after all copies, if there
  /// are any to wait for.
  [[nodiscard]] const typename Device::event_type* joined() {
    if (work_ == nullptr) return nullptr;
    work_->ring().require_own();
    work_->join();
    if (work_->failure() == nullptr) return work_->all_copied();
    is_reported_ = true;
    std::rethrow_exception(work_->failure());
  }
  void end() noexcept {
    const bool was_reported = is_reported_;
    try {
      if (work_ != nullptr && !work_->ring().is_in_child()) wait();
    } catch (const cancelled&) {  // somebody wanted that
    } catch (...) {
      if (!was_reported) detail::print_unasked("bulk transfer: an", std::current_exception());
    }
    work_.reset();
  }

  std::shared_ptr<work_type> work_;
  bool is_reported_ = false;
};

/// Memory for bulk transfers, one after the other: page-locked pieces, taken at construction, and
/// device memory for snapshots, taken at the first. For checkpoints, so that none of them takes or
/// frees memory while the step runs. Used by one thread. The transfers may outlive it. In a child
/// made by fork() its calls throw `std::logic_error`.
template <device Device = cpu_device>
class bulk_copier {
 public:
  /// The device.
  using device_type = Device;
  /// A stream of the device.
  using stream_ref = typename Device::stream_ref;
  /// The handle of a transfer.
  using transfer_type = bulk_transfer<Device>;

  /// Throws `option_error`, `pinned_budget_exceeded`, `out_of_memory`, and what the device throws.
  explicit bulk_copier(const Device& device, bulk_options options = {})
      : options_(std::move(options)),
        ring_(std::make_shared<detail::bulk_ring<Device>>(device, options_)) {}

  /// Copies all of `source` to the device memory `to`, after the work that `stream` has been given
  /// by now. Threads read the source; the call itself blocks only while the transfer before is on
  /// its way. The program's work on `to` comes after `wait`, or on a stream after `wait(stream)`.
  /// Throws `bulk_error` unless both have one size, `std::system_error` for a thread, and what the
  /// device throws.
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

  /// Copies the device memory `from` to `sink`, as it is after the work that `stream` has been
  /// given by now. With `snapshot` the work that `stream` is given afterwards may change it, and
  /// the call queues one copy on the device; else nothing may change it until `wait`. Threads write
  /// the sink. Blocks and throws as `upload`, and `out_of_memory`.
  template <bulk_sink Sink>
  [[nodiscard]] transfer_type download(stream_ref stream, Sink sink,
                                       device_ranges<const std::byte> from) {
    if constexpr (requires { sink.size(); }) {
      require_same_size("download: the sink", sink.size(), from.size());
    }
    const auto work = prepared(stream, from.size());
    const auto to = std::make_shared<Sink>(std::move(sink));  // before anything is queued
    if (options_.snapshot) {
      try {
        from = ring_->snapshot_of(from, stream);
        work->begin_after(stream);
      } catch (...) {  // copies to the snapshot that are queued and have no event
        detail::settle(ring_->device, stream);
        throw;
      }
    } else {
      work->begin_after(stream);
    }
    work->start([at = work.get(), to,
                 from = std::move(from)](std::size_t worker) { at->download(*to, from, worker); },
                [to] { to->finish(); });
    return transfer_type{last_ = work};
  }

  /// The bytes of page-locked memory that it has.
  [[nodiscard]] std::size_t host_bytes() const noexcept { return ring_->host_bytes(); }
  /// The bytes of device memory that it has, for snapshots.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return ring_->device_bytes(); }
  /// Whether the host memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return ring_->pinned(); }

 private:
  static void require_same_size(const char* what, std::uint64_t found, std::uint64_t expected) {
    if (found == expected) return;
    throw bulk_error(detail::joined({what, " has ", found, " bytes, and the device memory ",
                                     expected, ": give both the same size"}));
  }
  /// A transfer whose memory the one before has left.
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

/// The memory for one transfer of so many bytes: no more than that takes.
template <device Device>
[[nodiscard]] bulk_copier<Device> copier_of(const Device& device, bulk_options options,
                                            std::uint64_t bytes) {
  static_cast<void>(bulk_ring<Device>::checked(options));
  constexpr std::uint64_t page = 4096;
  const std::uint64_t rounded =
      (std::max)(bytes / page + (bytes % page != 0 ? 1 : 0), std::uint64_t{1}) * page;
  if (options.piece_bytes > rounded) options.piece_bytes = static_cast<std::size_t>(rounded);
  const std::uint64_t most = (rounded - 1) / options.piece_bytes + 1;
  const std::size_t wished = options.pieces == automatic ? 2 * options.workers : options.pieces;
  if (wished > most) options.pieces = static_cast<std::size_t>(most);
  return bulk_copier<Device>{device, std::move(options)};
}

}  // namespace detail

/// `bulk_copier::upload` with memory of its own, which is freed with the transfer:
///
///     auto loading = ps::upload(device, stream, weights, ps::memory_source{bytes});
///     loading.wait(stream);  // later work of the stream sees the weights
///
template <device Device, bulk_source Source>
[[nodiscard]] bulk_transfer<Device> upload(const Device& device, typename Device::stream_ref stream,
                                           device_ranges<std::byte> to, Source source,
                                           bulk_options options = {}) {
  return detail::copier_of(device, std::move(options), to.size())
      .upload(stream, std::move(to), std::move(source));
}

/// `bulk_copier::download` with memory of its own, which is freed with the transfer.
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
