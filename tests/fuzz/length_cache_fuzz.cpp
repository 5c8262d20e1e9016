// SPDX-License-Identifier: BSL-1.0
// Reads arbitrary bytes as cached lengths. The lengths must lie within the bytes, or be rejected
// with an error that points into the file. If the first byte of an input is odd, the input gets a
// valid start and a valid checksum. If the second byte is odd too, it also gets a valid count,
// which random bytes would never contain.
#include <penstock_ext/text/length_cache.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::vector<std::uint8_t> bytes(data + 2, data + size);
  ps::detail::lengths_header head{};
  const bool is_mended = data[0] % 2 == 1 && bytes.size() >= sizeof head;
  const bool is_right = is_mended && data[1] % 2 == 1;
  if (is_mended) {
    std::memcpy(&head, bytes.data(), sizeof head);
    std::memcpy(head.magic, "psLENGT1", 8);
    if (is_right) head.count = (bytes.size() - sizeof head) / 4;
    std::memcpy(bytes.data(), &head, sizeof head);
    head.checksum = ps::detail::checksum_of_index(std::as_bytes(std::span{bytes}));
    std::memcpy(bytes.data(), &head, sizeof head);
  }
  const auto all = std::as_bytes(std::span{bytes});
  try {
    const auto found = ps::detail::lengths_header_of(all, "x");
    const std::size_t room = (all.size() - sizeof head) / 4;
    fuzz::require(is_right ? found.count == room : found.count <= room, "as many as have room");
    if (is_mended) fuzz::require(found.fingerprint == head.fingerprint, "what was written");
  } catch (const ps::file_error& error) {
    fuzz::require(!is_right, "a right file is no error");
    fuzz::require(error.offset() <= all.size(), "an error points into the file");
  }
  return 0;
}
