// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Writes `state` to the file `path` as one line of text:
///
///     ps::save_state("run/loader.state", feed.state());               // with the weights
///     for (auto& batch : feed.resume(ps::load_state("run/loader.state"), last_epoch)) ...
///
/// The text is written to a temporary file next to `path`, named NAME.part-PROCESS-NUMBER, which is
/// renamed to `path` when it is completely on disk. If the process is killed or the power fails,
/// `path` contains either the old or the new state. The next call for `path` removes the temporary
/// file of a killed process. Throws `file_unwritable`, and then leaves the old state unchanged. Any
/// thread may call this. If several threads write concurrently, the last writer wins.
inline void save_state(const std::string& path, const loader_state& state) {
  const int wrong = detail::write_whole_file(path, to_text(state) + '\n', true);
  if (wrong == 0) return;
  throw file_unwritable(path, 0, "a file that can be written",
                        std::system_category().message(wrong));
}

/// Loads the state in the file `path`. Throws `file_unreadable`, and `file_format_error` if the
/// file was not written by `save_state`.
[[nodiscard]] inline loader_state load_state(const std::string& path) {
  constexpr std::uint64_t max_bytes = 4096;
  const std::vector<std::byte> bytes = detail::read_file(path, max_bytes);
  try {
    return from_text<loader_state>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const text_error& problem) {
    throw file_format_error(path, problem.offset(), "a state that save_state wrote",
                            problem.what());
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
