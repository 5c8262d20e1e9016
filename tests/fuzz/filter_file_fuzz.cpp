// SPDX-License-Identifier: BSL-1.0
// Opens arbitrary bytes as the file of a filter. The file is rejected with an error that points
// into it, or each kept sample is that of a simple loop. If the first byte of an input is odd, the
// input gets a valid start and checksum. If the second byte is odd too, it also gets valid sizes,
// which random bytes would never contain.
#include <penstock_ext/adaptors/filter.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  static const fuzz::scratch_file file;
  ps::detail::filter_header head;
  std::vector<std::uint8_t> bytes(data + 3, data + size);
  const bool is_mended = data[0] % 2 == 1 && bytes.size() >= sizeof head;
  const bool is_right = is_mended && data[1] % 2 == 1;
  if (bytes.size() >= sizeof head) std::memcpy(&head, bytes.data(), sizeof head);
  const std::size_t room = bytes.size() < sizeof head ? 0 : bytes.size() - sizeof head;
  std::vector<std::uint64_t> words(room / 8);
  if (!words.empty()) std::memcpy(words.data(), &bytes[sizeof head], words.size() * 8);
  if (is_mended) {
    std::memcpy(head.magic, ps::detail::filter_header{}.magic, sizeof head.magic);
    head.size %= room * 8 + 1;
    head.key_bytes %= room + 1;
    if (is_right) {
      const std::size_t missing = words.empty() ? 0 : data[2] % 64;
      head.size = words.size() * 64 - missing;
      head.key_bytes = room % 8;
      head.kept = 0;
      if (missing != 0) words.back() &= ~std::uint64_t{0} >> missing;
      for (const std::uint64_t word : words) {
        head.kept += static_cast<std::uint64_t>(std::popcount(word));
      }
      if (!words.empty()) std::memcpy(&bytes[sizeof head], words.data(), words.size() * 8);
    }
    std::memcpy(bytes.data(), &head, sizeof head);
    head.checksum = ps::detail::checksum_of_index(std::as_bytes(std::span{bytes}));
    std::memcpy(bytes.data(), &head, sizeof head);
  }
  const std::uint64_t begin = sizeof head + ps::detail::words_of_bits(head.size) * 8;
  std::string_view key;
  if (is_mended && begin <= bytes.size() && head.key_bytes <= bytes.size() - begin) {
    key = {reinterpret_cast<const char*>(bytes.data()) + begin,
           static_cast<std::size_t>(head.key_bytes)};
  }
  file.write(std::as_bytes(std::span{bytes}));
  try {
    const ps::detail::sample_bits found{ps::mapped_file{file.path()},
                                        {head.size, head.fingerprint, key}};
    fuzz::require(is_mended, "a checksum is not found by chance");
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < head.size; ++i) {
      if ((words[i / 64] >> i % 64 & 1U) != 0) fuzz::require(found[kept++] == i, "a kept sample");
    }
    fuzz::require(found.size() == kept && head.kept == kept, "as many as the header has");
  } catch (const ps::file_error& error) {
    fuzz::require(!is_right, "a right file is no error");
    fuzz::require(error.offset() <= bytes.size(), "an error points into the file");
  }
  return 0;
}
