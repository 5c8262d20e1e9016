// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/batch_info.hpp>
#include <penstock/observe/support/stage_mark.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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

/// The step of a loop, the same way: from `begin` to `end`, or to the next `begin`.
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
