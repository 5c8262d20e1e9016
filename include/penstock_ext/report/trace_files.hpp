// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>

#include <penstock/observe/trace_recorder.hpp>
#include <penstock_ext/files/support/whole_file.hpp>
#include <penstock_ext/report/detail/chrome_text.hpp>
#include <penstock_ext/report/detail/perfetto_bytes.hpp>
#include <penstock_ext/report/report_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Writes a trace for ui.perfetto.dev and Perfetto's trace processor: a track for each thread and
/// each slot, a slice for each stage with epoch, batch and samples, and arrows that link the slices
/// of a batch. About 60 bytes a slice, in memory at first.
///
/// The file is written beside `path` and renamed when it is whole, so nobody sees half of it; what
/// is no ordinary file, as a pipe, is written to as it is. Throws `report_error`, std::bad_alloc.
/// From any thread; no loop waits for it.
inline void write_perfetto(const trace_snapshot& trace, const std::string& path) {
  const detail::perfetto_bytes made{trace};
  if (const int wrong = detail::write_whole_file(path, made.bytes())) {
    throw report_error(path, "the trace", wrong);
  }
}
/// Writes what a recorder holds now.
inline void write_perfetto(const trace_recorder& recorder, const std::string& path) {
  write_perfetto(recorder.snapshot(), path);
}

/// Writes a trace as JSON for chrome://tracing, with the same in it: about three times as long. As
/// `write_perfetto` otherwise.
inline void write_chrome_trace(const trace_snapshot& trace, const std::string& path) {
  const detail::chrome_text made{trace};
  if (const int wrong = detail::write_whole_file(path, made.text())) {
    throw report_error(path, "the trace", wrong);
  }
}
/// Writes what a recorder holds now.
inline void write_chrome_trace(const trace_recorder& recorder, const std::string& path) {
  write_chrome_trace(recorder.snapshot(), path);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
