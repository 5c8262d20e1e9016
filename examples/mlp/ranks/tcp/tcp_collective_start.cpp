// SPDX-License-Identifier: BSL-1.0
// How ranks find each other.
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "rank_words.hpp"
#include "retry_pause.hpp"
#include "store_server.hpp"
#include "tcp_collective.hpp"
#include "tcp_listener.hpp"
#include "tcp_store.hpp"

namespace mlp {

namespace {

constexpr const char* hub_key = "hub";
/// For a stranger's silence, where ranks are waiting to be taken.
constexpr std::chrono::seconds most_for_a_greeting{5};
constexpr std::chrono::seconds most_for_a_welcome{20};

/// Of a rank that has nothing to say yet: one that has not had its welcome in time has come again.
bool has_ended(tcp_socket& socket) {
  try {
    std::array<std::byte, 1> none{};
    static_cast<void>(socket.receive_some(none, "a second greeting"));
    return false;
  } catch (const tcp_error&) {
    return true;
  }
}

std::uint64_t any_token() {
  std::random_device source;
  return (std::uint64_t{source()} << 32U) | source();
}

}  // namespace

void tcp_collective::welcome_all(const meeting_place& where, tcp_clock::time_point end) {
  std::unique_ptr<store_server> hosted;
  if (!where.is_hosted_by_agent) hosted = std::make_unique<store_server>(where.store.port);
  // This process's own store is here, whatever name its machine has.
  tcp_store store{hosted ? endpoint{"127.0.0.1", where.store.port} : where.store, patience_,
                  where.prefix};
  tcp_listener listener{0};
  const hub_address hub{listener.port(), any_token()};
  store.set(hub_key, hub.str());
  for (int missing = size_ - 1; missing > 0;) {
    if (!wait_for_events(listener.descriptor(), POLLIN, end)) {
      std::vector<std::size_t> absent;
      for (std::size_t rank = 1; rank < others_.size(); ++rank) {
        if (!others_[rank].is_open()) absent.push_back(rank);
      }
      throw tcp_error(where.store.str() + ": " + names_of(absent) + " of " + std::to_string(size_) +
                      " have not come within " + seconds_of(patience_) +
                      ": see whether all were started, and whether they reach this machine");
    }
    auto socket = listener.accept();
    if (socket &&
        greet_one(*socket, hub.token, (std::min)(end, tcp_clock::now() + most_for_a_greeting))) {
      --missing;
    }
  }
  // From here on nobody needs the store: all have come by it.
}

bool tcp_collective::greet_one(tcp_socket& socket, std::uint64_t token, tcp_clock::time_point end) {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  try {
    const frame hello = receive_frame(socket, end, "a greeting");
    if (hello != frame{frame_kind::hello, token, 8}) return false;
    std::array<std::byte, 8> who{};
    socket.receive(who, end, "a greeting");
    rank = raw_value<std::uint32_t>(who);
    size = raw_value<std::uint32_t>(std::span{who}.subspan(4));
  } catch (const tcp_error&) {
    return false;  // a stranger, a rank of an earlier start, or one that has ended: not counted
  }
  const auto problem = [&](const std::string& what) {
    const std::string peer = socket.peer();
    is_between_.push_back(true);
    others_.push_back(std::move(socket));  // so that it is told, too
    throw tcp_error(peer + ": " + what +
                    ": start all ranks by one launcher, and leave its variables as they are");
  };
  if (size != static_cast<std::uint32_t>(size_)) {
    problem("a rank of a world of " + std::to_string(size) + ", and this one has " +
            std::to_string(size_));
  }
  if (rank == 0 || rank >= others_.size()) problem("a rank " + std::to_string(rank));
  const bool is_new = !others_[rank].is_open();
  if (!is_new && !has_ended(others_[rank])) {
    problem("a second process is rank " + std::to_string(rank) + " as " + others_[rank].peer());
  }
  try {
    socket.send(frame{frame_kind::welcome, token, 0}.raw(), end, "a welcome");
  } catch (const tcp_error&) {
    return false;  // it has ended meanwhile
  }
  others_[rank] = std::move(socket);
  is_between_[rank] = true;
  return is_new;
}

void tcp_collective::join(const meeting_place& where, tcp_clock::time_point end) {
  tcp_store store{where.store, patience_, where.prefix};
  retry_pause pause{end};
  while (true) {
    // Asked for again: what is there may be of a start before, and rank 0 not yet here.
    const std::string text = store.get(hub_key);
    const auto hub = hub_address::parse(text);
    if (!hub) {
      throw tcp_error(where.store.str() + ": '" + hub_key + "': expected a port and a token, " +
                      "found '" + text.substr(0, 80) + "'");
    }
    std::string problem;
    try {
      const auto soon = (std::min)(end, tcp_clock::now() + most_for_a_welcome);
      others_.front() = tcp_socket::connect({where.store.host, hub->port}, soon);
      std::vector<std::byte> greeting;
      append_raw(greeting, frame{frame_kind::hello, hub->token, 8}.raw());
      append_raw(greeting, static_cast<std::uint32_t>(rank_));
      append_raw(greeting, static_cast<std::uint32_t>(size_));
      others_.front().send(greeting, soon, "a greeting");
      const frame answer = receive_frame(others_.front(), soon, "a welcome");
      if (answer == frame{frame_kind::welcome, hub->token, 0}) {
        is_between_.front() = true;
        return;
      }
      problem = "it has not welcomed this rank";
    } catch (const rank_failure&) {
      throw;
    } catch (const tcp_error& error) {
      problem = error.what();
    }
    if (!pause.wait()) throw tcp_error("rank 0 can't be reached: " + problem);
  }
}

}  // namespace mlp
