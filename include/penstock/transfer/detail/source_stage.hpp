// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/device/device.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/load/stage.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/transfer/batch_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A batch in host memory with one word per sample, set by its source.
template <class Batch>
concept has_tags = requires(const Batch& batch) {
  { batch.tags() } -> std::convertible_to<std::span<const std::uint64_t>>;
};

/// A batch in host memory with a list of its samples.
template <class Batch>
concept batch_of_listed_samples = requires(const Batch& batch) {
  { batch.indices() } -> std::convertible_to<std::span<const std::uint64_t>>;
  { batch.replaced() } -> std::convertible_to<std::span<const std::uint64_t>>;
};

/// Converts a user-defined `batch_source` to a stage. References the source. Provides a default for
/// each optional member of the source:
///
/// | source member | default |
/// |---|---|
/// | `at_end()` | the feed takes batches until a batch is empty |
/// | `was_cut()` | an early end of the range looks like the regular end |
/// | `take_back(info, tags)` | undelivered batches are dropped |
/// | `stop_token()` | waits for a lease cannot be ended |
/// | `last_failure()` | source errors have no origin |
/// | `stats()` | `transfer_stats::loader` is empty |
/// | `footprint()`, with `slot_count` and `pinned` | batches are always copied |
/// | `options().instrumentation.indices` | batches do not have sample lists |
/// | `trace_flow(recorder)` | a trace does not connect the feed with its source |
///
/// The limits of `faults.on_error` apply only to a loader, not to a user-defined source.
template <batch_source Source>
class source_stage {
 public:
  using device_type = typename Source::device_type;
  using batch_type = typename Source::batch_type;

  explicit source_stage(Source& source) noexcept : source_(&source) {}
  source_stage(source_stage&&) = delete;

  void start(const batch_position& from, std::uint64_t last_epoch) {
    source_->start(from, last_epoch);
  }
  [[nodiscard]] batch_type next(failed_batch& failed) noexcept {
    return take(failed, [this] { return source_->next(); });
  }
  [[nodiscard]] batch_type try_next(failed_batch& failed) noexcept {
    return take(failed, [this] { return source_->try_next(); });
  }
  void stop() noexcept { source_->stop(); }
  [[nodiscard]] bool at_end() const noexcept {
    if constexpr (requires {
                    { source_->at_end() } -> std::same_as<bool>;
                  }) {
      return source_->at_end();
    } else {
      return false;
    }
  }
  [[nodiscard]] bool was_cut() const noexcept {
    if constexpr (requires {
                    { source_->was_cut() } -> std::same_as<bool>;
                  }) {
      return source_->was_cut();
    } else {
      return false;
    }
  }

  [[nodiscard]] judged_samples judged() const noexcept { return {}; }
  void judge_from(const judged_samples&) noexcept {}
  void take_back([[maybe_unused]] const batch_info& batch,
                 [[maybe_unused]] std::span<const std::uint64_t> tags) noexcept {
    if constexpr (requires {
                    { source_->take_back(batch, tags) } noexcept;
                  }) {
      source_->take_back(batch, tags);
    }
  }

  [[nodiscard]] device_type device() const { return source_->device(); }
  [[nodiscard]] std::stop_token stop_token() const {
    if constexpr (requires {
                    { source_->stop_token() } -> std::same_as<std::stop_token>;
                  }) {
      return source_->stop_token();
    } else {
      return {};
    }
  }
  [[nodiscard]] std::optional<loader_stats> stats() const {
    if constexpr (requires {
                    { source_->stats() } -> std::same_as<loader_stats>;
                  }) {
      return source_->stats();
    } else {
      return std::nullopt;
    }
  }
  [[nodiscard]] std::optional<holdable_slots> holdable() const {
    if constexpr (requires {
                    { source_->footprint().slot_count } -> std::convertible_to<std::size_t>;
                    { source_->footprint().pinned } -> std::convertible_to<bool>;
                  }) {
      const auto held = source_->footprint();
      return holdable_slots{held.slot_count, held.pinned};
    } else {
      return std::nullopt;
    }
  }
  [[nodiscard]] bool lists_samples() const {
    if constexpr (batch_of_listed_samples<batch_type> && requires {
                    { source_->options().instrumentation.indices } -> std::convertible_to<bool>;
                  }) {
      return source_->options().instrumentation.indices;
    } else {
      return false;
    }
  }
  [[nodiscard]] std::uint64_t trace_flow(
      [[maybe_unused]] const trace_recorder* recorder) const noexcept {
    if constexpr (requires {
                    { source_->trace_flow(recorder) } -> std::same_as<std::uint64_t>;
                  }) {
      return source_->trace_flow(recorder);
    } else {
      return 0;
    }
  }

 private:
  /// Takes a batch from `next_of_source`. If the source throws, stores the exception in `failed`.
  /// If a batch exceeds the source's layout, returns it to the source and stores an error.
  template <class Next>
  batch_type take(failed_batch& failed, const Next& next_of_source) noexcept {
    try {
      batch_type batch = next_of_source();
      if (batch && batch.info().size > source_->layout().batch_size()) reject(batch);
      return batch;
    } catch (...) {
      failed = {std::current_exception()};
      if constexpr (requires {
                      {
                        source_->last_failure()
                      } -> std::convertible_to<std::optional<penstock::failure>>;
                    }) {
        failed.place = source_->last_failure();
      }
      return {};
    }
  }
  [[noreturn]] void reject(const batch_type& rejected) {
    const batch_info batch = rejected.info();
    if constexpr (has_tags<batch_type>) {
      take_back(batch, rejected.tags());
    } else {
      take_back(batch, {});
    }
    source_->stop();
    throw source_mismatch(
        str_cat({"transfer: batch ", batch.batch, " of epoch ", batch.epoch, " has ", batch.size,
                 " samples, but the source's layout() has ", "room for ",
                 source_->layout().batch_size(), ": produce smaller batches"}));
  }

  Source* source_;
};

/// Returns the stage that delivers the batches of `source`. The stage of an `any_loader` is its
/// core. A class derived from `any_loader` may have additional members, so it counts as a
/// user-defined source.
template <class Source>
[[nodiscard]] std::shared_ptr<source_stage<Source>> stage_of(Source& source) {
  return std::make_shared<source_stage<Source>>(source);
}

/// The stage type of a source.
template <class Source>
using stage_of_t = typename decltype(stage_of(std::declval<Source&>()))::element_type;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
