// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

namespace images {

/// A .npy file (format 1.0) of images with N x size x size x 3 bytes, where N is known only at the
/// end.
class npy_file {
 public:
  /// Creates the file. Throws std::runtime_error.
  npy_file(const std::string& path, std::size_t size) : path_(path), size_(size) {
    file_.open(path, std::ios::binary | std::ios::trunc);
    write_header(0);
  }
  /// Appends images. Throws std::runtime_error.
  void append(std::span<const std::uint8_t> pixels) {
    // The aliasing rules permit access to the bytes of any object through char.
    file_.write(reinterpret_cast<const char*>(pixels.data()),
                static_cast<std::streamsize>(pixels.size()));
    bytes_ += pixels.size();
    check();
  }
  /// Writes the final number of images to the header. Throws std::runtime_error.
  void close() {
    file_.seekp(0);
    write_header(bytes_ / (size_ * size_ * 3));
    file_.close();
    check();
  }

 private:
  // The header always has 128 bytes, so that the position of the data does not depend on the number
  // of images.
  void write_header(std::uint64_t count) {
    const std::string side = std::to_string(size_);
    std::string text = "{'descr': '|u1', 'fortran_order': False, 'shape': (" +
                       std::to_string(count) + ", " + side + ", " + side + ", 3), }";
    text.resize(117, ' ');
    file_ << "\x93NUMPY" << '\x01' << '\0' << '\x76' << '\0' << text << '\n';
    check();
  }
  void check() {
    if (!file_) throw std::runtime_error(path_ + ": can't be written");
  }

  std::string path_;
  std::size_t size_;
  std::ofstream file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace images
