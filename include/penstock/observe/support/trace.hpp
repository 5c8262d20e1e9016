// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/observe/support/stage_mark.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The tracks of a ring of slots: one per slot, with its leases. A lease may end on any thread, but
/// a slot has one lease at a time, and the synchronisation between its leases also orders the
/// writes: so each track has one writer at a time.
class lease_tracks {
 public:
  /// Records leases from now on, in tracks named `name` and a number. Must be called before the
  /// first lease.
  void trace_to(trace_recorder* recorder, std::uint64_t flow, const std::string& name,
                std::size_t count) {
    if (recorder == nullptr) return;
    tracks_.reserve(count);
    const std::size_t each =
        std::max<std::size_t>(16, recorder->capacity() / std::bit_floor(count));
    for (std::size_t slot = 0; slot < count; ++slot) {
      tracks_.push_back({recorder->add_track(joined({name, " ", slot}), flow, each), 0});
    }
  }

  /// Begins the lease of a slot.
  void begin(std::size_t slot) noexcept {
    if (tracks_.empty()) [[likely]]
      return;
    tracks_[slot].begin = tracks_[slot].writer->now();
  }
  /// Ends it, on any thread, before the slot is returned.
  void end(std::size_t slot, const batch_info& batch) noexcept {
    if (tracks_.empty()) [[likely]]
      return;
    const track& one = tracks_[slot];
    one.writer->add(trace_stage::lease, one.begin, one.writer->now(), batch, batch.size);
  }

 private:
  struct track {
    std::shared_ptr<trace_writer> writer;
    std::uint64_t begin;
  };

  std::vector<track> tracks_;  // by slot; none: nothing is recorded
};

/// The copy of a batch, marked for profilers and traced by `writer`; null: not traced. `batch` must
/// outlive it.
class noted_copy {
 public:
  noted_copy(trace_writer* writer, const batch_info& batch) noexcept
      : mark_(marked_stage::copy, batch.batch),
        traced_(writer, trace_stage::copy, batch, batch.size) {}

 private:
  [[no_unique_address]] stage_mark mark_;
  trace_scope traced_;
};

/// The step of a loop, marked and traced likewise, from `begin` to `end` or to the next `begin`.
class noted_step {
 public:
  void begin(trace_writer* writer, const batch_info& batch) noexcept {
    mark_.begin(batch.batch);
    traced_.begin(writer, trace_stage::step, batch);
  }
  void end() noexcept {
    mark_.end();
    traced_.end();
  }

 private:
  [[no_unique_address]] step_mark mark_;
  traced_step traced_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
