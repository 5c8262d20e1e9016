// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/failed_batch.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/resume/loader_state.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What `any_loader` and its ranges ask of the loader inside.
template <record_type Record, device Device>
class erased_loader {
 public:
  using batch_type = host_batch<Record, Device>;

  erased_loader() = default;
  erased_loader(erased_loader&&) = delete;
  virtual ~erased_loader() = default;

  // For a `batch_range`, and for the end.
  virtual std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) = 0;
  virtual bool advance() = 0;
  [[nodiscard]] virtual batch_type& current() noexcept = 0;
  virtual void finish(std::uint64_t serial) noexcept = 0;
  virtual void shut_down() noexcept = 0;

  // For a feed.
  [[nodiscard]] virtual const Device& device() const noexcept = 0;
  [[nodiscard]] virtual const batch_layout<Record>& layout() const noexcept = 0;
  virtual void start_source(const batch_position& from, std::uint64_t last_epoch) = 0;
  [[nodiscard]] virtual batch_type next(failed_batch& failed) = 0;
  [[nodiscard]] virtual batch_type try_next(failed_batch& failed) = 0;
  virtual void stop() noexcept = 0;
  [[nodiscard]] virtual bool at_end() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept = 0;

  // For callers that ask.
  [[nodiscard]] virtual loader_state state() const = 0;
  [[nodiscard]] virtual loader_state state_at(const batch_position& next) const = 0;
  [[nodiscard]] virtual std::uint64_t batches_per_epoch() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t samples_per_epoch() const noexcept = 0;
  [[nodiscard]] virtual const loader_options& options() const noexcept = 0;
  [[nodiscard]] virtual loader_footprint footprint() const = 0;
  [[nodiscard]] virtual std::size_t held() const noexcept = 0;
  [[nodiscard]] virtual std::optional<penstock::failure> last_failure() const noexcept = 0;
  [[nodiscard]] virtual failure_report failures() const = 0;
  [[nodiscard]] virtual loader_stats stats() const = 0;
  [[nodiscard]] virtual tuning_history tuning() const = 0;
  [[nodiscard]] virtual std::size_t abandoned_readers() const noexcept = 0;
};

/// A loader inside an `any_loader`, with what its ranges run on.
template <dataset Dataset, sampler Sampler, device Device>
class erased_loader_of final : public erased_loader<typename Dataset::record_type, Device> {
  using record = typename Dataset::record_type;
  using flow = loader_flow<Dataset, Sampler, Device>;

 public:
  using batch_type = host_batch<record, Device>;

  erased_loader_of(loader<Dataset, Sampler, Device>&& inside, std::shared_ptr<flow> runs)
      : inside_(std::move(inside)), flow_(std::move(runs)) {}

  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) override {
    return flow_->start(from, last_epoch);
  }
  bool advance() override { return flow_->advance(); }
  [[nodiscard]] batch_type& current() noexcept override { return flow_->current(); }
  void finish(std::uint64_t serial) noexcept override { flow_->finish(serial); }
  void shut_down() noexcept override { flow_->reads().shut_down(); }

  [[nodiscard]] const Device& device() const noexcept override { return inside_.device(); }
  [[nodiscard]] const batch_layout<record>& layout() const noexcept override {
    return inside_.layout();
  }
  void start_source(const batch_position& from, std::uint64_t last_epoch) override {
    inside_.start(from, last_epoch);
  }
  [[nodiscard]] batch_type next(failed_batch& failed) override { return inside_.next(failed); }
  [[nodiscard]] batch_type try_next(failed_batch& failed) override {
    return inside_.try_next(failed);
  }
  void stop() noexcept override { inside_.stop(); }
  [[nodiscard]] bool at_end() const noexcept override { return inside_.at_end(); }
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept override {
    return inside_.trace_flow(recorder);
  }

  [[nodiscard]] loader_state state() const override { return inside_.state(); }
  [[nodiscard]] loader_state state_at(const batch_position& next) const override {
    return inside_.state_at(next);
  }
  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept override {
    return inside_.batches_per_epoch();
  }
  [[nodiscard]] std::uint64_t samples_per_epoch() const noexcept override {
    return inside_.samples_per_epoch();
  }
  [[nodiscard]] const loader_options& options() const noexcept override {
    return inside_.options();
  }
  [[nodiscard]] loader_footprint footprint() const override { return inside_.footprint(); }
  [[nodiscard]] std::size_t held() const noexcept override { return inside_.held(); }
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept override {
    return inside_.last_failure();
  }
  [[nodiscard]] failure_report failures() const override { return inside_.failures(); }
  [[nodiscard]] loader_stats stats() const override { return inside_.stats(); }
  [[nodiscard]] tuning_history tuning() const override { return inside_.tuning(); }
  [[nodiscard]] std::size_t abandoned_readers() const noexcept override {
    return inside_.abandoned_readers();
  }

 private:
  loader<Dataset, Sampler, Device> inside_;
  std::shared_ptr<flow> flow_;
};

}  // namespace detail

/// A loader whose dataset and sampler are not known before the program runs, or are not to be seen
/// in a header: `any_loader<digit>` for the CPU device, `any_loader<digit, cuda_device>` for a GPU.
///
///     ps::any_loader<digit> make_loader(const flags& chosen);             // in a header
///     using feed_type = ps::transfer<ps::any_loader<digit>>;
///
///     ps::any_loader<digit> loader = chosen.shuffle                       // in a source file
///         ? ps::any_loader{ps::loader{digits, ps::shuffled{.seed = 1}, options}}
///         : ps::any_loader{ps::loader{digits, ps::sequential{}, options}};
///
/// A `loader` is moved in; what has gone on in it goes on. Has all members of a `loader`, which say
/// what is promised: batches, states and errors are those of the loader inside, and states taken
/// from one resume the other. Costs a virtual call or three a batch, and none a sample. Movable;
/// one thread consumes. A moved-from object may only be assigned to and destroyed.
template <penstock::record_type Record, penstock::device Device = cpu_device>
class any_loader {
  using flow = detail::erased_loader<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = host_batch<Record, Device>;
  using range_type = batch_range<flow>;

  /// Takes over `inside`, which has no live range.
  template <dataset Dataset, sampler Sampler>
    requires(std::is_same_v<typename Dataset::record_type, Record>)
  any_loader(loader<Dataset, Sampler, Device> inside)  // NOLINT: implicit, as any_dataset
      : flow_(erased(std::move(inside))) {}

  any_loader(any_loader&&) noexcept = default;
  /// Ends what this loader ran, as its destructor does, and takes over what `other` runs.
  any_loader& operator=(any_loader&& other) noexcept {
    if (this != &other) {
      shut_down();
      flow_ = std::move(other.flow_);
    }
    return *this;
  }
  /// As that of `loader`: ends all threads; leases stay valid, ranges end.
  ~any_loader() { shut_down(); }

  /// See `loader::epochs`.
  [[nodiscard]] range_type epochs(std::uint64_t first, std::uint64_t last) & {
    return range_type{flow_, {first, 0}, last};
  }
  /// See `loader::epoch`.
  [[nodiscard]] range_type epoch(std::uint64_t which) & { return epochs(which, which + 1); }
  /// See `loader::batches`.
  [[nodiscard]] range_type batches(const batch_position& from, std::uint64_t last_epoch) & {
    return range_type{flow_, from, last_epoch};
  }

  /// See `loader::state`. From any thread.
  [[nodiscard]] loader_state state() const { return flow_->state(); }
  /// See `loader::state_at`. From any thread.
  [[nodiscard]] loader_state state_at(const batch_position& next) const {
    return flow_->state_at(next);
  }
  /// See `loader::resume`.
  [[nodiscard]] range_type resume(const loader_state& state, std::uint64_t last_epoch) & {
    require_same_order(state, state_at({}));
    return batches({state.epoch, state.batch}, last_epoch);
  }

  /// @cond misuse
  __attribute__((
      unavailable("penstock: loop over loader.epoch(e) or loader.epochs(first, last)"))) void
  begin() const;
  __attribute__((
      unavailable("penstock: loop over loader.epoch(e) or loader.epochs(first, last)"))) void
  end() const;
  /// @endcond

  /// See `loader::batches_per_epoch`.
  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept {
    return flow_->batches_per_epoch();
  }
  /// See `loader::samples_per_epoch`.
  [[nodiscard]] std::uint64_t samples_per_epoch() const noexcept {
    return flow_->samples_per_epoch();
  }
  /// See `loader::options`.
  [[nodiscard]] const loader_options& options() const noexcept { return flow_->options(); }
  /// See `loader::footprint`. From any thread.
  [[nodiscard]] loader_footprint footprint() const { return flow_->footprint(); }
  /// See `loader::last_failure`. From any thread.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return flow_->last_failure();
  }
  /// See `loader::failures`. From any thread.
  [[nodiscard]] failure_report failures() const { return flow_->failures(); }
  /// See `loader::stats`. From any thread.
  [[nodiscard]] loader_stats stats() const { return flow_->stats(); }
  /// See `loader::tuning`. From any thread.
  [[nodiscard]] tuning_history tuning() const { return flow_->tuning(); }
  /// See `loader::held`. From any thread.
  [[nodiscard]] std::size_t held() const noexcept { return flow_->held(); }
  /// See `loader::abandoned_readers`. From any thread.
  [[nodiscard]] std::size_t abandoned_readers() const noexcept {
    return flow_->abandoned_readers();
  }

  /// @name The members that make a `batch_source`; a loop uses `epochs` instead.
  /// @{
  [[nodiscard]] const Device& device() const noexcept { return flow_->device(); }
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return flow_->layout(); }
  void start(const batch_position& from, std::uint64_t last_epoch) {
    flow_->start_source(from, last_epoch);
  }
  [[nodiscard]] batch_type next() {
    detail::failed_batch failed;
    batch_type batch = next(failed);
    if (failed) std::rethrow_exception(failed.error);
    return batch;
  }
  [[nodiscard]] batch_type try_next() {
    detail::failed_batch failed;
    batch_type batch = try_next(failed);
    if (failed) std::rethrow_exception(failed.error);
    return batch;
  }
  /// For a `transfer`: as above, but an error comes as a value.
  [[nodiscard]] batch_type next(detail::failed_batch& failed) { return flow_->next(failed); }
  /// As above.
  [[nodiscard]] batch_type try_next(detail::failed_batch& failed) {
    return flow_->try_next(failed);
  }
  void stop() noexcept { flow_->stop(); }
  [[nodiscard]] bool at_end() const noexcept { return flow_->at_end(); }
  [[nodiscard]] std::stop_token stop_token() const noexcept { return options().stop; }
  /// See `loader::trace_flow`.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    return flow_->trace_flow(recorder);
  }
  /// @}

 private:
  template <class Dataset, class Sampler>
  static std::shared_ptr<flow> erased(loader<Dataset, Sampler, Device>&& inside) {
    auto runs = inside.flow_;
    return std::make_shared<detail::erased_loader_of<Dataset, Sampler, Device>>(std::move(inside),
                                                                                std::move(runs));
  }
  void shut_down() noexcept {
    if (flow_) flow_->shut_down();
  }

  std::shared_ptr<flow> flow_;  // shared with the ranges, as that of a loader
};

/// Of a loader's own record and device.
template <class Dataset, class Sampler, class Device>
any_loader(loader<Dataset, Sampler, Device>) -> any_loader<typename Dataset::record_type, Device>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
