// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as a CIFAR file, both unchanged and padded to whole rows. The file must
// have whole rows and valid class labels, or be rejected with a file error that points into the
// bytes.
#include <penstock_ext/files/cifar_dataset.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

class bytes_source {
 public:
  bytes_source(std::span<const std::byte> bytes, std::uint64_t announced)
      : left_(bytes), announced_(announced) {}
  std::size_t read(std::span<std::byte> out) {
    const std::size_t count = (std::min)(out.size(), left_.size());
    if (count != 0) std::memcpy(out.data(), left_.data(), count);
    left_ = left_.subspan(count);
    announced_ -= (std::min)(announced_, std::uint64_t{count});
    return count;
  }
  std::uint64_t available() const { return announced_; }
  const std::string& path() const { return path_; }

 private:
  std::span<const std::byte> left_;
  std::uint64_t announced_;
  std::string path_ = "fuzzed";
};

void check(std::span<const std::byte> bytes, std::uint64_t announced,
           std::span<const ps::detail::cifar_label> labels) {
  const std::size_t row = labels.size() + ps::detail::cifar_image_bytes;
  bytes_source source{bytes, announced};
  try {
    const auto read = ps::detail::read_cifar(source, labels);
    fuzz::require(std::equal(read.begin(), read.end(), bytes.begin(), bytes.end()), "all bytes");
    fuzz::require(!read.empty() && read.size() % row == 0, "whole rows");
    for (std::size_t at = 0; at < read.size(); at += row) {
      for (std::size_t i = 0; i < labels.size(); ++i) {
        fuzz::require(std::to_integer<unsigned>(read[at + i]) < labels[i].classes, "a class");
      }
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= bytes.size(), "an error points into the file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array ten{ps::detail::cifar_label{"a label", 10}};
  constexpr std::array hundred{ps::detail::cifar_label{"a coarse label", 20},
                               ps::detail::cifar_label{"a label", 100}};
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  check(bytes, size, ten);
  check(bytes, size / 2, hundred);
  // Makes up to four rows. Each input byte becomes the label of a row.
  const std::size_t rows = (std::min)(size, std::size_t{4});
  for (const bool is_hundred : {false, true}) {
    const std::size_t row = ps::detail::cifar_image_bytes + (is_hundred ? 2 : 1);
    std::vector<std::byte> made(rows * row);
    for (std::size_t i = 0; i < rows; ++i) made[i * row] = bytes[i];
    if (is_hundred) {
      check(made, made.size(), hundred);
    } else {
      check(made, made.size(), ten);
    }
  }
  return 0;
}
