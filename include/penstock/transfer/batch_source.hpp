// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if the batches of a source do not fit its transfer, because a loader with another layout
/// was assigned to the source, or a batch exceeds its layout.
class [[gnu::visibility("default")]] source_mismatch : public error {
 public:
  using error::error;
};

/// A batch in host memory that `transfer` can copy. Move-only, default-constructed as empty, and
/// convertible to true if it holds a batch. `host_batch` is a model.
///
/// `release_after(stream)` empties the batch. The source may refill the memory after all work that
/// is now queued on `stream` has finished. If the memory may be pageable, the batch must have
/// `pinned()`, which returns false for such memory. A `host_batch` can also be released at a point
/// of the copies, so that a `transfer` records one event for several batches.
///
/// If a producer stream may still write the batch, the batch must have a const function
/// `wait_until_written(stream)`, which makes later work on `stream` wait until the batch is
/// written. A `transfer` calls this function before the copy.
///
/// A source can attach words, which are copied to the device batch: the word `info().tag`, and one
/// word per sample if the batch has `tags()`, which returns a `std::span<const std::uint64_t>`.
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

/// A producer of batches for `transfer`. `loader` is a model. A program can adapt an existing
/// producer with the following members:
///
///     using record_type = ...; using device_type = ...; using batch_type = ...;  // a source_batch
///     device_type device() const;                       // the target device of the copies
///     const batch_layout<record_type>& layout() const;  // the layout of all batches
///     void start(const batch_position& from, std::uint64_t last_epoch);
///     batch_type next();                               // waits; empty at the end of the range
///     batch_type try_next();                           // does not wait; empty if none is ready
///     void stop() noexcept;                            // ends the range early; `start` may follow
///
/// Optional members:
///
///     bool at_end() const noexcept;         // true if next() would return an empty batch
///     std::stop_token stop_token() const;   // a request ends lease waits with `cancelled`
///     void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept;
///
/// `take_back` is for batches that must not be lost, such as server requests. The feed calls it for
/// a batch that it has taken but that the consumer does not receive, because the range ended, the
/// copy failed, or `transfer_options::newest` skipped the batch. `detail::source_stage` lists all
/// optional members and their defaults.
///
/// `device` and `layout` are called at construction and at the start of each range. If the results
/// change, the range throws `source_mismatch`. All other members are called on the consumer thread,
/// one call at a time. The feed takes a batch only if it has a device slot for the batch. If `next`
/// or `try_next` throws, the source is considered stopped, and the consumer receives the exception
/// instead of the batch. Copies overlap only if the batches are in pinned memory.
///
/// @see tests/support/frames.hpp, a source that implements all members.
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

/// A source whose position can be stored in a checkpoint. `state_at(next)` returns a value with the
/// members `epoch` and `batch`, the position of the next batch. The namespace of the value's type
/// must contain a function `require_same_order(state, own)`, which throws unless all batches from
/// that position are the same. `loader_state` is an example.
template <class S>
concept resumable_source =
    batch_source<S> && requires(const S& source, const batch_position& next) {
      require_same_order(source.state_at(next), source.state_at(next));
    };

}  // namespace PENSTOCK_ABI
}  // namespace penstock
