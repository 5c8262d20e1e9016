// SPDX-License-Identifier: BSL-1.0
#include "tcp_listener.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace mlp {

namespace {

/// A descriptor that listens, or -1 with errno.
int listen_on(sa_family_t family, std::uint16_t port) {
  const int made = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (made < 0) return -1;
  const int yes = 1;
  const int no = 0;
  ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in);
  address.ss_family = family;
  if (family == AF_INET6) {
    ::setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
    length = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
  if (::bind(made, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      ::listen(made, SOMAXCONN) == 0) {
    return made;
  }
  const int problem = errno;
  ::close(made);
  errno = problem;
  return -1;
}

/// "10.0.0.7:41234", for errors.
std::string name_of(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown peer";
  }
  const std::string name = host;
  return (name.find(':') == std::string::npos ? name : "[" + name + "]") + ":" + port;
}

}  // namespace

tcp_listener::tcp_listener(std::uint16_t port) : descriptor_(listen_on(AF_INET6, port)) {
  // Where IPv6 is switched off.
  if (descriptor_ < 0 && errno != EADDRINUSE) descriptor_ = listen_on(AF_INET, port);
  if (descriptor_ < 0) {
    throw tcp_error("port " + std::to_string(port) +
                    ": can't listen on it: " + std::generic_category().message(errno) +
                    ": give MASTER_PORT one that is free on rank 0's machine");
  }
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ =
      ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

tcp_listener::~tcp_listener() { ::close(descriptor_); }

std::optional<tcp_socket> tcp_listener::accept() {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  const int made = ::accept4(descriptor_, reinterpret_cast<sockaddr*>(&address), &length,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (made >= 0) return tcp_socket{made, name_of(address, length)};
  // Of a peer that has gone again, or of its network: the next one is none of its business.
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) {
    return std::nullopt;
  }
  throw tcp_error("port " + std::to_string(port_) +
                  ": can't take a connection: " + std::generic_category().message(errno));
}

}  // namespace mlp
