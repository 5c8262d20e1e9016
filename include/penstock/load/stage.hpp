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

/// A pipeline stage, which delivers the batches of one range after another. `loader_core` is a
/// stage, and `source_stage` converts a user-defined `batch_source` to a stage. A feed calls a
/// stage on the consumer thread, one call at a time. Any thread may call `stats`.
///
///     void start(const batch_position& from, std::uint64_t last_epoch);
///     batch_type next(failed_batch& failed) noexcept;      // waits; empty at the end
///     batch_type try_next(failed_batch& failed) noexcept;  // does not wait; empty if not ready
///     void stop() noexcept;              // ends the range early; another range can be started
///     bool at_end() const noexcept;      // true if `next` would return an empty batch
///     bool was_cut() const noexcept;     // true if a call to the source ended the range
///
/// On an error, `next` and `try_next` return an empty batch and set `failed`. In that case, the
/// range is over, and the stage is stopped.
///
///     judged_samples judged() const;              // counts for the error limits
///     void judge_from(const judged_samples&);     // excludes undelivered batches
///     void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept;
///
/// A feed takes batches ahead of its consumer. The last three functions handle batches that the
/// consumer does not receive, because the range ended or a copy failed.
///
///     std::stop_token stop_token() const;         // a request ends all waits of the feed
///     std::optional<loader_stats> stats() const;
///     std::optional<holdable_slots> holdable() const;  // empty if a feed must not hold batches
///     bool lists_samples() const;                 // true if batches have sample lists
///     std::uint64_t trace_flow(const trace_recorder*) const;  // 0 if not recorded
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
