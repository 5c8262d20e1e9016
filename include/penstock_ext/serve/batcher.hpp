// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/last_owner.hpp>
#include <penstock/threads/support/deadline.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock_ext/serve/options.hpp>
#include <penstock_ext/serve/request_batch.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Puts the requests of many threads together to batches, for a model that answers many at once: a
/// `batch_source`.
///
///     ps::batcher<features> requests{device, {.most = 32, .fill = 2ms, .depth = 4}};
///     requests.submit(7, [&](ps::sample<features> out) { ... });       // any thread
///     ps::transfer feed{requests, stream};
///     for (auto& batch : feed.epoch(0)) answer(batch.tags(), model(batch));
///
/// A submitter writes its request straight into its place in the batch, beside others that write
/// theirs. A batch goes out when it is full, or, if somebody asks for one, when `fill` has passed
/// since its first request; a later call gets a fuller one. Batches come in the order in
/// which they are complete. Each request has a tag of the program's, which `tags()` of the host
/// batch and of the device batch have in the order of the samples: that of submission, but where a
/// write has thrown, whose place the batch's last request takes.
///
/// While no slot is free `submit` waits. What was submitted is handed to a consumer once, or its
/// tag comes back by `batcher_options::on_unserved`: after `abandon`, or because the feed ended
/// before its consumer got the batch. A feed that ends leaves the others here for the next one.
///
/// All members may be called from any thread, at any time of the batcher's life; several threads
/// may take batches, by `next` or by a feed each. A feed's leases may go on to other threads, see
/// `value_queue` and `held_action::wait`. All memory is taken at construction, `host_bytes()`, and
/// out of no `memory_budget`. Batches are numbered over the batcher's life, in epoch 0.
///
/// @see examples/11_server.cpp, docs/serving.md
template <record_type Record, device Device = cpu_device>
class batcher {
  static_assert(Record::ragged_fields == 0,
                "penstock::batcher: a request takes its place before its length is known: give the "
                "field the longest length as its extent");
  using board_type = detail::request_board<detail::request_memory<Record, Device>>;

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = request_batch<Record, Device>;

  /// Takes the memory for requests whose fields have these extents. Throws `option_error`,
  /// `layout_error`, `out_of_memory`, and what the device throws.
  batcher(const Device& device, const record_extents<Record>& extents,
          const batcher_options& options = {})
      : device_(device),
        board_(detail::shared_by_leases<board_type, typename Device::stream_ref>(
            options, device, batch_layout<Record>{extents, detail::checked_batcher(options).most})),
        on_stop_(options.stop, close_board{board_.get()}) {}
  /// For records whose extents are all fixed.
  explicit batcher(const Device& device, const batcher_options& options = {})
      : batcher(device, record_extents<Record>{}, options) {}
  batcher(batcher&&) = delete;
  /// Abandons what is left. Nobody may be inside another call; batches that are out stay valid.
  ~batcher() { board_->close(true); }

  /// Takes a request: `write(sample<Record>)` fills it in, on this thread, once there is a place.
  /// What it throws is thrown here, and the request is none. Throws `batcher_closed`, also to those
  /// that wait, and what the device throws.
  template <std::invocable<sample<Record>> Write>
  void submit(std::uint64_t tag, Write&& write) {
    write_to(*board_->reserve(tag, (detail::deadline::max)()), std::forward<Write>(write));
  }
  /// As `submit`, without a wait; false where there is no place.
  template <std::invocable<sample<Record>> Write>
  [[nodiscard]] bool try_submit(std::uint64_t tag, Write&& write) {
    return write_if(board_->reserve(tag, detail::deadline{}), std::forward<Write>(write));
  }
  /// As `submit`, waiting for a place at most for `limit`, any `std::chrono::duration`; false where
  /// there was none in time.
  template <class Rep, class Period, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_for(const std::chrono::duration<Rep, Period>& limit, std::uint64_t tag,
                                Write&& write) {
    return write_if(board_->reserve(tag, detail::deadline_in(limit)), std::forward<Write>(write));
  }
  /// As `submit_for`, until a moment of the steady clock.
  template <class Duration, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_until(
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& end, std::uint64_t tag,
      Write&& write) {
    return write_if(board_->reserve(tag, detail::deadline_at(end)), std::forward<Write>(write));
  }

  /// No more requests; what was submitted is still served, and after it batches end. May be called
  /// more than once.
  void close() noexcept { board_->close(false); }
  /// No more requests; what neither a consumer nor a feed has comes back by `on_unserved`, what is
  /// being written as soon as it is.
  void abandon() noexcept { board_->close(true); }
  /// Whether it was closed by then.
  [[nodiscard]] bool was_closed() const noexcept { return board_->was_closed(); }

  /// What it has done so far.
  [[nodiscard]] batcher_stats stats() const noexcept { return board_->stats(); }
  /// How many bytes of host memory its slots take.
  [[nodiscard]] std::size_t host_bytes() const noexcept { return board_->memory().bytes(); }

  /// The device that is fed.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// Of every batch's memory.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return board_->layout(); }
  /// Does nothing: there are no epochs, and requests come by themselves.
  void start(const batch_position&, std::uint64_t) const noexcept {}
  /// The next batch, waiting for it; an empty one after `close`, when all are handed out.
  [[nodiscard]] batch_type next() { return taken(board_->next(true)); }
  /// The next batch if it is ready.
  [[nodiscard]] batch_type try_next() { return taken(board_->next(false)); }
  /// Does nothing: what is there is for the next feed.
  void stop() const noexcept {}
  /// Whether `next` would give an empty batch at once.
  [[nodiscard]] bool at_end() const noexcept { return board_->is_at_end(); }
  /// For a feed: a batch of these requests was handed to no consumer.
  void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept {
    board_->take_back(tags);
  }

 private:
  using place = typename board_type::place;
  struct close_board {
    board_type* board;
    void operator()() const noexcept { board->close(false); }
  };

  template <class Write>
  void write_to(const place& at, Write&& write) {
    try {
      std::forward<Write>(write)(board_->memory().at(at.slot, at.position));
    } catch (...) {
      board_->commit(at, false);
      throw;
    }
    board_->commit(at, true);
  }
  template <class Write>
  bool write_if(const std::optional<place>& at, Write&& write) {
    if (at) write_to(*at, std::forward<Write>(write));
    return at.has_value();
  }

  batch_type taken(const std::optional<std::pair<std::uint32_t, batch_info>>& next) {
    if (!next) return {};
    try {
      return batch_type{board_, next->first, next->second};
    } catch (...) {  // no memory for what a checked build notes of a lease
      board_->take_back(board_->tags(next->first));
      board_->give_back(next->first, false);
      throw;
    }
  }

  Device device_;
  std::shared_ptr<board_type> board_;  // batches that are out share it
  std::stop_callback<close_board> on_stop_;
};

static_assert(batch_source<batcher<record<field<"x", float, 1>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
