// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/detail/live_range.hpp>
#include <penstock/core/error.hpp>
#include <penstock/memory/detail/last_owner.hpp>
#include <penstock/observe/detail/feed_observer.hpp>
#include <penstock/observe/detail/trace/noted.hpp>
#include <penstock/observe/transfer_stats.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/detail/feed_source.hpp>
#include <penstock/transfer/detail/no_slot.hpp>
#include <penstock/transfer/detail/transform_stage.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

template <class Source, class Transform>
concept transferable = batch_source<Source> &&
    (std::same_as<Transform, no_transform> ||
     device_transform<Transform, typename Source::record_type, typename Source::device_type>);

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
        issued_(options.depth),
        seen_(source_.get().layout().sample_bytes(), slots_->layout().sample_bytes(),
              !std::same_as<Transform, no_transform>),
        when_held_(options.when_held) {
    trace_feed(options.trace, source_, seen_, *memory_);
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
    return range_.start();
  }

  /// Release, issue, hand out. False at the end.
  bool advance() {
    step_.end();
    held_ = batch_type{};
    if (!range_.is_live()) return false;
    try {
      slots_->rethrow_poison();
      issue_ready();
      if (issued_count_ == 0 && !issue_next()) {
        stop();
        return false;
      }
      const std::size_t slot = issued_[issued_first_];
      wait_for_copy(slot);
      issued_first_ = (issued_first_ + 1) % issued_.size();
      --issued_count_;
      held_ = batch_type{slots_, slot, stream_};
      seen_.note_handed_out(slots_->info(slot).size, issued_count_);
      next_position_.store(batch_position{slots_->info(slot).epoch, slots_->info(slot).batch + 1});
      step_.begin(seen_.trace(), slots_->info(slot));
      return true;
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
    step_.end();
    seen_.end_range();
    held_ = batch_type{};
    for (; issued_count_ != 0; --issued_count_) {
      slots_->discard(issued_[issued_first_]);
      issued_first_ = (issued_first_ + 1) % issued_.size();
    }
    source_.stop();
  }

  /// The place of the exception that ended the last range. From any thread.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return failure_.load();
  }
  /// What has happened so far, with the source's statistics where it has some. From any thread.
  [[nodiscard]] transfer_stats stats() const {
    transfer_stats all = seen_.snapshot();
    all.loader = source_.stats();
    return all;
  }
  /// Where the batches come from.
  [[nodiscard]] const source_type& source() const noexcept { return source_.get(); }
  /// The position after the batch that was handed out last. From any thread.
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// How many device slots there are.
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
      const auto slot = free_slot();
      if (!slot) return;
      auto batch = source_.try_next();
      if (!batch) return;
      issue(*slot, std::move(batch));
    }
  }

  /// Waits for the next batch and queues its copy; false at the end.
  bool issue_next() {
    if (!source_.may_have_more()) return false;
    const std::size_t slot = slot_for_next();  // first: what is taken from the source has a place
    auto batch = next_of_source();
    if (!batch) return false;
    issue(slot, std::move(batch));
    return true;
  }

  typename source_type::batch_type next_of_source() {
    const auto timed = seen_.for_batch();
    return source_.next();
  }

  /// Where the calling thread is the stream, this waits for the copy into `slot`.
  void wait_for_copy(std::size_t slot) {
    const auto timed = seen_.for_copy(slots_->will_block(slot, stream_));
    slots_->wait_for_copy(slot, stream_);
  }

  /// A slot for the next batch, once there is one; see `when_held`.
  std::size_t slot_for_next() {
    const std::stop_token stop = source_.stop_token();
    std::optional<std::size_t> slot = free_slot();
    if (!slot && when_held_ == when_held::wait) {
      const std::stop_callback on_stop{stop, [this]() noexcept { slots_->wake(); }};
      const auto timed = seen_.for_lease();
      slots_->wait_for_release([&] {
        slot = free_slot();
        return slot || slots_->is_poisoned() || stop.stop_requested();
      });
      if (!slot) slots_->rethrow_poison();
    }
    if (!slot) throw_no_slot(slots_->count(), stop.stop_requested());
    return *slot;
  }

  void issue(std::size_t slot, typename source_type::batch_type batch) {
    const batch_info info = batch.info();
    const noted_copy noted{seen_.trace(), info};
    try {
      memory_->copy_in(slot, std::move(batch));
    } catch (...) {
      failure_.store(penstock::failure{"transfer", info.epoch, info.batch});
      throw;
    }
    seen_.note_copy(info.size);
    issued_[(issued_first_ + issued_count_) % issued_.size()] = slot;
    ++issued_count_;
    next_slot_ = (slot + 1) % slots_->count();
  }

  /// The slot that has been free for longest, usually the next in turn.
  [[nodiscard]] std::optional<std::size_t> free_slot() const noexcept {
    for (std::size_t i = 0; i < slots_->count(); ++i) {
      const std::size_t slot = (next_slot_ + i) % slots_->count();
      if (slots_->is_released(slot)) return slot;
    }
    return std::nullopt;
  }

  shared_value<std::optional<penstock::failure>> failure_;
  feed_source<Source> source_;
  stream_ref stream_;
  std::shared_ptr<memory_type> memory_;
  std::shared_ptr<device_slots<record_type, device_type>> slots_;  // of the memory, for leases
  std::vector<std::size_t> issued_;  // a ring of slots with queued copies, not yet handed out
  feed_observer seen_;
  when_held when_held_;
  std::size_t issued_first_ = 0;
  std::size_t issued_count_ = 0;
  std::size_t next_slot_ = 0;
  shared_value<batch_position> next_position_;
  batch_type held_;
  noted_step step_;
  live_range range_{"transfer"};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
