// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint.hpp"

namespace mlp {

/// A descriptor that is closed at the end of the scope. Throws `checkpoint_unreadable` where a file
/// can't be opened for reading, else `checkpoint_error`, as all below do.
struct open_file {
  int number = -1;
  open_file(const std::filesystem::path& file, int flags);
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file();
};

/// The file's name with `suffix` after it.
[[nodiscard]] std::filesystem::path beside(const std::filesystem::path& file, const char* suffix);

/// Whether there is something of that name, be it readable or not.
[[nodiscard]] bool is_there(const std::filesystem::path& file);

/// All bytes of a file. Not by an `ifstream`, for which an error of the disk is the file's end.
[[nodiscard]] std::string read_all(const std::filesystem::path& file);

/// Writes to a descriptor of `file`.
void write_all(const std::filesystem::path& file, int to, std::string_view bytes);

/// Returns when the disk has what was written.
void sync(const std::filesystem::path& file, int descriptor);

/// Gives a file another name, in the place of what has it.
void move_to(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace mlp
