// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <penstock/resume/loader_state.hpp>

/// The training state on disk: a line of text with the data position, followed by the raw arrays.
namespace data_parallel {

struct checkpoint {
  penstock::loader_state next;  ///< the next global batch
  std::vector<float> weights;
  std::vector<float> momenta;
};

/// Replaces `file` with this checkpoint. A new file is written next to it, synced, and renamed, so
/// a complete checkpoint always exists. Throws `std::system_error`.
inline void write_checkpoint(const std::filesystem::path& file, const checkpoint& what) {
  std::string text = penstock::to_text(what.next) + '\n';
  for (const auto* values : {&what.weights, &what.momenta}) {
    text.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float));
  }
  const std::string beside = file.string() + ".new";
  const auto require = [&](bool holds) {
    if (!holds) throw std::system_error(errno, std::generic_category(), beside);
  };
  const int to = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  require(to >= 0);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(to, text.data() + done, text.size() - done);
    require(count >= 0 || errno == EINTR);
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  require(::fsync(to) == 0);
  require(::close(to) == 0);
  std::filesystem::rename(beside, file);
}

/// Reads the checkpoint in `file`, with arrays of `size` values. Returns an empty optional if the
/// file does not exist. Throws `std::runtime_error` if the file has another length, and
/// `penstock::error` if its text is not a state.
[[nodiscard]] inline std::optional<checkpoint> read_checkpoint(const std::filesystem::path& file,
                                                               std::size_t size) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  std::ifstream in{file, std::ios::binary};
  std::string line;
  std::getline(in, line);
  std::ostringstream rest;
  rest << in.rdbuf();
  const std::string bytes = rest.str();
  if (bytes.size() != 2 * size * sizeof(float)) {
    throw std::runtime_error(file.string() + ": expected " +
                             std::to_string(2 * size * sizeof(float)) +
                             " bytes after the first line, found " + std::to_string(bytes.size()) +
                             ": name another file, or start again");
  }
  checkpoint found{penstock::from_text<penstock::loader_state>(line), std::vector<float>(size),
                   std::vector<float>(size)};
  bytes.copy(reinterpret_cast<char*>(found.weights.data()), size * sizeof(float));
  bytes.copy(reinterpret_cast<char*>(found.momenta.data()), size * sizeof(float),
             size * sizeof(float));
  return found;
}

}  // namespace data_parallel
