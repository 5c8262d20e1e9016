// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <system_error>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/observe/detail/trace/chrome_text.hpp>
#include <penstock/observe/detail/trace/perfetto_bytes.hpp>
#include <penstock/observe/detail/trace/whole_file.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A trace could not be written: its folder is missing or may not be written to, the disk is full.
/// What was there under the path before is unchanged.
class [[gnu::visibility("default")]] trace_error : public error {
 public:
  trace_error(std::string path, int number)
      : error(path + ": the trace can't be written: " + std::system_category().message(number)),
        path_(std::move(path)),
        number_(number) {}
  /// The file.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What the system says, as `errno` does: ENOSPC, EACCES.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  std::string path_;
  int number_;
};

/// Writes a trace for ui.perfetto.dev and Perfetto's trace processor: a track for each thread and
/// each slot, a slice for each stage with epoch, batch and samples, and arrows that link the slices
/// of a batch. About 60 bytes a slice, in memory at first.
///
/// The file is written beside `path` and renamed when it is whole, so nobody sees half of it; what
/// is no ordinary file, as a pipe, is written to as it is. Throws `trace_error`, std::bad_alloc. From
/// any thread; no loop waits for it.
inline void write_perfetto(const trace_snapshot& trace, const std::string& path) {
  const detail::perfetto_bytes made{trace};
  if (const int wrong = detail::write_whole_file(path, made.bytes())) {
    throw trace_error(path, wrong);
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
    throw trace_error(path, wrong);
  }
}
/// Writes what a recorder holds now.
inline void write_chrome_trace(const trace_recorder& recorder, const std::string& path) {
  write_chrome_trace(recorder.snapshot(), path);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
