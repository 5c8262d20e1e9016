// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/version.hpp>
#include <penstock/observe/trace_target.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Records the leases of a slot ring in a trace, if any. Each slot has its own track.
class lease_tracks {
 public:
  /// Records all leases in tracks with the name `name` and a slot number. Must be called before the
  /// first lease.
  void trace_to(const trace_target& target, std::uint64_t flow, const char* name,
                std::size_t count) {
    if (target.code() == nullptr) return;
    sink_ = target.code()->add_leases(*target.recorder(), flow, name, count);
  }

  /// Records the start of a slot lease.
  void begin(std::size_t slot) noexcept {
    if (sink_ != nullptr) [[unlikely]]
      sink_->begin(*sink_, slot);
  }
  /// Records the end of a slot lease. Any thread may call this before it returns the slot.
  void end(std::size_t slot, const batch_info& batch) noexcept {
    if (sink_ != nullptr) [[unlikely]]
      sink_->end(*sink_, slot, batch);
  }

 private:
  std::shared_ptr<lease_sink> sink_;  // null if nothing is recorded
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
