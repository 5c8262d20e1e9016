// SPDX-License-Identifier: BSL-1.0
#include "checkpoint_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace mlp {

namespace fs = std::filesystem;

namespace {

template <class Error = checkpoint_error>
[[noreturn]] void refuse_system(const fs::path& file, const std::string& what, int number) {
  throw Error(file, what + ": " + std::system_category().message(number));
}

}  // namespace

open_file::open_file(const fs::path& file, int flags) : number(::open(file.c_str(), flags, 0666)) {
  if (number >= 0) return;
  if ((flags & O_ACCMODE) == O_RDONLY) {
    refuse_system<checkpoint_unreadable>(file, "can't be opened", errno);
  }
  refuse_system(file, "can't be opened", errno);
}

open_file::~open_file() { ::close(number); }

fs::path beside(const fs::path& file, const char* suffix) {
  fs::path name = file;
  return name += suffix;
}

bool is_there(const fs::path& file) {
  std::error_code problem;
  return fs::symlink_status(file, problem).type() != fs::file_type::not_found;
}

std::string read_all(const fs::path& file) {
  const open_file from{file, O_RDONLY | O_CLOEXEC};
  std::string all;
  std::array<char, 65536> some{};
  while (true) {
    const ssize_t count = ::read(from.number, some.data(), some.size());
    if (count == 0) return all;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_system<checkpoint_unreadable>(file, "can't be read", errno);
    all.append(some.data(), static_cast<std::size_t>(count));
  }
}

void write_all(const fs::path& file, int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(to, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse_system(file, "can't be written", count < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void sync(const fs::path& file, int descriptor) {
  if (::fsync(descriptor) != 0) refuse_system(file, "can't be synced", errno);
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  fs::rename(from, to, problem);
  if (problem) refuse_system(to, "can't get the name", problem.value());
}

}  // namespace mlp
