// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/device/device.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/loader_stats.hpp>
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
  [[nodiscard]] virtual batch_type next() = 0;
  [[nodiscard]] virtual batch_type try_next() = 0;
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
  [[nodiscard]] batch_type next() override { return inside_.next(); }
  [[nodiscard]] batch_type try_next() override { return inside_.try_next(); }
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
}  // namespace PENSTOCK_ABI
}  // namespace penstock
