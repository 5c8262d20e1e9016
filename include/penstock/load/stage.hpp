// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/device/device.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_target.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The host slots of a stage whose batches may outlive it. A feed may hold such batches.
struct holdable_slots {
  std::size_t count = 0;
  bool pinned = false;  // true if the slots are page-locked
};

/// A stage of the pipeline, which delivers batches, one range after another. `loader_core` is a
/// stage, and `source_stage` makes a stage of a `batch_source` of the program. A feed reads a stage
/// on its consumer's thread, one call at a time. Any thread may call `stats`.
///
///     void start(const batch_position& from, std::uint64_t last_epoch);
///     batch_type next(failed_batch& failed) noexcept;      // waits; empty at the end
///     batch_type try_next(failed_batch& failed) noexcept;  // does not wait; empty if not ready
///     void stop() noexcept;              // ends the range early; another range can be started
///     bool at_end() const noexcept;      // `next` would return an empty batch at once
///     bool was_cut() const noexcept;     // the program ended the range by a call to the source
///
/// An error is a value: `next` and `try_next` return an empty batch and set `failed`. In that case
/// the range is over, and the stage is stopped.
///
///     judged_samples judged() const;              // counts that the error limits compare
///     void judge_from(const judged_samples&);     // forgets batches that reach no consumer
///     void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept;
///
/// A feed takes batches ahead of its consumer. The last three functions take back batches that the
/// consumer does not get, because the range ended or a copy failed.
///
///     std::stop_token stop_token() const;         // a request ends the feed's waits
///     std::optional<loader_stats> stats() const;
///     std::optional<holdable_slots> holdable() const;  // nothing: a feed may hold no batch
///     bool lists_samples() const;                 // batches have lists of their samples
///     std::uint64_t trace_flow(const trace_recorder*) const;  // 0: not recorded there
template <class S>
concept stage =
    device<typename S::device_type> &&
    requires(S& stage, const S& constant, const batch_position& from, std::uint64_t last_epoch,
             failed_batch& failed, const judged_samples& judged, const batch_info& info,
             std::span<const std::uint64_t> tags, const trace_recorder* recorder) {
      stage.start(from, last_epoch);
      { stage.next(failed) } noexcept -> std::same_as<typename S::batch_type>;
      { stage.try_next(failed) } noexcept -> std::same_as<typename S::batch_type>;
      { stage.stop() } noexcept;
      { constant.at_end() } noexcept -> std::same_as<bool>;
      { constant.was_cut() } noexcept -> std::same_as<bool>;
      { constant.judged() } noexcept -> std::same_as<judged_samples>;
      { stage.judge_from(judged) } noexcept;
      { stage.take_back(info, tags) } noexcept;
      { constant.stop_token() } -> std::same_as<std::stop_token>;
      { constant.stats() } -> std::convertible_to<std::optional<loader_stats>>;
      { constant.holdable() } -> std::convertible_to<std::optional<holdable_slots>>;
      { constant.lists_samples() } -> std::same_as<bool>;
      { constant.trace_flow(recorder) } noexcept -> std::same_as<std::uint64_t>;
    };

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
