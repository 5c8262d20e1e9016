// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as an IDX file. The file must match its header, or be rejected with a file
// error that points into the bytes.
#include <penstock_ext/files/idx_dataset.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

class bytes_source {
 public:
  bytes_source(std::span<const std::byte> bytes, std::string path)
      : left_(bytes), path_(std::move(path)) {}
  std::size_t read(std::span<std::byte> out) {
    const std::size_t count = (std::min)(out.size(), left_.size());
    if (count != 0) std::memcpy(out.data(), left_.data(), count);
    left_ = left_.subspan(count);
    return count;
  }
  std::uint64_t available() const { return left_.size(); }
  const std::string& path() const { return path_; }

 private:
  std::span<const std::byte> left_;
  std::string path_;
};

struct open_bytes {
  std::span<const std::byte> bytes;
  bytes_source operator()(std::string path) const { return {bytes, std::move(path)}; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes{reinterpret_cast<const std::byte*>(data), size};
  try {
    const ps::detail::idx_file file{open_bytes{bytes}, "fuzzed"};
    std::uint64_t elements = 1;
    for (const std::uint32_t length : file.lengths()) elements *= length;
    const std::size_t header = 4 + 4 * file.lengths().size();
    fuzz::require(!file.lengths().empty(), "a file has a dimension");
    fuzz::require(size - header == elements * ps::detail::kind_of(file.type())->size,
                  "the elements fill the file");
    if (file.type() == ps::detail::idx_type::u8) {
      const auto values = file.values<std::uint8_t>();
      fuzz::require(values.size() == elements, "as many values as elements");
      fuzz::require(elements == 0 || std::memcmp(values.data(), data + header, elements) == 0,
                    "bytes come as they are");
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the file");
  }
  return 0;
}
