// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test {

/// Returns a number in `width` little-endian bytes.
inline std::string little(std::uint64_t value, std::size_t width) {
  std::string bytes;
  for (std::size_t i = 0; i < width; ++i, value >>= 8U) bytes += static_cast<char>(value & 0xffU);
  return bytes;
}

/// Returns the bytes of the values, optionally with the byte order of each value reversed.
template <class T>
std::string bytes_of(const std::vector<T>& values, bool turned = false) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  for (std::size_t i = 0; turned && i < bytes.size(); i += sizeof(T)) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + sizeof(T)));
  }
  return bytes;
}

/// Returns an npy file with this header text.
inline std::string npy_of(std::string_view text, std::string_view elements, unsigned version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  bytes += little(text.size(), version == 1 ? 2 : 4);
  return bytes.append(text).append(elements);
}

/// Returns an npy file as numpy writes it.
inline std::string npy(std::string_view type, std::string_view shape, std::string_view elements) {
  std::string text = "{'descr': '";
  text.append(type).append("', 'fortran_order': False, 'shape': (").append(shape).append("), }");
  text.resize((10 + text.size() + 64) / 64 * 64 - 11, ' ');
  return npy_of(text + '\n', elements);
}

/// An entry of a zip file.
struct zip_entry {
  std::string name;
  std::string content;
  std::uint64_t method = 0;
  std::uint64_t flags = 0;
  bool zip64 = false;
  std::uint32_t sum = 0;
};

/// Returns a zip file with these entries.
inline std::string zip(const std::vector<zip_entry>& entries, bool zip64 = false) {
  std::string bytes;
  std::string directory;
  for (const zip_entry& one : entries) {
    const std::uint64_t begin = bytes.size();
    const std::uint64_t size = one.content.size();
    const std::uint64_t none = 0xffff'ffffU;
    const std::string same = little(20, 2) + little(one.flags, 2) + little(one.method, 2) +
                             little(0, 4) + little(one.sum, 4) +
                             little(one.zip64 ? none : size, 4) +
                             little(one.zip64 ? none : size, 4) + little(one.name.size(), 2);
    const std::string local = one.zip64
                                  ? little(1, 2) + little(16, 2) + little(size, 8) + little(size, 8)
                                  : std::string{};
    const std::string central = one.zip64 ? little(7, 2) + little(2, 2) + "xx" + little(1, 2) +
                                                little(24, 2) + little(size, 8) + little(size, 8) +
                                                little(begin, 8)
                                          : std::string{};
    bytes += "PK\3\4" + same + little(local.size(), 2) + one.name + local + one.content;
    directory += "PK\1\2" + little(20, 2) + same + little(central.size(), 2) + little(0, 10) +
                 little(one.zip64 ? none : begin, 4) + one.name + central;
  }
  const std::uint64_t begin = bytes.size();
  const std::uint64_t count = entries.size();
  bytes += directory;
  const std::uint64_t end = bytes.size();
  if (zip64) {
    bytes += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
             little(count, 8) + little(count, 8) + little(directory.size(), 8) + little(begin, 8);
    bytes += "PK\6\7" + little(0, 4) + little(end, 8) + little(1, 4);
  }
  const std::uint64_t none = 0xffff'ffffU;
  bytes += "PK\5\6" + little(0, 4) + little(zip64 ? 0xffff : count, 2) +
           little(zip64 ? 0xffff : count, 2) + little(zip64 ? none : directory.size(), 4) +
           little(zip64 ? none : begin, 4) + little(0, 2);
  return bytes;
}

/// Writes a file.
inline std::string write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file{path, std::ios::binary};
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
  return path;
}

}  // namespace test
