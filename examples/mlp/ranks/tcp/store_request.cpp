// SPDX-License-Identifier: BSL-1.0
#include "store_request.hpp"

#include <cstring>
#include <utility>

#include "raw_bytes.hpp"

namespace mlp {

namespace {

/// Takes a request apart from the front; `nullopt` where bytes are still to come.
class reader {
 public:
  explicit reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::size_t taken() const { return taken_; }
  template <class T>
  [[nodiscard]] std::optional<T> number() {
    if (bytes_.size() - taken_ < sizeof(T)) return std::nullopt;
    const T value = raw_value<T>(bytes_.subspan(taken_));
    taken_ += sizeof(T);
    return value;
  }
  [[nodiscard]] std::optional<std::string> text(std::size_t most, const char* what) {
    const auto length = number<std::uint64_t>();
    if (!length) return std::nullopt;
    require_at_most(*length, most, what);
    if (bytes_.size() - taken_ < *length) return std::nullopt;
    const auto* const from = reinterpret_cast<const char*>(bytes_.data() + taken_);
    taken_ += *length;
    return std::string{from, *length};
  }
  static void require_at_most(std::uint64_t found, std::size_t most, const char* what) {
    if (found <= most) return;
    throw tcp_error("a store's request has " + std::to_string(found) + " " + what +
                    ", and at most " + std::to_string(most) + " are taken");
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t taken_ = 0;
};

bool read_keys(reader& from, std::uint64_t count, store_request& to) {
  for (; count != 0; --count) {
    auto key = from.text(most_key_bytes, "bytes in a key");
    if (!key) return false;
    to.keys.push_back(std::move(*key));
  }
  return true;
}

bool read_rest(reader& from, store_request& to) {
  switch (to.query) {
    case store_query::validate:
    case store_query::ping:
      if (const auto number = from.number<std::uint32_t>()) {
        to.number = *number;
        return true;
      }
      return false;
    case store_query::get:
      return read_keys(from, 1, to);
    case store_query::set:
      if (!read_keys(from, 1, to)) return false;
      if (auto value = from.text(most_value_bytes, "bytes in a value")) {
        to.value = std::move(*value);
        return true;
      }
      return false;
    case store_query::add:
      if (!read_keys(from, 1, to)) return false;
      if (const auto number = from.number<std::int64_t>()) {
        to.number = *number;
        return true;
      }
      return false;
    case store_query::wait:
      if (const auto count = from.number<std::uint64_t>()) {
        reader::require_at_most(*count, most_awaited_keys, "keys");
        return read_keys(from, *count, to);
      }
      return false;
  }
  throw tcp_error("a store was asked for " + std::to_string(static_cast<int>(to.query)) +
                  ", which is none of 0 validate, 1 set, 3 get, 4 add, 6 wait, 13 ping");
}

void append_text(std::vector<std::byte>& to, const std::string& text) {
  append_raw(to, std::uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span{text});
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::vector<std::byte> bytes_of(const store_request& request) {
  std::vector<std::byte> bytes{static_cast<std::byte>(request.query)};
  if (request.query == store_query::wait) append_raw(bytes, std::uint64_t{request.keys.size()});
  for (const std::string& key : request.keys) append_text(bytes, key);
  switch (request.query) {
    case store_query::validate:
    case store_query::ping:
      append_raw(bytes, static_cast<std::uint32_t>(request.number));
      break;
    case store_query::add:
      append_raw(bytes, request.number);
      break;
    case store_query::set:
      append_text(bytes, request.value);
      break;
    case store_query::get:
    case store_query::wait:
      break;
  }
  return bytes;
}

std::optional<parsed_request> parse_request(std::span<const std::byte> bytes) {
  reader from{bytes};
  const auto query = from.number<std::uint8_t>();
  if (!query) return std::nullopt;
  parsed_request found{{.query = static_cast<store_query>(*query)}};
  if (!read_rest(from, found.what)) return std::nullopt;
  found.bytes = from.taken();
  return found;
}

}  // namespace mlp
