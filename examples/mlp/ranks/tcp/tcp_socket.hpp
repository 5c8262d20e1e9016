// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tcp_error.hpp"

namespace mlp {

using tcp_clock = std::chrono::steady_clock;

/// Where a process listens.
struct endpoint {
  std::string host;
  std::uint16_t port = 0;
  /// "node7:29500", "[::1]:29500".
  [[nodiscard]] std::string str() const;
};

/// Waits until one of `events` of poll's has come to a descriptor; false where `end` came first.
[[nodiscard]] bool wait_for_events(int descriptor, int events, tcp_clock::time_point end);

/// The milliseconds until `end` as poll takes them, rounded up; 0 where it is over.
[[nodiscard]] int milliseconds_until(tcp_clock::time_point end);

/// A connection, of which no call waits longer than it is told to: each ends at a point in time
/// with a `tcp_error`. A signal is no error, and a peer that has gone is no signal. For one thread.
class tcp_socket {
 public:
  /// None.
  tcp_socket() = default;
  /// Takes a connected descriptor, which must not block; `peer` names its other side in errors.
  tcp_socket(int descriptor, std::string peer);
  tcp_socket(tcp_socket&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), peer_(std::move(other.peer_)) {}
  tcp_socket& operator=(tcp_socket&& other) noexcept;
  ~tcp_socket() { close(); }

  /// Tries each address of the host once. Looking the host up takes as long as the system's
  /// resolver is set to.
  [[nodiscard]] static tcp_socket connect(const endpoint& to, tcp_clock::time_point end);
  /// Tries again while nobody listens there yet.
  [[nodiscard]] static tcp_socket connect_patiently(const endpoint& to, tcp_clock::time_point end);

  /// Sends all; `what` says in errors what for.
  void send(std::span<const std::byte> bytes, tcp_clock::time_point end, std::string_view what);
  /// Receives exactly so many bytes.
  void receive(std::span<std::byte> bytes, tcp_clock::time_point end, std::string_view what);
  /// Sends what fits now, without waiting: how many bytes.
  [[nodiscard]] std::size_t send_some(std::span<const std::byte> bytes, std::string_view what);
  /// Receives what is there, without waiting: how many bytes, 0 for none yet.
  [[nodiscard]] std::size_t receive_some(std::span<std::byte> bytes, std::string_view what);
  void close() noexcept;

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  [[noreturn]] void fail(std::string_view what, const std::string& problem) const;

  int descriptor_ = -1;
  std::string peer_ = "nobody";
};

}  // namespace mlp
