// SPDX-License-Identifier: BSL-1.0
#include "tcp_socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <system_error>

#include "retry_pause.hpp"

namespace mlp {

namespace {

std::string words_of(int number) { return std::generic_category().message(number); }

/// Whether a connection's two ends are one: what asks for a port that nobody listens on, among
/// those that the system itself hands out, may get that very port for its own side.
bool is_own_end(int descriptor) {
  sockaddr_storage mine{};
  sockaddr_storage theirs{};
  socklen_t my_length = sizeof mine;
  socklen_t their_length = sizeof theirs;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&mine), &my_length) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&theirs), &their_length) == 0 &&
         my_length == their_length && std::memcmp(&mine, &theirs, my_length) == 0;
}

/// Connects a descriptor; what was in the way, or 0.
int connect_one(int descriptor, const addrinfo& address, tcp_clock::time_point end) {
  if (::connect(descriptor, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_for_events(descriptor, POLLOUT, end)) return ETIMEDOUT;
    int problem = 0;
    socklen_t length = sizeof problem;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &problem, &length) != 0) return errno;
    if (problem != 0) return problem;
  }
  return is_own_end(descriptor) ? ECONNREFUSED : 0;
}

}  // namespace

std::string endpoint::str() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

int milliseconds_until(tcp_clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - tcp_clock::now()).count();
  constexpr decltype(left) most = std::numeric_limits<int>::max();
  return static_cast<int>((std::clamp)(left, decltype(left){0}, most));
}

bool wait_for_events(int descriptor, int events, tcp_clock::time_point end) {
  pollfd asked{descriptor, static_cast<decltype(pollfd::events)>(events), 0};
  while (true) {
    const int found = ::poll(&asked, 1, milliseconds_until(end));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) throw tcp_error("poll: " + words_of(errno));
    if (tcp_clock::now() >= end) return false;
  }
}

tcp_socket::tcp_socket(int descriptor, std::string peer)
    : descriptor_(descriptor), peer_(std::move(peer)) {
  const int yes = 1;  // a request is a few bytes, whose answer is waited for
  ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

tcp_socket& tcp_socket::operator=(tcp_socket&& other) noexcept {
  if (this == &other) return *this;
  close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  peer_ = std::move(other.peer_);
  return *this;
}

void tcp_socket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

tcp_socket tcp_socket::connect(const endpoint& to, tcp_clock::time_point end) {
  addrinfo asked{};
  asked.ai_family = AF_UNSPEC;
  asked.ai_socktype = SOCK_STREAM;
  asked.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &asked, &found);
  if (status != 0) throw tcp_error(to.str() + ": the host is not known: " + ::gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all{found, &::freeaddrinfo};
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    tcp_socket made{
        ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP),
        to.str()};
    problem = made.is_open() ? connect_one(made.descriptor_, *address, end) : errno;
    if (problem == 0) return made;
  }
  throw tcp_error(to.str() + ": can't connect: " + words_of(problem));
}

tcp_socket tcp_socket::connect_patiently(const endpoint& to, tcp_clock::time_point end) {
  retry_pause pause{end};
  while (true) {
    try {
      return connect(to, end);
    } catch (const tcp_error& error) {
      if (!pause.wait()) {
        throw tcp_error(std::string{error.what()} +
                        ", until the patience ended: is the process there that listens, and are "
                        "host and port those of rank 0's?");
      }
    }
  }
}

void tcp_socket::send(std::span<const std::byte> bytes, tcp_clock::time_point end,
                      std::string_view what) {
  const std::size_t all = bytes.size();
  while (!bytes.empty()) {
    const std::size_t sent = send_some(bytes, what);
    bytes = bytes.subspan(sent);
    if (sent == 0 && !wait_for_events(descriptor_, POLLOUT, end)) {
      fail(what, "the peer has not taken the last " + std::to_string(bytes.size()) + " of " +
                     std::to_string(all) + " bytes in time");
    }
  }
}

void tcp_socket::receive(std::span<std::byte> bytes, tcp_clock::time_point end,
                         std::string_view what) {
  const std::size_t all = bytes.size();
  while (!bytes.empty()) {
    const std::size_t got = receive_some(bytes, what);
    bytes = bytes.subspan(got);
    if (got == 0 && !wait_for_events(descriptor_, POLLIN, end)) {
      fail(what, "no answer in time, " + std::to_string(all - bytes.size()) + " of " +
                     std::to_string(all) + " bytes");
    }
  }
}

std::size_t tcp_socket::send_some(std::span<const std::byte> bytes, std::string_view what) {
  const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) fail(what, words_of(errno));
  return 0;
}

std::size_t tcp_socket::receive_some(std::span<std::byte> bytes, std::string_view what) {
  const ssize_t got = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0 && !bytes.empty()) fail(what, "the peer has closed the connection");
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    fail(what, words_of(errno));
  }
  return 0;
}

void tcp_socket::fail(std::string_view what, const std::string& problem) const {
  throw tcp_error(peer_ + ": " + std::string{what} + ": " + problem);
}

}  // namespace mlp
