// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

namespace mlp {

/// What the processes of a training need of each other. Every rank makes the same calls in the
/// same order; a call returns when its result is there.
///
///     rank(), size()          which process this is, of how many
///     all_reduce(values)      the sum over the ranks of each value, on all of them, in place, in
///                             the device's memory
///     all_gather(mine, all)   `mine` of rank i at all[i * mine.size()], on all, in the host's
///     barrier()               all ranks have come here
///
/// A rank that dies must end the others, by an exception or by their launcher: none may wait for it
/// forever.
template <class C>
concept collective = requires(C& all, const C& constant, std::span<float> values,
                              std::span<const std::byte> mine, std::span<std::byte> everybodys) {
  { constant.rank() } -> std::convertible_to<int>;
  { constant.size() } -> std::convertible_to<int>;
  all.all_reduce(values);
  all.all_gather(mine, everybodys);
  all.barrier();
};

/// One that can also sum in the order of a stream, so that other work goes on meanwhile:
///
///     enqueue_sum(values, stream)   as `all_reduce`, put on the stream; an event recorded there after
///                                   the call comes after the sum
///     wait(stream), wait(event)     returns when the stream, or what has recorded the event, is past
///                                   all before it; an error where that takes too long
template <class C>
concept streamed_collective = collective<C> &&
    requires(C& all, std::span<float> values, typename C::stream_ref stream,
             const typename C::event_type& event) {
  all.enqueue_sum(values, stream);
  all.wait(stream);
  all.wait(event);
};

/// One process: nobody to wait for.
class no_collective {
 public:
  [[nodiscard]] static int rank() { return 0; }
  [[nodiscard]] static int size() { return 1; }
  static void all_reduce(std::span<float>) {}
  static void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    std::copy(mine.begin(), mine.end(), all.begin());
  }
  static void barrier() {}
};

static_assert(collective<no_collective>);

}  // namespace mlp
