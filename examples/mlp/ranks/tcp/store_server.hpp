// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <thread>
#include <vector>

#include "store_table.hpp"
#include "tcp_listener.hpp"

namespace mlp {

/// A store for `tcp_store` and for PyTorch's own clients, where no agent of torchrun's has one:
/// with what the ranks of a training ask for (`store_query`). A thread of its own serves all.
///
/// It listens on all networks of the machine and asks nobody who they are, as PyTorch's does. What
/// it takes is bounded: so many clients and bytes, and no answer is made for one that has not read
/// the last. A client that asks for what can't be is disconnected, and no other one notices.
class store_server {
 public:
  /// On a port, or on one that the system chooses (0). Throws `tcp_error`.
  explicit store_server(std::uint16_t port, std::size_t most_clients = 65'536);
  store_server(const store_server&) = delete;
  store_server& operator=(const store_server&) = delete;
  /// Disconnects all.
  ~store_server();

  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }

 private:
  struct client {
    store_table::client number;
    tcp_socket socket;
    std::vector<std::byte> in;   // the start of a request
    std::vector<std::byte> out;  // its answers,
    std::size_t sent = 0;        // of which it has read so much
  };

  void run();
  void take_connections();
  /// False where the client is to be disconnected.
  [[nodiscard]] bool serve(client& of, int events);
  void answer_requests(client& of);
  void deliver(const std::vector<store_table::answer>& answers);

  tcp_listener listener_;
  std::size_t most_clients_;
  std::array<int, 2> ending_{-1, -1};  // a pipe whose end wakes the thread
  store_table table_;
  std::list<client> clients_;
  store_table::client next_ = 0;
  bool is_short_ = false;  // no client could be taken: not tried for a moment
  std::thread thread_;
};

}  // namespace mlp
