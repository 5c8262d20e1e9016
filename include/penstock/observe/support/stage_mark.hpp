// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>

#include <penstock/core/version.hpp>
#include <penstock/observe/detail/nvtx_domain.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a thread does with a batch, or waits for.
enum class marked_stage : std::uint8_t {
  read,             ///< a worker reads a run
  wait_for_demand,  ///< a worker waits until one more batch is wanted
  wait_for_slot,    ///< a worker waits for a free host slot
  wait_for_batch,   ///< the consumer waits for a batch to be complete
  copy,             ///< the consumer's thread queues the copy of a batch, and its transform
  step,             ///< from a batch's hand-out to the next one, on the consumer's thread
};

#if PENSTOCK_NVTX

/// While it lives, a profiler that reads NVTX shows the stage as a range of the calling thread, in
/// the domain `penstock`, with the batch's number as payload. Marks of a thread nest.
class stage_mark {
 public:
  stage_mark(marked_stage stage, std::uint64_t batch) noexcept { nvtx_domain::push(stage, batch); }
  /// For a batch whose number is not known yet: without payload.
  explicit stage_mark(marked_stage stage) noexcept { nvtx_domain::push(stage, std::nullopt); }
  stage_mark(const stage_mark&) = delete;
  stage_mark& operator=(const stage_mark&) = delete;
  ~stage_mark() { nvtx_domain::pop(); }
};

/// The step of a loop whose body is the user's, with ranges of its own perhaps: a range that need
/// not nest, from `begin` to the next one, or to `end`.
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
