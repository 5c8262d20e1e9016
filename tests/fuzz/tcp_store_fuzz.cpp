// SPDX-License-Identifier: BSL-1.0
// What comes out of a socket to the example's ranks, by the first byte: requests to a store, a
// store's answers, frames of ranks, the place of rank 0. Either it can be, or a `tcp_error`.
// The sources are included: they need nothing to be linked then.
#include "../examples/mlp/ranks/tcp/store_request.cpp"
#include "../examples/mlp/ranks/tcp/store_table.cpp"
#include "../examples/mlp/ranks/tcp/tcp_socket.cpp"
#include "../examples/mlp/ranks/tcp/tcp_store.cpp"

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "../examples/mlp/ranks/tcp/frame.hpp"
#include "fuzz/require.hpp"

namespace {

using bytes = std::span<const std::byte>;

/// Two clients by turns, of a store that is soon full.
void requests(bytes input) {
  mlp::store_table table{200};
  for (std::size_t client = 0; !input.empty(); client = 1 - client) {
    const auto found = mlp::parse_request(input);
    if (!found) return;
    fuzz::require(found->bytes != 0 && found->bytes <= input.size(), "a request is of the input");
    const auto again = mlp::bytes_of(found->what);
    fuzz::require(std::ranges::equal(again, input.first(found->bytes)), "it is these bytes");
    fuzz::require(!mlp::parse_request(input.first(found->bytes - 1)), "all of them");
    try {
      for (const auto& answer : table.handle(client, found->what)) {
        fuzz::require(answer.to <= 1 && !answer.bytes.empty(), "an answer is for a client");
      }
    } catch (const mlp::tcp_error&) {
      table.forget(client);
    }
    input = input.subspan(found->bytes);
  }
}

/// A store that says this, and closes the connection.
void answers(bytes input) {
  std::array<int, 2> ends{};
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "a pair");
  mlp::tcp_socket client{ends[0], "the store"};
  mlp::tcp_socket server{ends[1], "the client"};
  static_cast<void>(server.send_some(input, "answers"));
  ::shutdown(server.descriptor(), SHUT_WR);
  mlp::tcp_store store{std::move(client), std::chrono::seconds{20}};
  static_cast<void>(store.add("sum", 1));
  fuzz::require(store.get("key").size() <= input.size(), "a value is of the input");
  store.wait("key");
}

void frames(bytes input) {
  if (input.size() < mlp::frame::bytes) return;
  const auto head = input.first<mlp::frame::bytes>();
  const auto found = mlp::frame::parse(head, "a peer");
  fuzz::require(std::ranges::equal(found.raw(), head), "a frame is its bytes");
  fuzz::require(!found.str().empty(), "it has a text");
}

void place(bytes input) {
  const std::string_view text{reinterpret_cast<const char*>(input.data()), input.size()};
  const auto found = mlp::hub_address::parse(text);
  if (!found) return;
  fuzz::require(found->port != 0, "somebody can listen there");
  fuzz::require(mlp::hub_address::parse(found->str()) == found, "it comes back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span{data, size}).subspan(1);
  constexpr std::array kinds{requests, answers, frames, place};
  try {
    kinds[data[0] % kinds.size()](input);
  } catch (const mlp::tcp_error& error) {
    fuzz::require(!std::string_view{error.what()}.empty(), "an error says something");
  }
  return 0;
}
