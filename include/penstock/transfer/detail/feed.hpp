// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/live_range.hpp>
#include <penstock/memory/support/last_owner.hpp>
#include <penstock/observe/transfer_stats.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/detail/feed_observer.hpp>
#include <penstock/transfer/detail/feed_source.hpp>
#include <penstock/transfer/detail/feed_watch.hpp>
#include <penstock/transfer/detail/listed_samples.hpp>
#include <penstock/transfer/detail/slots/free_slots.hpp>
#include <penstock/transfer/detail/slots/issued_slots.hpp>
#include <penstock/transfer/detail/transfer_arguments.hpp>
#include <penstock/transfer/detail/transform_stage.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What the ranges of a `transfer` run on; `transfer` is its owner and its face. For the consumer's
/// thread.
template <class Source, class Transform>
  requires transferable<std::remove_reference_t<Source>, Transform>
class feed {
 public:
  using source_type = std::remove_reference_t<Source>;
  using memory_type =
      feed_slots<Transform, typename source_type::record_type, typename source_type::device_type>;
  using record_type = typename memory_type::record_type;
  using device_type = typename source_type::device_type;
  using stream_ref = typename device_type::stream_ref;
  using batch_type = device_batch<record_type, device_type>;

  /// Takes the device slots.
  feed(Source&& source, stream_ref stream, Transform transform, const transfer_options& options)
      : source_(std::forward<Source>(source), failure_),
        stream_(usable(source_.get().device(), stream)),
        memory_(shared_by_leases<memory_type, stream_ref>(
            source_.get().device(), source_.get().layout(), checked_depth(options),
            std::move(transform))),
        slots_(memory_, &memory_->ring),
        issued_(slots_->most()),
        seen_(fixed_bytes(source_.get().layout()), fixed_bytes(slots_->layout()),
              !std::same_as<Transform, no_transform>),
        free_(options.when_held),
        watch_(source_, stream, options, seen_, *memory_) {
    reserve_tags<typename source_type::batch_type>(*slots_, source_.get().layout().batch_size());
    list_samples_of(source_.get(), *slots_);
  }
  feed(feed&&) = delete;
  ~feed() { stop(); }

  /// Ends the range, permanently: the source may be gone from now on.
  void shut_down() noexcept {
    stop();
    range_.close();
  }

  /// Starts a range and returns its serial number, which `finish` takes.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    range_.require_none();
    source_.start(from, last_epoch);
    next_position_.store(from);
    failure_.store(std::nullopt);
    seen_.begin_range();
    watch_.begin_range();
    return range_.start();
  }

  /// Release, issue, hand out. False at the end.
  bool advance() {
    watch_.end_step();
    // Its release asks whether the stream is usable, and `next` tells what that has refused. Not so
    // for a lease of another feed that the body has put there.
    const bool is_asked = held_.is_in(*slots_);
    held_ = batch_type{};
    held_ = next(is_asked);
    if (!held_) {
      stop();
      return false;
    }
    seen_.note_handed_out(held_.size(), issued_.size());
    next_position_.store(batch_position{held_.epoch(), held_.number() + 1});
    watch_.begin_step(*slots_, held_.info());
    return true;
  }

  /// The next batch as soon as it may be used on the consumer's stream; empty at the end. Whether
  /// the stream is usable has been asked just now (`is_asked`), or is asked here.
  [[nodiscard]] batch_type next(bool is_asked = false) {
    if (!range_.is_live()) return {};
    try {
      slots_->rethrow_poison();
      issue_ready();
      if (issued_.empty() && !issue_next()) return {};
      const std::size_t slot = issued_.front();
      if (!is_asked) require_still_usable(source_.get().device(), stream_);
      wait_for_copy(slot);
      issued_.pop();
      return batch_type{slots_, slot, stream_};
    } catch (...) {
      stop();
      throw;
    }
  }

  /// The lease that the consumer holds.
  [[nodiscard]] batch_type& current() noexcept { return held_; }

  /// Ends the range `range`, unless another one was started since.
  void finish(std::uint64_t range) noexcept {
    if (range_.is_last(range)) stop();
  }
  /// Ends the live range: copies under way go on, and their slots come back after them.
  void stop() noexcept {
    if (!range_.end()) return;
    watch_.leave_step();
    held_ = batch_type{};
    rest();
  }

  /// Ends what is read and copied for the live range, which lives on: its leases stay.
  void rest() noexcept {
    seen_.end_range();
    watch_.end_range();
    source_.discard(issued_, *slots_);
    source_.stop();
  }
  /// Whether the range `range` is live.
  [[nodiscard]] bool is_live(std::uint64_t range) const noexcept {
    return range_.is_live() && range_.is_last(range);
  }
  /// Whether `next` needs no lease to end.
  [[nodiscard]] bool has_room() const noexcept { return !issued_.empty() || free_.find(*slots_); }
  /// Whether a stop of the source was requested.
  [[nodiscard]] bool is_stopped() const { return source_.stop_token().stop_requested(); }
  /// From now on `next` is the position that a state has.
  void note_next(const batch_position& next) noexcept { next_position_.store(next); }
  /// Waits for all work of the consumer's stream.
  void synchronize() const { source_.get().device().synchronize(stream_); }
  /// Counts so many batches that were handed out anew, in so long.
  void note_replay(std::uint64_t batches, std::chrono::nanoseconds time) noexcept {
    seen_.note_replay(batches, time);
  }

  /// The place of the exception that ended the last range. From any thread.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return failure_.load();
  }
  /// What has happened so far, with the source's statistics where it has some. From any thread.
  [[nodiscard]] transfer_stats stats() const {
    transfer_stats all = seen_.snapshot();
    all.depth = depth();
    all.loader = source_.stats();
    return all;
  }
  /// Where the batches come from.
  [[nodiscard]] const source_type& source() const noexcept { return source_.get(); }
  /// The position after the batch that was handed out last. From any thread.
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// What an automatic depth has come to. From any thread.
  [[nodiscard]] tuning_history tuning() const { return watch_.tuning(depth()); }
  /// How many device slots are filled by turns.
  [[nodiscard]] std::size_t depth() const noexcept { return slots_->count(); }
  /// How many bytes of device memory are taken.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return memory_->bytes(); }

 private:
  static stream_ref usable(const device_type& device, stream_ref stream) {
    device.require_usable(stream);
    return stream;
  }

  /// Queues copies as long as a batch is ready and a slot is free.
  void issue_ready() {
    while (!source_.is_over()) {
      const auto slot = free_.find(*slots_);
      if (!slot) return;
      auto batch = source_.try_next();
      if (!batch) return;
      issue(*slot, std::move(batch));
    }
  }

  /// Waits for the next batch and queues its copy; false at the end.
  bool issue_next() {
    if (!source_.may_have_more()) return false;
    // First: what is taken from the source has a place.
    const std::size_t slot =
        free_.wait(*slots_, source_.stop_token(), [this] { return seen_.for_lease(); });
    auto batch = [&] {
      const auto timed = seen_.for_batch();
      return source_.next();
    }();
    if (!batch) return false;
    issue(slot, std::move(batch));
    return true;
  }

  /// Where the calling thread is the stream, this waits for the copy into `slot`.
  void wait_for_copy(std::size_t slot) {
    const auto timed = seen_.for_copy(slots_->will_block(slot, stream_));
    slots_->wait_for_copy(slot, stream_);
  }

  void issue(std::size_t slot, typename source_type::batch_type batch) {
    const batch_info info = batch.info();
    const auto values = values_to_copy(source_.get().layout(), batch, info.size);
    try {
      list_samples(*slots_, slot, batch);
      slots_->tags(slot).keep(batch);
      watch_.copy_of(info, [&] { memory_->copy_in(slot, std::move(batch)); });
    } catch (...) {
      source_.take_back(info, slots_->tags(slot).all());
      failure_.store(penstock::failure{"transfer", info.epoch, info.batch});
      throw;
    }
    seen_.note_copy(info.size, values);
    issued_.push(slot);
    free_.note_taken(slot);
  }

  shared_value<std::optional<penstock::failure>> failure_;
  feed_source<Source> source_;
  stream_ref stream_;
  std::shared_ptr<memory_type> memory_;
  std::shared_ptr<device_slots<record_type, device_type>> slots_;  // of the memory, for leases
  issued_slots issued_;
  feed_observer seen_;
  free_slots free_;
  shared_value<batch_position> next_position_;
  batch_type held_;
  feed_watch<device_type> watch_;
  live_range range_{"transfer"};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
