// SPDX-License-Identifier: BSL-1.0
#include "checkpoint.hpp"

#include <fcntl.h>

#include <exception>
#include <string_view>
#include <utility>

#include "checkpoint_file.hpp"
#include "checkpoint_format.hpp"

namespace mlp {

namespace fs = std::filesystem;

namespace {

/// A checkpoint, or why the one before it is to be taken.
struct attempt {
  std::optional<checkpoint> what;
  std::string problem;
  std::exception_ptr error;
};
attempt try_to_read(const fs::path& file, precision_choice precision) {
  try {
    return {read_checkpoint(file, precision), "", nullptr};
  } catch (const checkpoint_torn& torn) {
    return {std::nullopt, torn.what(), std::current_exception()};
  } catch (const checkpoint_unreadable& unreadable) {
    return {std::nullopt, unreadable.what(), std::current_exception()};
  }
}

}  // namespace

checkpoint_error::checkpoint_error(const fs::path& file, const std::string& problem)
    : error(file.string() + ": " + problem) {}

void write_checkpoint(const fs::path& file, const checkpoint& what,
                      const std::function<void(save_moment)>& at) {
  const auto tell = [&](save_moment moment) {
    if (at) at(moment);
  };
  const std::string all = format_checkpoint(what);

  const fs::path part = beside(file, ".part");
  {
    const open_file out{part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC};
    const std::string_view bytes{all};
    write_all(part, out.number, bytes.substr(0, bytes.size() / 2));
    tell(save_moment::half_written);
    write_all(part, out.number, bytes.substr(bytes.size() / 2));
    // A name may reach the disk before the bytes do: then a crash would leave an empty file.
    sync(part, out.number);
  }
  tell(save_moment::written);
  if (is_there(file) && try_to_read(file, what.net.precision).what)
    move_to(file, beside(file, ".before"));
  tell(save_moment::moved);
  move_to(part, file);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path{"."};
  sync(folder, open_file{folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC}.number);
}

checkpoint read_checkpoint(const fs::path& file, precision_choice precision) {
  return parse_checkpoint(file, read_all(file), precision);
}

std::optional<found_checkpoint> newest_checkpoint(const fs::path& file,
                                                  precision_choice precision) {
  const fs::path before = beside(file, ".before");
  std::string problem = file.string() + ": was being replaced when the program ended";
  if (is_there(file)) {
    attempt newest = try_to_read(file, precision);
    if (newest.what) return found_checkpoint{std::move(*newest.what), file, ""};
    if (!is_there(before)) std::rethrow_exception(newest.error);
    problem = newest.problem;
  } else if (!is_there(before)) {
    return std::nullopt;
  }
  attempt older = try_to_read(before, precision);
  if (older.what) return found_checkpoint{std::move(*older.what), before, problem};
  throw checkpoint_torn(
      file, "neither it nor the one before it can be used: " + problem + "; " + older.problem);
}

}  // namespace mlp
