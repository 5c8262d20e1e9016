// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>

#include <penstock/core/version.hpp>
#include <penstock/observe/detail/nvtx_domain.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The stage of a batch that a thread works on or waits for.
enum class marked_stage : std::uint8_t {
  read,             ///< a worker reads a chunk
  wait_for_demand,  ///< a worker waits until another batch is wanted
  wait_for_slot,    ///< a worker waits for a free host slot
  wait_for_batch,   ///< the consumer waits for a batch to be complete
  copy,             ///< the consumer's thread queues the copy of a batch, and its transform; a
                    ///< worker of `results` that of its results
  step,             ///< from a batch's hand-out to the next one, on the consumer's thread
  consume,          ///< a worker of `results` calls the consumer of a batch's results
};

#if PENSTOCK_NVTX

/// Shows the stage in NVTX profilers as a range of the calling thread for its lifetime, in the
/// domain `penstock`, with the batch's number as payload. Marks of a thread nest.
class stage_mark {
 public:
  stage_mark(marked_stage stage, std::uint64_t batch) noexcept { nvtx_domain::push(stage, batch); }
  /// For a batch whose number is not known yet: without payload.
  explicit stage_mark(marked_stage stage) noexcept { nvtx_domain::push(stage, std::nullopt); }
  stage_mark(const stage_mark&) = delete;
  stage_mark& operator=(const stage_mark&) = delete;
  ~stage_mark() { nvtx_domain::pop(); }
};

/// Marks the step of a loop, from `begin` to the next `begin` or to `end`. The range need not nest
/// with those of the user's body.
class step_mark {
 public:
  step_mark() = default;
  step_mark(step_mark&&) = delete;
  ~step_mark() { end(); }
  void begin(std::uint64_t batch) noexcept {
    end();
    range_ = nvtx_domain::start(marked_stage::step, batch);
    is_open_ = true;
  }
  void end() noexcept {
    if (is_open_) nvtx_domain::end(range_);
    is_open_ = false;
  }

 private:
  std::uint64_t range_ = 0;
  bool is_open_ = false;
};

#else

struct stage_mark {
  constexpr explicit stage_mark(marked_stage) noexcept {}
  constexpr stage_mark(marked_stage, std::uint64_t) noexcept {}
};
struct step_mark {
  constexpr void begin(std::uint64_t) noexcept {}
  constexpr void end() noexcept {}
};

#endif

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
