// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/transfer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The type-erased interface of a transfer. Shared by an `any_transfer` and its ranges.
template <record_type Record, device Device>
class erased_transfer {
 public:
  using batch_type = device_batch<Record, Device>;

  virtual ~erased_transfer() = default;

  /// @name Called by a `batch_range`
  /// @{
  virtual std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) = 0;
  virtual bool advance() = 0;
  [[nodiscard]] virtual batch_type& current() noexcept = 0;
  virtual void finish(std::uint64_t serial) noexcept = 0;
  /// @}

  /// @name The same as in `transfer`
  /// @{
  [[nodiscard]] virtual batch_type& next() = 0;
  virtual void reset(const batch_position& from) = 0;
  [[nodiscard]] virtual bool at_epoch_end() const = 0;
  [[nodiscard]] virtual std::uint64_t batches_per_epoch() const = 0;
  [[nodiscard]] virtual loader_state state() const = 0;
  [[nodiscard]] virtual loader_state state_at(const batch_position& next) const = 0;
  [[nodiscard]] virtual batch_position position_of(const loader_state& state) const = 0;
  [[nodiscard]] virtual std::optional<failure> last_failure() const = 0;
  [[nodiscard]] virtual transfer_stats stats() const = 0;
  [[nodiscard]] virtual tuning_history tuning() const = 0;
  [[nodiscard]] virtual std::size_t depth() const = 0;
  [[nodiscard]] virtual bool zero_copy() const = 0;
  [[nodiscard]] virtual std::size_t device_bytes() const = 0;
  /// @}

  /// Destroys the transfer. An unfinished loop throws `cancelled` at its next step.
  virtual void shut_down() noexcept = 0;
};

/// Implements `erased_transfer` with a `Transfer`.
template <class Transfer>
class erased_transfer_of final
    : public erased_transfer<typename Transfer::record_type, typename Transfer::device_type> {
  using batch_type = typename Transfer::batch_type;

 public:
  explicit erased_transfer_of(Transfer&& feed) : feed_(std::move(feed)) {}

  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) override {
    if (range_ && at_ != std::default_sentinel) throw_range_is_live("transfer");
    if (!feed_) throw_range_outlives("transfer");
    at_ = {};
    range_.reset();
    range_.emplace(feed_->batches(from, until_epoch{last_epoch}));
    is_begun_ = false;
    return ++serial_;
  }
  bool advance() override {
    if (std::exchange(is_begun_, true)) {
      ++at_;
    } else {
      at_ = range_->begin();
    }
    return at_ != std::default_sentinel;
  }
  [[nodiscard]] batch_type& current() noexcept override { return *at_; }
  void finish(std::uint64_t serial) noexcept override {
    if (serial == 0 || serial != serial_) return;
    at_ = {};
    range_.reset();
  }

  [[nodiscard]] batch_type& next() override { return feed_->next(); }
  void reset(const batch_position& from) override { feed_->reset(from); }
  [[nodiscard]] bool at_epoch_end() const override {
    if constexpr (requires { feed_->at_epoch_end(); }) {
      return feed_->at_epoch_end();
    } else {
      throw_not_counted();
    }
  }
  [[nodiscard]] std::uint64_t batches_per_epoch() const override {
    if constexpr (requires { feed_->batches_per_epoch(); }) {
      return feed_->batches_per_epoch();
    } else {
      throw_not_counted();
    }
  }
  [[nodiscard]] loader_state state() const override {
    if constexpr (has_states) {
      return feed_->state();
    } else {
      throw_no_states();
    }
  }
  [[nodiscard]] loader_state state_at(const batch_position& next) const override {
    if constexpr (has_states) {
      return feed_->state_at(next);
    } else {
      throw_no_states();
    }
  }
  [[nodiscard]] batch_position position_of(const loader_state& state) const override {
    if constexpr (requires { feed_->source().position_of(state); }) {
      return feed_->source().position_of(state);
    } else if constexpr (has_states) {
      require_same_order(state, feed_->state_at({}));
      return {state.epoch, state.batch};
    } else {
      throw_no_states();
    }
  }
  [[nodiscard]] std::optional<failure> last_failure() const override {
    return feed_->last_failure();
  }
  [[nodiscard]] transfer_stats stats() const override { return feed_->stats(); }
  [[nodiscard]] tuning_history tuning() const override { return feed_->tuning(); }
  [[nodiscard]] std::size_t depth() const override { return feed_->depth(); }
  [[nodiscard]] bool zero_copy() const override { return feed_->zero_copy(); }
  [[nodiscard]] std::size_t device_bytes() const override { return feed_->device_bytes(); }

  void shut_down() noexcept override { feed_.reset(); }

 private:
  static constexpr bool has_states = requires(const Transfer& feed) {
    { feed.state() } -> std::same_as<loader_state>;
  };
  [[noreturn]] static void throw_not_counted() {
    throw std::logic_error(
        "penstock::any_transfer: the source has no number of batches per epoch: give it a member "
        "batches_per_epoch()");
  }
  [[noreturn]] static void throw_no_states() {
    throw std::logic_error(
        "penstock::any_transfer: the source has no loader_state: give it a member state_at(next)");
  }

  std::optional<Transfer> feed_;  // empty after `shut_down`
  std::optional<typename Transfer::range_type> range_;
  typename Transfer::range_type::iterator at_;
  bool is_begun_ = false;
  std::uint64_t serial_ = 0;  // serial number of the last range that was started
};

}  // namespace detail

/// A type-erased transfer, for example for a class member in a header:
///
///     class trainer {                                              // in a header
///       ps::any_transfer<digit, ps::cuda_device> feed_;
///     };
///
///     feed_ = ps::any_transfer{ps::transfer{ps::loader{...}, stream, transform}};  // in a source
///
/// `Record` is the record of the batches after a transform. Owns the transfer, which is moved in. A
/// loader that the transfer references must outlive it. Costs one virtual call per batch. Movable.
/// An empty object supports only assignment and destruction. All other functions throw
/// `std::logic_error`. The thread safety is the same as for `transfer`.
template <record_type Record, device Device = cpu_device>
class any_transfer {
  using flow = detail::erased_transfer<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = device_batch<Record, Device>;
  using range_type = batch_range<flow>;

  /// Creates an empty object.
  any_transfer() = default;
  /// Takes ownership of `feed`, whose ranges must have ended.
  template <class Source, class Transform>
    requires std::same_as<typename transfer<Source, Transform>::batch_type, batch_type>
  explicit any_transfer(transfer<Source, Transform>&& feed)
      : flow_(std::make_shared<detail::erased_transfer_of<transfer<Source, Transform>>>(
            std::move(feed))) {}
  any_transfer(any_transfer&&) noexcept = default;
  /// Ends the owned transfer, as the destructor does, and takes over the transfer of `other`.
  any_transfer& operator=(any_transfer&& other) noexcept {
    if (this != &other) {
      shut_down();
      flow_ = std::move(other.flow_);
    }
    return *this;
  }
  /// Ends the transfer, as the destructor of `transfer` does.
  ~any_transfer() { shut_down(); }

  /// Returns true if the object is not empty.
  [[nodiscard]] explicit operator bool() const noexcept { return flow_ != nullptr; }

  /// Calls `transfer::epochs`.
  [[nodiscard]] range_type epochs(std::uint64_t first, std::uint64_t last) & {
    return batches({first, 0}, until_epoch{last});
  }
  /// Calls `transfer::epoch`.
  [[nodiscard]] range_type epoch(std::uint64_t which) & { return epochs(which, which + 1); }
  /// Calls `transfer::batches`.
  [[nodiscard]] range_type batches(const batch_position& from, until_epoch end) & {
    (void)held();
    return range_type{flow_, from, end.value};
  }
  /// Calls `transfer::resume`.
  [[nodiscard]] range_type resume(const loader_state& state, std::uint64_t last_epoch) & {
    return batches(held().position_of(state), until_epoch{last_epoch});
  }

  /// Calls `transfer::next`.
  [[nodiscard]] batch_type& next() & { return held().next(); }
  /// Calls `transfer::reset`.
  void reset(const batch_position& from = {}) & { held().reset(from); }
  /// Calls `transfer::resume`.
  void resume(const loader_state& state) & { held().reset(held().position_of(state)); }
  /// Calls `transfer::at_epoch_end`. Throws `std::logic_error` if the source does not count
  /// batches.
  [[nodiscard]] bool at_epoch_end() const { return held().at_epoch_end(); }
  /// Calls `transfer::batches_per_epoch`. Throws `std::logic_error` if the source does not count
  /// batches.
  [[nodiscard]] std::uint64_t batches_per_epoch() const { return held().batches_per_epoch(); }

  /// Calls `transfer::state`. Throws `std::logic_error` if the source has no `loader_state`.
  [[nodiscard]] loader_state state() const { return held().state(); }
  /// Calls `transfer::state_at`. Throws `std::logic_error` if the source has no `loader_state`.
  [[nodiscard]] loader_state state_at(const batch_position& next) const {
    return held().state_at(next);
  }

  /// Calls `transfer::last_failure`.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const {
    return held().last_failure();
  }
  /// Calls `transfer::stats`.
  [[nodiscard]] transfer_stats stats() const { return held().stats(); }
  /// Calls `transfer::tuning`.
  [[nodiscard]] tuning_history tuning() const { return held().tuning(); }
  /// Calls `transfer::depth`.
  [[nodiscard]] std::size_t depth() const { return held().depth(); }
  /// Calls `transfer::zero_copy`.
  [[nodiscard]] bool zero_copy() const { return held().zero_copy(); }
  /// Calls `transfer::device_bytes`.
  [[nodiscard]] std::size_t device_bytes() const { return held().device_bytes(); }

 private:
  void shut_down() noexcept {
    if (flow_) flow_->shut_down();
  }
  [[nodiscard]] flow& held() const {
    if (flow_ == nullptr) {
      throw std::logic_error(
          "penstock::any_transfer: it holds no transfer: assign one, as in feed = "
          "ps::any_transfer{ps::transfer{loader, stream}}");
    }
    return *flow_;
  }

  std::shared_ptr<flow> flow_;  // shared with the ranges
};

/// Deduces the record and the device.
template <class Source, class Transform>
any_transfer(transfer<Source, Transform>&&)
    -> any_transfer<typename transfer<Source, Transform>::record_type,
                    typename transfer<Source, Transform>::device_type>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
