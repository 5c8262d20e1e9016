// SPDX-License-Identifier: BSL-1.0
#include "store_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <span>
#include <system_error>

namespace mlp {

store_server::store_server(std::uint16_t port, std::size_t most_clients)
    : listener_(port), most_clients_(most_clients) {
  if (::pipe2(ending_.data(), O_CLOEXEC) != 0) {
    throw tcp_error("pipe: " + std::generic_category().message(errno));
  }
  try {
    thread_ = std::thread{[this] {
      try {
        run();
      } catch (const std::bad_alloc&) {
        clients_.clear();  // disconnected, they know; a thread's exception would end the process
      }
    }};
  } catch (...) {
    for (const int end : ending_) ::close(end);
    throw;
  }
}

store_server::~store_server() {
  ::close(ending_[1]);
  thread_.join();
  ::close(ending_[0]);
}

void store_server::run() {
  std::vector<pollfd> asked;
  while (true) {
    const bool takes = !is_short_ && clients_.size() < most_clients_;
    asked.assign({{ending_[0], POLLIN, 0}, {takes ? listener_.descriptor() : -1, POLLIN, 0}});
    for (const client& one : clients_) {
      // One with an answer under way is not listened to, so that what waits for it is bounded.
      asked.push_back({one.socket.descriptor(),
                       static_cast<decltype(pollfd::events)>(one.out.empty() ? POLLIN : POLLOUT),
                       0});
    }
    if (::poll(asked.data(), asked.size(), is_short_ ? 10 : -1) < 0 && errno != EINTR) return;
    is_short_ = false;
    if (asked[0].revents != 0) return;
    auto found = asked.cbegin() + 2;
    for (auto one = clients_.begin(); one != clients_.end(); ++found) {
      if (found->revents == 0 || serve(*one, found->revents)) {
        ++one;
      } else {
        table_.forget(one->number);
        one = clients_.erase(one);
      }
    }
    if (asked[1].revents != 0) take_connections();
  }
}

void store_server::take_connections() {
  try {
    while (clients_.size() < most_clients_) {
      auto socket = listener_.accept();
      if (!socket) return;
      clients_.push_back({next_, std::move(*socket), {}, {}, 0});
      ++next_;
    }
  } catch (const std::exception&) {
    is_short_ = true;  // of descriptors or memory: it stays in the queue, and others are served
  }
}

bool store_server::serve(client& of, int events) {
  try {
    if ((events & POLLOUT) != 0) {
      of.sent += of.socket.send_some(std::span{of.out}.subspan(of.sent), "an answer");
      if (of.sent == of.out.size()) {
        of.out.clear();
        of.sent = 0;
      }
    }
    if (of.out.empty()) {
      std::array<std::byte, 65536> bytes;
      const std::size_t got = of.socket.receive_some(bytes, "a request");
      of.in.insert(of.in.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(got));
      answer_requests(of);
    }
    return true;
  } catch (const std::exception&) {
    return false;  // it has gone, or has asked for what can't be
  }
}

void store_server::answer_requests(client& of) {
  std::size_t taken = 0;
  while (of.out.empty()) {
    const auto request = parse_request(std::span{of.in}.subspan(taken));
    if (!request) break;
    taken += request->bytes;
    deliver(table_.handle(of.number, request->what));
  }
  of.in.erase(of.in.begin(), of.in.begin() + static_cast<std::ptrdiff_t>(taken));
}

void store_server::deliver(const std::vector<store_table::answer>& answers) {
  for (const store_table::answer& answer : answers) {
    const auto to = std::ranges::find(clients_, answer.to, &client::number);
    if (to != clients_.end())
      to->out.insert(to->out.end(), answer.bytes.begin(), answer.bytes.end());
  }
}

}  // namespace mlp
