// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <penstock/observe/trace_recorder.hpp>
#include <penstock_ext/report/detail/nested.hpp>
#include <penstock_ext/report/detail/protobuf.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A trace as Perfetto's protocol buffer: a sequence of packets for each track, with its names,
/// clock and track said once. The numbers are those of perfetto's protos/perfetto/trace.
class perfetto_bytes {
 public:
  explicit perfetto_bytes(const trace_snapshot& trace)
      : process_(static_cast<std::uint64_t>(::getpid())) {
    clocks(trace);
    process();
    for (const trace_track& track : trace.tracks) {
      ++sequence_;
      describe(track);
      walk_nested(
          track, [&](const trace_event& event) { begin(track, event); },
          [&](std::chrono::nanoseconds time) { end(time); });
    }
  }
  [[nodiscard]] const std::string& bytes() const noexcept { return trace_.bytes(); }

 private:
  using message = protobuf_message;
  static constexpr std::uint64_t monotonic = 3;  // BuiltinClock
  static constexpr std::uint64_t boottime = 6;
  static constexpr std::uint64_t cleared = 1;  // SequenceFlags
  static constexpr std::uint64_t needs_state = 2;
  static constexpr std::uint64_t first_track = 0x70656E73746F636B;  // anything but 0

  static std::uint64_t nanoseconds(std::chrono::nanoseconds time) noexcept {
    return static_cast<std::uint64_t>(time.count());
  }
  void packet(message& one) {
    one.number(10, sequence_);  // trusted_packet_sequence_id
    trace_.message(1, one);
  }

  /// How the two clocks stood to each other, and that times are those of the first.
  void clocks(const trace_snapshot& trace) {
    message snapshot;
    snapshot.message(1, message{}.number(1, monotonic).number(2, nanoseconds(trace.taken)))
        .message(
            1, message{}.number(1, boottime).number(2, nanoseconds(trace.taken + trace.suspended)))
        .number(2, monotonic);  // primary_trace_clock
    message one;
    one.number(58, monotonic).number(8, nanoseconds(trace.taken)).message(6, snapshot);
    packet(one);
  }
  void process() {
    message one;
    one.message(60, message{}
                        .number(1, first_track)
                        .message(3, message{}.number(1, process_).bytes(6, "penstock")));
    packet(one);
  }

  /// The track; and what all packets of its sequence have in common.
  void describe(const trace_track& track) {
    const std::uint64_t uuid = first_track + sequence_;
    message described;
    described.number(1, uuid).bytes(2, track.name).number(5, first_track);
    if (track.name.starts_with("penstock ")) {
      described.message(4, message{}
                               .number(1, process_)
                               .number(2, process_ + sequence_)  // its place here, not the kernel's
                               .bytes(5, track.name));
    }
    message names;
    for (std::uint64_t stage = 0;; ++stage) {
      const std::string_view name = name_of(static_cast<trace_stage>(stage));
      if (name.empty()) break;
      names.message(2, message{}.number(1, stage + 1).bytes(2, name));
    }
    std::uint64_t iid = 0;
    for (const std::string_view name :
         {"epoch", "batch", "samples", "workers", "prefetch", "slots"}) {
      names.message(3, message{}.number(1, ++iid).bytes(2, name));
    }
    message one;
    one.message(60, described)
        .message(12, names)
        .message(59, message{}.number(58, monotonic).message(11, message{}.number(11, uuid)))
        .number(13, cleared | needs_state)
        .number(87, 1);  // first_packet_on_sequence
    packet(one);
  }

  void begin(const trace_track& track, const trace_event& event) {
    message begun;
    begun.number(9, 1).number(10, static_cast<std::uint64_t>(event.stage) + 1);
    if (event.batch) {
      begun.message(4, message{}.number(1, 1).number(3, event.batch->epoch));
      begun.message(4, message{}.number(1, 2).number(3, event.batch->batch));
      if (event.samples != 0) begun.message(4, message{}.number(1, 3).number(3, event.samples));
      begun.fixed64(47, flow_of(track, *event.batch));
    } else if (event.stage == trace_stage::setting) {
      begun.message(4, message{}.number(1, 4).number(3, event.workers));
      begun.message(4, message{}.number(1, 5).number(3, event.prefetch));
    } else if (event.stage == trace_stage::depth) {
      begun.message(4, message{}.number(1, 6).number(3, event.depth));
    }
    at(event.begin, begun);
  }
  void end(std::chrono::nanoseconds time) { at(time, message{}.number(9, 2)); }

  void at(std::chrono::nanoseconds time, const message& event) {
    message one;
    one.number(8, nanoseconds(time)).message(11, event).number(13, needs_state);
    packet(one);
  }

  message trace_;
  std::uint64_t process_;
  std::uint64_t sequence_ = 1;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
