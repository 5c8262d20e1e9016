// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "raw_bytes.hpp"
#include "tcp_error.hpp"
#include "tcp_socket.hpp"

namespace mlp {

/// What ranks say to rank 0, and it to them.
enum class frame_kind : std::uint32_t {
  hello = 1,  ///< number: the token of the world; 8 bytes: rank and size
  welcome,    ///< number: the token
  gather,     ///< number: of the call; a rank's bytes, and back those of all
  sum,        ///< the same; a rank's floats, and back their sums
  failed,     ///< a text: why this rank ends
};

/// Before each message between ranks: what it is, and how many bytes follow. In the byte order of
/// the machine, which is the same on all.
struct frame {
  static constexpr std::uint32_t magic = 0x70736E6B;
  static constexpr std::size_t bytes = 24;
  static constexpr std::uint64_t most_text = 4096;

  frame_kind kind = frame_kind::failed;
  std::uint64_t number = 0;
  std::uint64_t length = 0;

  friend bool operator==(const frame&, const frame&) = default;

  /// For a message: "call 17, a sum of 400 bytes".
  [[nodiscard]] std::string str() const {
    const char* const name = kind == frame_kind::sum      ? "a sum"
                             : kind == frame_kind::gather ? "a gather"
                             : kind == frame_kind::failed ? "a failure"
                                                          : "a greeting";
    return "call " + std::to_string(number) + ", " + name + " of " + std::to_string(length) +
           " bytes";
  }
  [[nodiscard]] std::array<std::byte, bytes> raw() const {
    std::array<std::byte, bytes> to{};
    const auto what = static_cast<std::uint32_t>(kind);
    std::memcpy(to.data(), &magic, 4);
    std::memcpy(to.data() + 4, &what, 4);
    std::memcpy(to.data() + 8, &number, 8);
    std::memcpy(to.data() + 16, &length, 8);
    return to;
  }
  /// Throws `tcp_error` for what is no frame, or a text that is too long; `peer` has sent it.
  [[nodiscard]] static frame parse(std::span<const std::byte, bytes> from,
                                   const std::string& peer) {
    const auto found_magic = raw_value<std::uint32_t>(from);
    const auto kind = raw_value<std::uint32_t>(from.subspan(4));
    const frame found{static_cast<frame_kind>(kind), raw_value<std::uint64_t>(from.subspan(8)),
                      raw_value<std::uint64_t>(from.subspan(16))};
    if (found_magic != magic || kind < static_cast<std::uint32_t>(frame_kind::hello) ||
        kind > static_cast<std::uint32_t>(frame_kind::failed)) {
      throw tcp_error(peer + ": expected a rank of this program, found the words " +
                      std::to_string(found_magic) + " and " + std::to_string(kind));
    }
    if (found.kind == frame_kind::failed && found.length > most_text) {
      throw tcp_error(peer + ": a text of " + std::to_string(found.length) +
                      " bytes, and at most " + std::to_string(most_text) + " are taken");
    }
    return found;
  }
};

/// Where rank 0 waits for the others, as it tells them: "40123 1234567890".
struct hub_address {
  std::uint16_t port = 0;
  std::uint64_t token = 0;  ///< by which ranks of one start know each other

  friend bool operator==(const hub_address&, const hub_address&) = default;

  [[nodiscard]] std::string str() const {
    return std::to_string(port) + " " + std::to_string(token);
  }
  /// Nothing where the text is none.
  [[nodiscard]] static std::optional<hub_address> parse(std::string_view text) {
    hub_address found;
    const char* const end = text.data() + text.size();
    const auto port = std::from_chars(text.data(), end, found.port);
    if (port.ec != std::errc{} || port.ptr == end || *port.ptr != ' ') return std::nullopt;
    const auto token = std::from_chars(port.ptr + 1, end, found.token);
    if (token.ec != std::errc{} || token.ptr != end || found.port == 0) return std::nullopt;
    return found;
  }
};

}  // namespace mlp
