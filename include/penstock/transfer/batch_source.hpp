// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A batch in host memory that `transfer` can copy from: move-only, empty by default, true when it
/// holds a batch.
///
/// `release_after(stream)` gives the memory back to the source for refilling as soon as `stream`
/// has done what it was given so far, and empties the batch. A batch that may lie in memory which
/// is not page-locked has `pinned()`, which is false then. `host_batch` is the model. It also has
/// `mark_copies(stream)`, which records where the stream is and gives the record away, and
/// `release_behind(mark)`, which gives the memory back after one that this or another batch has
/// made: a `transfer` then makes none of its own, and one for several batches.
///
/// What a source says of a batch comes along to the device batch: the word `tag` of its `info()`,
/// and a word for each sample if it has `tags()`, a `std::span<const std::uint64_t>`.
template <class B>
concept source_batch =
    std::movable<B> && std::default_initializable<B> && !std::copyable<B> &&
    requires(B& batch, const B& constant, typename B::device_type::stream_ref stream) {
      typename B::record_type;
      static_cast<bool>(constant);
      { constant.data() } -> std::convertible_to<const std::byte*>;
      { constant.info() } -> std::convertible_to<batch_info>;
      batch.release_after(stream);
    };

/// Where `transfer` gets batches from; `loader` models it, and so can a producer that exists
/// already:
///
///     using record_type = ...;  using device_type = ...;  using batch_type = ...;  // a source_batch
///     device_type device() const;                       // the device that is fed
///     const batch_layout<record_type>& layout() const; // of every batch's memory
///     void start(const batch_position& from, std::uint64_t last_epoch);
///     batch_type next();                               // waits; empty at the end of what was started
///     batch_type try_next();                           // does not wait; empty if none is ready
///     void stop() noexcept;                            // end early; the source can be started again
///
/// and, where it can say so:
///
///     bool at_end() const noexcept;         // next() would give an empty batch at once
///     std::stop_token stop_token() const;   // a request ends a feed's wait for a lease: `cancelled`
///     void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept;
///
/// The last is for what must not be lost, as requests of a server: a batch that the feed was given
/// and has handed to no consumer, because its range ended or its copy failed.
///
/// `device` and `layout` are called at construction; all others on the consumer's thread, one at a
/// time. A batch is asked for only when there is a device slot for it. What they throw reaches the
/// consumer at that batch's turn, and the source counts as stopped then. Batches lie in memory that
/// the device can copy from asynchronously (pinned) for copies to overlap.
///
/// @see examples/05_existing_producer.cpp
template <class S>
concept batch_source =
    device<typename S::device_type> && source_batch<typename S::batch_type> &&
    requires(S& source, const S& constant, const batch_position& from, std::uint64_t last_epoch) {
      { constant.device() } -> std::convertible_to<typename S::device_type>;
      { constant.layout() } -> std::convertible_to<const batch_layout<typename S::record_type>&>;
      source.start(from, last_epoch);
      { source.next() } -> std::same_as<typename S::batch_type>;
      { source.try_next() } -> std::same_as<typename S::batch_type>;
      { source.stop() } noexcept;
    };

/// A source that can say where a loop stands. `state_at(next)` is a value to keep in a checkpoint,
/// with the members `epoch` and `batch` of the batch that is next; `require_same_order(state, own)`
/// beside its type throws unless the batches from there on are the same. `loader_state` is the
/// model.
template <class S>
concept resumable_source =
    batch_source<S> && requires(const S& source, const batch_position& next) {
      require_same_order(source.state_at(next), source.state_at(next));
    };

}  // namespace PENSTOCK_ABI
}  // namespace penstock
