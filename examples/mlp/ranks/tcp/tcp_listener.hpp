// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>

#include "tcp_socket.hpp"

namespace mlp {

/// Waits for connections on a port, of all networks of this machine. For one thread.
class tcp_listener {
 public:
  /// On a port, or on one that the system chooses (0). Throws `tcp_error`.
  explicit tcp_listener(std::uint16_t port);
  tcp_listener(const tcp_listener&) = delete;
  tcp_listener& operator=(const tcp_listener&) = delete;
  ~tcp_listener();

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// The next connection, without waiting; nothing where none is there. Throws `tcp_error` where
  /// the system has no room for it.
  [[nodiscard]] std::optional<tcp_socket> accept();

 private:
  int descriptor_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace mlp
