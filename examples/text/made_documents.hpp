// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace text {

/// A thousand documents in Megatron's format, most of them short. The destructor removes them.
class made_documents {
 public:
  /// Writes the documents. Throws std::runtime_error.
  made_documents() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "penstock-tokens-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error(pattern + ": mkdtemp");
    folder_ = pattern;
    std::ofstream tokens{prefix() + ".bin", std::ios::binary};
    std::vector<std::uint64_t> lengths;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint64_t draw = i * 2654435761U % 4093;
      lengths.push_back(draw % 40 == 0 ? draw : draw % 300);
      for (std::uint64_t t = 0; t < lengths.back(); ++t) put(tokens, (draw + 7 * t) % 50'000, 2);
    }
    std::ofstream index{prefix() + ".idx", std::ios::binary};
    index.write("MMIDIDX\0\0", 9);
    put(index, 1, 8);  // the format version
    put(index, 8, 1);  // the code for 16-bit tokens
    put(index, lengths.size(), 8);
    put(index, lengths.size() + 1, 8);
    for (const std::uint64_t length : lengths) put(index, length, 4);
    std::uint64_t begin = 0;
    for (const std::uint64_t length : lengths) {
      put(index, begin, 8);
      begin += 2 * length;
    }
    for (std::uint64_t i = 0; i <= lengths.size(); ++i) put(index, i, 8);
    if (!tokens.flush() || !index.flush())
      throw std::runtime_error(prefix() + ": can't be written");
  }
  made_documents(const made_documents&) = delete;
  made_documents& operator=(const made_documents&) = delete;
  ~made_documents() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  /// Returns the path without the extension .bin or .idx.
  [[nodiscard]] std::string prefix() const { return (folder_ / "documents").string(); }

 private:
  static void put(std::ofstream& file, std::uint64_t number, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i, number >>= 8U) {
      file.put(static_cast<char>(static_cast<unsigned char>(number & 0xffU)));
    }
  }

  std::filesystem::path folder_;
};

}  // namespace text
