// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tcp_error.hpp"

namespace mlp {

/// What can be asked of a store, by the numbers of PyTorch's TCPStore (c10d/TCPStoreBackend.hpp),
/// and what follows in a request: lengths are 8 bytes, all in the byte order of the machine.
///
///     validate   4 bytes, a magic number    the first request; no answer
///     set        a key, a value             no answer
///     get        a key, which must exist    the value
///     add        a key, 8 bytes             8 bytes: the sum
///     wait       how many keys, the keys    a byte, 0, when all exist
///     ping       4 bytes                    the same
enum class store_query : std::uint8_t {
  validate = 0,
  set = 1,
  get = 3,
  add = 4,
  wait = 6,
  ping = 13
};

inline constexpr std::uint32_t store_magic = 0x3C85F7CE;
/// The longest key and value, as PyTorch's store takes them, and fewer keys: it would take 131,072.
inline constexpr std::size_t most_key_bytes = std::size_t{8} << 10U;
inline constexpr std::size_t most_value_bytes = std::size_t{8} << 20U;
inline constexpr std::size_t most_awaited_keys = 1024;

/// One request to a store.
struct store_request {
  store_query query = store_query::ping;
  std::vector<std::string> keys{};  ///< one; of `wait` any number; of `validate` and `ping` none
  std::string value{};              ///< of `set`
  std::int64_t number = 0;          ///< of `add`; of `validate` and `ping` 32 bits

  friend bool operator==(const store_request&, const store_request&) = default;
};

/// A request, and how many bytes it took.
struct parsed_request {
  store_request what;
  std::size_t bytes = 0;
};

/// The bytes of a request.
[[nodiscard]] std::vector<std::byte> bytes_of(const store_request& request);

/// The request at the start of `bytes`; nothing where it is not all there yet. Throws `tcp_error`
/// for a query that is none of these, and for lengths above those that are taken.
[[nodiscard]] std::optional<parsed_request> parse_request(std::span<const std::byte> bytes);

}  // namespace mlp
