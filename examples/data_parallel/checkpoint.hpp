// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/resume/loader_state.hpp>

#include "network_state.hpp"
#include "step_options.hpp"

/// The training on disk. A checkpoint is one file: lines of text that say what it is, and the
/// arrays of floats as they lie in memory.
///
///     penstock_mlp_checkpoint 2
///     network 784-128-64-10
///     precision fp32
///     state penstock_state=1 epoch=0 batch=3 ...
///     sha256 <of the lines above and of all that follows this one>
///
/// The first line and the last are those of every version, so that a later one is told from a
/// damaged one. A file is written beside the last one, which then becomes FILE.before: at any
/// moment one of the two is whole, whenever a process or the machine dies.
namespace mlp {

/// Where a training stands.
struct checkpoint {
  penstock::loader_state state;  ///< the next batch
  network_state net;
};

/// A file is no checkpoint for this program; the types below say what is wrong with it.
class checkpoint_error : public penstock::error {
 public:
  checkpoint_error(const std::filesystem::path& file, const std::string& problem);
};
/// The file is cut short or damaged: its content is not what was written.
class checkpoint_torn : public checkpoint_error {
 public:
  using checkpoint_error::checkpoint_error;
};
/// The system does not give the file's bytes: an error of the disk, or no permission.
class checkpoint_unreadable : public checkpoint_error {
 public:
  using checkpoint_error::checkpoint_error;
};
/// The file is of a network of other layers, or of another precision.
class checkpoint_of_another : public checkpoint_error {
 public:
  using checkpoint_error::checkpoint_error;
};
/// A later version of this program has written the file, which is whole.
class checkpoint_too_new : public checkpoint_error {
 public:
  using checkpoint_error::checkpoint_error;
};

/// Moments of a write at which a test may end the process.
enum class save_moment { half_written, written, moved };

/// Makes `file` this checkpoint, and what it was `file`.before, unless that is torn or unreadable.
/// Returns when the disk has it. Throws `checkpoint_error` with the system's reason, and for a file
/// that is another training's or a later version's, which stays; a whole one is left then.
void write_checkpoint(const std::filesystem::path& file, const checkpoint& what,
                      const std::function<void(save_moment)>& at = {});

/// Reads one file, for a network of that precision. Throws `checkpoint_error`.
[[nodiscard]] checkpoint read_checkpoint(const std::filesystem::path& file,
                                         precision_choice precision = precision_choice::fp32);

/// The newest checkpoint, and why a newer one was passed over; "" if none was.
struct found_checkpoint {
  checkpoint what;
  std::filesystem::path file;
  std::string passed_over;
};

/// Reads `file`, or `file`.before where it is torn, unreadable or not there; nothing where neither
/// is there. Throws `checkpoint_error` for the others, and where neither of the two can be used,
/// with what is wrong with each.
[[nodiscard]] std::optional<found_checkpoint> newest_checkpoint(
    const std::filesystem::path& file, precision_choice precision = precision_choice::fp32);

}  // namespace mlp
