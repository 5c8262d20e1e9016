// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "store_request.hpp"
#include "tcp_socket.hpp"

namespace mlp {

/// A client of PyTorch's TCPStore, with which torchrun's processes find each other: keys and values
/// that one process keeps for all. PyTorch's own clients see the same keys.
///
///     tcp_store store{{"node7", 29500}, std::chrono::minutes{10}};
///     if (rank == 0) store.set("id", bytes);
///     const std::string id = store.get("id");
///
/// No call takes longer than `patience`; a `tcp_error` names host and port, the call and the key.
/// After one the connection is closed, for nobody knows which answer would come next, and all
/// further calls are errors. For one thread.
class tcp_store {
 public:
  using duration = tcp_clock::duration;

  /// Connects, tries again while nobody listens, and makes sure that it is a store. All keys begin
  /// with `prefix`.
  tcp_store(const endpoint& where, duration patience, std::string prefix = "");
  /// By a connection that is there. Throws where its other side is no store.
  tcp_store(tcp_socket connected, duration patience, std::string prefix = "");

  /// From here on.
  void set_patience(duration patience) { patience_ = patience; }

  /// Gives a key a value, which it may have had another of. No answer comes: another client may
  /// still see what was before, and an error of the connection may be that of the next call.
  void set(std::string_view key, std::string_view value);
  /// The value of a key, as soon as it has one.
  [[nodiscard]] std::string get(std::string_view key);
  /// Adds to a key that holds a number, or 0 where it is new: the sum.
  std::int64_t add(std::string_view key, std::int64_t amount);
  /// Returns when the key has a value.
  void wait(std::string_view key);

 private:
  template <class Call>
  auto guarded(const Call& call);
  [[nodiscard]] std::string place_of(std::string_view key) const;
  void send(const store_request& request, std::string_view what);
  template <class T>
  [[nodiscard]] T receive(std::string_view what);
  void await(const std::string& key, std::string_view what);
  void greet();
  void require_store() const;

  tcp_socket socket_;
  duration patience_;
  std::string prefix_;
  tcp_clock::time_point end_;  // of the call that is being made
  std::uint32_t sent_nonce_ = 0x70656E73;
  std::uint32_t found_nonce_ = 0;
};

}  // namespace mlp
