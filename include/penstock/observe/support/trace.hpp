// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>

#if PENSTOCK_NVTX
#include <nvtx3/nvToolsExt.h>

#include <array>
#endif

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

/// The NVTX domain `penstock` with the registered names of the stages. Made with the first mark and
/// never destroyed, since threads may still use it while static objects are destroyed. Without a
/// profiler a call only tests a pointer.
class nvtx_domain {
 public:
  static void push(marked_stage stage, std::optional<std::uint64_t> batch) noexcept {
    const nvtxEventAttributes_t attributes = attributes_of(stage, batch);
    ::nvtxDomainRangePushEx(the().domain_, &attributes);
  }
  static void pop() noexcept { ::nvtxDomainRangePop(the().domain_); }

  static std::uint64_t start(marked_stage stage, std::uint64_t batch) noexcept {
    const nvtxEventAttributes_t attributes = attributes_of(stage, batch);
    return ::nvtxDomainRangeStartEx(the().domain_, &attributes);
  }
  static void end(std::uint64_t range) noexcept { ::nvtxDomainRangeEnd(the().domain_, range); }

 private:
  static constexpr std::array<const char*, 7> names{
      "read", "wait for demand", "wait for slot", "wait for batch", "copy", "step", "consume"};

  nvtx_domain() noexcept : domain_(::nvtxDomainCreateA("penstock")) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      registered_[i] = ::nvtxDomainRegisterStringA(domain_, names[i]);
    }
  }

  static const nvtx_domain& the() noexcept {
    static const nvtx_domain one;
    return one;
  }

  static nvtxEventAttributes_t attributes_of(marked_stage stage,
                                             std::optional<std::uint64_t> batch) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = the().registered_[static_cast<std::size_t>(stage)];
    if (batch) {
      attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      attributes.payload.ullValue = *batch;
    }
    return attributes;
  }

  nvtxDomainHandle_t domain_;
  std::array<nvtxStringHandle_t, names.size()> registered_{};
};

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
  }
  void end() noexcept {
    if (range_) nvtx_domain::end(*range_);
    range_.reset();
  }

 private:
  std::optional<std::uint64_t> range_;  // that is open
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
