// SPDX-License-Identifier: BSL-1.0
// A simple C++17 token loader in the style of llm.c. Reads the tokens of a batch with fread and
// converts them to int.
#pragma once

#include <glob.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "token_loader.hpp"

class plain_token_loader {
 public:
  plain_token_loader(const std::string& pattern, const token_part& part)
      : window_(part.rows * part.length),
        step_(part.step() * part.length),
        begin_(window_ * static_cast<std::size_t>(part.rank)),
        read_(window_ + 1),
        converted_inputs_(window_),
        converted_targets_(window_) {
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) != 0) throw std::runtime_error("no " + pattern);
    for (std::size_t i = 0; i != found.gl_pathc; ++i) paths_.emplace_back(found.gl_pathv[i]);
    globfree(&found);
    for (std::size_t i = paths_.size(); i-- != 0;) open(i);
  }

  void next_batch() {
    if (at_ == steps_) {
      open((shard_ + 1) % paths_.size());
      at_ = 0;
    }
    const std::size_t token = at_++ * step_ + begin_;
    if (std::fseek(file_.get(), static_cast<long>(1024 + 2 * token), SEEK_SET) != 0 ||
        std::fread(read_.data(), 2, window_ + 1, file_.get()) != window_ + 1) {
      throw std::runtime_error("can't read " + paths_[shard_]);
    }
    for (std::size_t i = 0; i != window_; ++i) {
      converted_inputs_[i] = read_[i];
      converted_targets_[i] = read_[i + 1];
    }
    inputs = converted_inputs_.data();
    targets = converted_targets_.data();
  }
  void reset() {
    open(0);
    at_ = 0;
  }
  std::string state() const { return std::to_string(shard_) + ' ' + std::to_string(at_); }
  void resume(const std::string& state) {
    std::size_t shard = 0;
    std::istringstream{state} >> shard >> at_;
    open(shard);
  }

  const int* inputs = nullptr;
  const int* targets = nullptr;

 private:
  void open(std::size_t shard) {
    shard_ = shard;
    file_.reset(std::fopen(paths_[shard].c_str(), "rb"));
    std::int32_t header[256];
    if (!file_ || std::fread(header, sizeof(header), 1, file_.get()) != 1 ||
        header[0] != 20240520 || header[1] != 1) {
      throw std::runtime_error("no header in " + paths_[shard]);
    }
    std::fseek(file_.get(), 0, SEEK_END);
    const auto tokens = static_cast<std::size_t>(header[2]);
    if (static_cast<std::size_t>(std::ftell(file_.get())) != 1024 + 2 * tokens || tokens == 0) {
      throw std::runtime_error("wrong count in " + paths_[shard]);
    }
    steps_ = (tokens - 1) / step_;
    if (steps_ == 0) throw std::runtime_error("too few tokens in " + paths_[shard]);
  }

  struct closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::size_t window_, step_, begin_;
  std::vector<std::uint16_t> read_;
  std::vector<int> converted_inputs_, converted_targets_;
  std::vector<std::string> paths_;
  std::unique_ptr<std::FILE, closer> file_;
  std::size_t shard_ = 0, at_ = 0, steps_ = 0;
};
