// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/version.hpp>
#include <penstock/observe/trace_stage.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

class trace_recorder;  // include <penstock/observe/trace_recorder.hpp>

namespace detail {

/// The trace track of a thread, without the recording code. `trace_writer` documents the functions.
/// Calls use a table of functions instead of virtual functions. To devirtualize a virtual call, a
/// compiler would compile the recorder into programs without a trace.
class trace_sink {
 public:
  /// Functions that a derived class implements.
  struct functions {
    std::uint64_t (*now)(const trace_sink&) noexcept;
    void (*add)(trace_sink&, trace_stage, std::uint64_t begin, const batch_info&,
                std::uint64_t samples) noexcept;
    void (*add_setting)(trace_sink&, trace_stage, std::uint64_t begin, std::uint64_t end,
                        std::uint64_t workers, std::uint64_t prefetch) noexcept;
    void (*record_wait)(trace_sink&, trace_stage, std::uint64_t begin, std::uint64_t end) noexcept;
    std::uint64_t (*work_on)(trace_sink&, const batch_info&) noexcept;
    void (*leave)(trace_sink&) noexcept;
  };

  explicit trace_sink(const functions& all) noexcept : functions_(&all) {}
  trace_sink(trace_sink&&) = delete;

  /// @name Only one thread at a time may call these members
  /// @{
  [[nodiscard]] std::uint64_t now() const noexcept { return functions_->now(*this); }
  void add(trace_stage stage, std::uint64_t begin, const batch_info& batch,
           std::uint64_t samples) noexcept {
    functions_->add(*this, stage, begin, batch, samples);
  }
  void add_setting(trace_stage stage, std::uint64_t begin, std::uint64_t end, std::uint64_t workers,
                   std::uint64_t prefetch) noexcept {
    functions_->add_setting(*this, stage, begin, end, workers, prefetch);
  }
  void record_wait(trace_stage stage, std::uint64_t begin, std::uint64_t end) noexcept {
    functions_->record_wait(*this, stage, begin, end);
  }
  std::uint64_t work_on(const batch_info& batch) noexcept {
    return functions_->work_on(*this, batch);
  }
  void leave() noexcept { functions_->leave(*this); }
  /// @}

 protected:
  ~trace_sink() = default;

 private:
  const functions* functions_;
};

/// The trace tracks of a slot ring (see `lease_tracks`).
struct lease_sink {
  void (*begin)(lease_sink&, std::size_t slot) noexcept;
  void (*end)(lease_sink&, std::size_t slot, const batch_info&) noexcept;
};

/// The recording code for an option with a `trace_recorder`. Only programs that set such an option
/// refer to this code, so only they compile it.
struct tracing {
  static constexpr std::size_t unnumbered = ~std::size_t{0};

  /// Returns a number that distinguishes the batches of a loader or transfer.
  std::uint64_t (*new_flow)(trace_recorder&);
  /// Creates the track of a thread with the name `name` and, unless `unnumbered`, a number.
  std::shared_ptr<trace_sink> (*add_track)(trace_recorder&, std::uint64_t flow, const char* name,
                                           std::size_t number);
  /// Creates a track for each of `count` slots, with the name `name` and a slot number.
  std::shared_ptr<lease_sink> (*add_leases)(trace_recorder&, std::uint64_t flow, const char* name,
                                            std::size_t count);

  static const tracing code;  ///< defined in `trace_recorder.hpp`
};

}  // namespace detail

/// The value of a `trace_recorder` option, or none. The recording code is in the recorder's header,
/// so programs without a recorder do not compile it.
class trace_target {
 public:
  /// Creates a target without a recorder, which records nothing.
  constexpr trace_target(std::nullptr_t = nullptr) noexcept {}  // NOLINT: implicit

  /// Records in `recorder`, which should outlive the loop. Records nothing if `recorder` is null.
  template <class Recorder = trace_recorder>
  constexpr trace_target(std::type_identity_t<Recorder>* recorder) noexcept  // NOLINT: implicit
      : recorder_(recorder) {
    static_assert(
        requires { sizeof(Recorder); },
        "penstock: a trace needs its implementation: include "
        "<penstock/observe/trace_recorder.hpp>");
    if (recorder != nullptr) code_ = &detail::tracing::code;
  }

  /// Returns the recorder, or null.
  [[nodiscard]] constexpr trace_recorder* recorder() const noexcept { return recorder_; }

  friend constexpr bool operator==(const trace_target&, const trace_target&) = default;

  /// @cond internal
  // Returns the recording code for loaders and transfers under construction, or null without a
  // recorder.
  [[nodiscard]] constexpr const detail::tracing* code() const noexcept { return code_; }
  // Creates the track of a thread. Returns null without a recorder.
  [[nodiscard]] std::shared_ptr<detail::trace_sink> add_track(
      std::uint64_t flow, const char* name,
      std::size_t number = detail::tracing::unnumbered) const {
    return code_ != nullptr ? code_->add_track(*recorder_, flow, name, number) : nullptr;
  }
  /// @endcond

 private:
  trace_recorder* recorder_ = nullptr;
  const detail::tracing* code_ = nullptr;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
