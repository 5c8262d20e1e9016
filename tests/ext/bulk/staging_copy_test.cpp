// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/bulk/detail/staging_copy.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "support/some_bytes.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t line = 64;
constexpr std::size_t block = 16384;  // bytes per round of non-temporal stores
constexpr std::size_t guard = 128;    // bytes before and after the target that must not change

/// Memory that starts at a cache line boundary and is filled with one value.
class aligned_bytes {
 public:
  explicit aligned_bytes(std::size_t count)
      : count_(count),
        data_(static_cast<std::byte*>(::operator new(count, std::align_val_t{line}))) {
    clear();
  }
  aligned_bytes(aligned_bytes&&) = delete;
  ~aligned_bytes() { ::operator delete(data_, std::align_val_t{line}); }
  void clear() { std::memset(data_, 0x5a, count_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool is_clear(std::size_t from, std::size_t to) const {
    return std::all_of(data_ + from, data_ + to, [](std::byte b) { return b == std::byte{0x5a}; });
  }

 private:
  std::size_t count_;
  std::byte* data_;
};

/// Counts the copies of `bytes` bytes that differ from the source or write beyond their target, for
/// offsets from a cache line in steps of `offset_step`. The last byte of the source ends its
/// allocation, so that AddressSanitizer reports reads beyond it.
std::size_t wrong_copies(std::size_t bytes, std::size_t offset_step) {
  const auto pattern = test::some_bytes<std::vector<std::byte>>(bytes, 3);
  aligned_bytes to{guard + line + bytes + guard};
  std::size_t wrong = 0;
  for (std::size_t from_offset = 0; from_offset < line; from_offset += offset_step) {
    const aligned_bytes from{from_offset + bytes + (bytes == 0 ? 1U : 0U)};
    if (bytes != 0) std::memcpy(from.data() + from_offset, pattern.data(), bytes);
    for (std::size_t to_offset = 0; to_offset < line; to_offset += offset_step) {
      to.clear();
      const std::size_t begin = guard + to_offset;
      ps::detail::copy_non_temporal(to.data() + begin, from.data() + from_offset, bytes);
      const bool is_same = bytes == 0 || std::memcmp(to.data() + begin, pattern.data(), bytes) == 0;
      const bool is_guarded =
          to.is_clear(0, begin) && to.is_clear(begin + bytes, guard + line + bytes + guard);
      if (!is_same || !is_guarded) ++wrong;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("a non-temporal copy of any alignment and length equals memcpy", "[bulk]") {
  const std::size_t step = test::sanitized ? 7 : 3;
  for (std::size_t bytes = 0; bytes <= 300; ++bytes) {
    CAPTURE(bytes);
    CHECK(wrong_copies(bytes, step) == 0);
  }
  // Lengths around one, two and three rounds, with and without a head of up to 63 bytes.
  for (const std::size_t rounds : {1U, 2U, 3U}) {
    for (std::size_t bytes = rounds * block - 2; bytes <= rounds * block + line + 1;
         bytes += test::sanitized ? 11 : 5) {
      CAPTURE(bytes);
      CHECK(wrong_copies(bytes, 21) == 0);
    }
  }
  CHECK(wrong_copies(block + 30, 1) == 0);
}

TEST_CASE("a non-temporal copy of a whole piece equals memcpy", "[bulk]") {
  CHECK(wrong_copies(std::size_t{4} << 20, 63) == 0);
  CHECK(wrong_copies((std::size_t{4} << 20) - 4097, 63) == 0);
}

TEST_CASE("non-temporal stores are preferred for rings that fill the L2 cache", "[bulk]") {
#if defined(__x86_64__) && defined(_SC_LEVEL2_CACHE_SIZE)
  const auto cache = static_cast<std::size_t>(std::max(0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE)));
  CHECK(ps::detail::prefers_non_temporal(cache));
  CHECK(ps::detail::prefers_non_temporal(std::size_t{1} << 40));
  if (cache != 0) CHECK_FALSE(ps::detail::prefers_non_temporal(cache - 1));
#else
  CHECK_FALSE(ps::detail::prefers_non_temporal(std::size_t{1} << 40));
#endif
}
