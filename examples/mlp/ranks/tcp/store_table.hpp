// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store_request.hpp"

namespace mlp {

/// What a store keeps, and what it answers: without a socket. Clients are numbers. For one thread.
class store_table {
 public:
  using client = std::size_t;
  /// Bytes for a client, as they go over the wire.
  struct answer {
    client to = 0;
    std::vector<std::byte> bytes;
  };

  /// Keys and values together have at most so many bytes.
  explicit store_table(std::size_t most_bytes = std::size_t{64} << 20U) : most_bytes_(most_bytes) {}

  /// What a request gives: nothing, an answer, or those of clients that have waited for a key.
  /// Throws `tcp_error` for a request before `validate`, a key that is asked for and does not
  /// exist, a sum with what is no number, a second wait at a time, and more bytes than fit; the
  /// table is as before then.
  [[nodiscard]] std::vector<answer> handle(client from, const store_request& request);
  /// A client is gone.
  void forget(client gone);

 private:
  void put(const std::string& key, std::string value);
  [[nodiscard]] bool has_all(const std::vector<std::string>& keys) const;
  [[nodiscard]] std::vector<answer> end_waits();
  [[nodiscard]] std::string sum_of(const std::string& key, std::int64_t amount) const;

  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::map<std::string, std::string> values_;
  std::set<client> greeted_;
  std::vector<std::pair<client, std::vector<std::string>>> waits_;
};

}  // namespace mlp
