// SPDX-License-Identifier: BSL-1.0
#include "tcp_collective.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "store_server.hpp"
#include "tcp_listener.hpp"
#include "tcp_store.hpp"

namespace mlp {

namespace {

constexpr const char* hub_key = "hub";
/// For a stranger's silence, where ranks are waiting to be taken.
constexpr std::chrono::seconds most_for_a_greeting{5};
constexpr std::chrono::seconds most_for_a_welcome{20};
constexpr std::chrono::seconds most_for_a_farewell{2};

/// Another rank has said why it ends.
class rank_failure : public tcp_error {
 public:
  using tcp_error::tcp_error;
};

/// "rank 1", "ranks 1, 2 and 3 more".
std::string names_of(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < (std::min)(ranks.size(), most); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
  return text;
}

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

std::string seconds_of(tcp_clock::duration time) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

tcp_collective::tcp_collective(const penstock::world& w, const meeting_place& where,
                               duration patience)
    : rank_(w.rank), size_(w.size), patience_(patience) {
  if (size_ == 1) return;
  others_.resize(rank_ == 0 ? static_cast<std::size_t>(size_) : 1);
  is_between_.resize(others_.size(), false);
  const auto end = tcp_clock::now() + patience_;
  try {
    if (rank_ == 0) {
      welcome_all(where, end);
    } else {
      join(where, end);
    }
  } catch (const std::exception& error) {
    abort(error.what());
    throw;
  }
}

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
  while (true) {
    // Asked for again: what is there may be of a start before, and rank 0 not yet here.
    const std::string text = store.get(hub_key);
    const auto hub = hub_address::parse(text);
    if (!hub) {
      throw tcp_error(where.store.str() + ": '" + hub_key + "': expected a port and a token, " +
                      "found '" + text.substr(0, 80) + "'");
    }
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
    } catch (const rank_failure&) {
      throw;
    } catch (const tcp_error& error) {
      if (tcp_clock::now() >= end) {
        throw tcp_error("rank 0 can't be reached: " + std::string{error.what()});
      }
    }
    if (tcp_clock::now() >= end)
      throw tcp_error(where.store.str() + ": rank 0 has not welcomed this rank");
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
}

void tcp_collective::all_reduce(std::span<float> values) {
  if (size_ == 1) return;
  if (rank_ == 0) parts_.resize(values.size() * static_cast<std::size_t>(size_));
  std::span<float> parts{parts_};
  exchange(frame_kind::sum, std::as_bytes(values), std::as_writable_bytes(values),
           std::as_writable_bytes(parts));
}

void tcp_collective::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * static_cast<std::size_t>(size_)) {
    throw std::logic_error("all_gather: " + std::to_string(all.size()) + " bytes for " +
                           std::to_string(size_) + " ranks with " + std::to_string(mine.size()));
  }
  if (size_ == 1) {
    std::ranges::copy(mine, all.begin());
    return;
  }
  exchange(frame_kind::gather, mine, all, all);
}

void tcp_collective::exchange(frame_kind kind, std::span<const std::byte> mine,
                              std::span<std::byte> result, std::span<std::byte> gathered) {
  const frame call{kind, calls_++, mine.size()};
  const frame answer{kind, call.number, result.size()};
  const auto end = tcp_clock::now() + patience_;
  if (rank_ != 0) {
    tcp_socket& hub = others_.front();
    is_between_.front() = false;
    try {
      hub.send(call.raw(), end, "to rank 0, " + call.str());
      hub.send(mine, end, "to rank 0, " + call.str());
    } catch (const tcp_error&) {
      rethrow_failure_of(hub);
      throw;
    }
    is_between_.front() = true;
    const frame found = receive_frame(hub, end, "from rank 0, " + call.str());
    if (found != answer) {
      throw tcp_error(hub.peer() + ": rank 0 is at " + found.str() + ", and rank " +
                      std::to_string(rank_) + " at " + answer.str());
    }
    hub.receive(result, end, "from rank 0, " + call.str());
    return;
  }
  if (!mine.empty() && gathered.data() != mine.data()) std::ranges::copy(mine, gathered.begin());
  collect(call, gathered, end);
  if (kind == frame_kind::sum) {
    const auto floats = result.size() / sizeof(float);
    std::span<float> sums{parts_.data(), floats};
    for (std::size_t rank = 1; rank < others_.size(); ++rank) {
      const float* const part = parts_.data() + rank * floats;
      for (std::size_t i = 0; i < floats; ++i) sums[i] += part[i];
    }
    std::ranges::copy(std::as_bytes(sums), result.begin());
  }
  for (std::size_t rank = 1; rank < others_.size(); ++rank) {
    const std::string what = "to rank " + std::to_string(rank) + ", " + call.str();
    is_between_[rank] = false;
    others_[rank].send(answer.raw(), end, what);
    others_[rank].send(result, end, what);
    is_between_[rank] = true;
  }
}

void tcp_collective::collect(const frame& call, std::span<std::byte> gathered,
                             tcp_clock::time_point end) {
  std::vector<arrival> arrivals(others_.size());
  std::vector<std::size_t> missing;
  for (std::size_t rank = 1; rank < others_.size(); ++rank) missing.push_back(rank);
  std::vector<bool> is_here(others_.size());
  std::vector<pollfd> asked;
  while (!missing.empty()) {
    asked.clear();
    for (const std::size_t rank : missing) asked.push_back({others_[rank].descriptor(), POLLIN, 0});
    const int found = ::poll(asked.data(), asked.size(), milliseconds_until(end));
    if (found < 0 && errno != EINTR) {
      throw tcp_error("poll: " + std::generic_category().message(errno));
    }
    if (found <= 0 && tcp_clock::now() >= end) {
      throw tcp_error(names_of(missing) + " of " + std::to_string(size_) + ": not come to " +
                      call.str() + ", within " + seconds_of(patience_) +
                      ": see which processes have ended or hang");
    }
    if (found <= 0) continue;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const std::size_t rank = missing[i];
      if (asked[i].revents == 0) continue;
      const auto place = gathered.subspan(rank * call.length, call.length);
      is_here[rank] = take_part(rank, arrivals[rank], call, place);
    }
    std::erase_if(missing, [&](std::size_t rank) { return is_here[rank]; });
  }
}

bool tcp_collective::take_part(std::size_t rank, arrival& of, const frame& call,
                               std::span<std::byte> place) {
  tcp_socket& from = others_[rank];
  const std::string what = "rank " + std::to_string(rank) + ", " + call.str();
  while (of.got < frame::bytes) {
    const std::size_t got = from.receive_some(std::span{of.head}.subspan(of.got), what);
    if (got == 0) return false;
    of.got += got;
    if (of.got != frame::bytes) continue;
    of.said = frame::parse(of.head, from.peer());
    if (of.said.kind == frame_kind::failed) {
      of.text.resize(static_cast<std::size_t>(of.said.length));
    } else if (of.said != call) {
      throw tcp_error(from.peer() + ": rank " + std::to_string(rank) + " is at " + of.said.str() +
                      ", and rank 0 at " + call.str());
    }
  }
  const bool has_failed = of.said.kind == frame_kind::failed;
  if (has_failed) place = std::as_writable_bytes(std::span{of.text});
  while (of.got - frame::bytes < place.size()) {
    const std::size_t got = from.receive_some(place.subspan(of.got - frame::bytes), what);
    if (got == 0) return false;
    of.got += got;
  }
  if (has_failed) throw rank_failure("rank " + std::to_string(rank) + " has ended: " + of.text);
  return true;
}

frame tcp_collective::receive_frame(tcp_socket& from, tcp_clock::time_point end,
                                    std::string_view what) {
  std::array<std::byte, frame::bytes> head{};
  from.receive(head, end, what);
  const frame found = frame::parse(head, from.peer());
  if (found.kind != frame_kind::failed) return found;
  std::string text(static_cast<std::size_t>(found.length), '\0');
  from.receive(std::as_writable_bytes(std::span{text}), end, what);
  throw rank_failure("rank 0 has ended: " + text);
}

void tcp_collective::rethrow_failure_of(tcp_socket& hub) {
  try {
    static_cast<void>(receive_frame(hub, tcp_clock::now(), "why rank 0 has ended"));
  } catch (const rank_failure&) {
    throw;
  } catch (const tcp_error&) {
    // It has not said.
  }
}

void tcp_collective::abort(std::string_view why) noexcept {
  try {
    const auto text = std::as_bytes(std::span{why.substr(0, frame::most_text)});
    const auto end = tcp_clock::now() + most_for_a_farewell;
    for (std::size_t i = 0; i < others_.size(); ++i) {
      if (!others_[i].is_open() || !is_between_[i]) continue;
      try {
        others_[i].send(frame{frame_kind::failed, calls_, text.size()}.raw(), end, "a farewell");
        others_[i].send(text, end, "a farewell");
      } catch (const tcp_error&) {
        // It has ended before, and the next one may still be there.
      }
      others_[i].close();
    }
  } catch (const std::exception&) {
    // The end of the connections says it, too.
  }
}

}  // namespace mlp
