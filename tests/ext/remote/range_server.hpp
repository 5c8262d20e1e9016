// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/some_bytes.hpp"

namespace test {

/// Excludes the loopback address from proxies in the environment. The variable is set before any
/// thread starts.
inline const bool has_no_proxy = ::setenv("no_proxy", "127.0.0.1,localhost,store.test", 1) == 0;

/// A gate that a test opens. Waiting is limited to one minute, so that no test hangs.
class gate {
 public:
  void open() {
    const std::lock_guard lock{mutex_};
    is_open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, std::chrono::minutes{1}, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

/// A request as a server receives it.
struct http_request {
  std::size_t number = 0;  ///< number in order of arrival, starting at 0
  std::string method;
  std::string path;                          ///< unmodified, including the query
  std::map<std::string, std::string> lines;  ///< header lines, with names in lower case

  /// Returns the requested range as the offsets of the first byte and past the last byte. Returns
  /// {0, `size`} for a request without a range.
  [[nodiscard]] std::pair<std::size_t, std::size_t> range(std::size_t size) const {
    const auto found = lines.find("range");
    if (found == lines.end()) return {0, size};
    const std::string& text = found->second;  // for example bytes=0-9
    const std::size_t dash = text.find('-');
    return {std::stoul(text.substr(6, dash - 6)), std::stoul(text.substr(dash + 1)) + 1};
  }
};

/// The reply of a server: the bytes of the response, and a flag to close the connection afterwards.
struct http_reply {
  std::string bytes;
  bool closes = false;

  /// Returns a reply that ends after `count` bytes of the response.
  [[nodiscard]] http_reply cut(std::size_t count) const { return {bytes.substr(0, count), true}; }
};

/// Returns a response with this status, these header lines and this body. A response to HEAD has no
/// body.
inline http_reply answer(int status, const std::vector<std::string>& lines,
                         const std::string& body = {}, std::string_view method = "GET") {
  std::string bytes = "HTTP/1.1 " + std::to_string(status) + " Test\r\n";
  for (const std::string& line : lines) bytes += line + "\r\n";
  bytes += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  if (method != "HEAD") bytes += body;
  return {bytes};
}

/// Returns the response of a correct server for an object with these contents. `lines` specifies
/// the version.
inline http_reply ranged(const http_request& request, const std::string& content,
                         std::vector<std::string> lines) {
  if (request.method == "HEAD" || request.lines.find("range") == request.lines.end()) {
    return answer(200, lines, content, request.method);
  }
  auto [begin, end] = request.range(content.size());
  const std::string all = std::to_string(content.size());
  if (begin >= content.size()) return answer(416, {"Content-Range: bytes */" + all});
  end = (std::min)(end, content.size());
  lines.push_back("Content-Range: bytes " + std::to_string(begin) + '-' + std::to_string(end - 1) +
                  '/' + all);
  return answer(206, lines, content.substr(begin, end - begin));
}

/// Returns the response of a correct server for an object with these contents and only an ETag.
inline http_reply ranged(const http_request& request, const std::string& content,
                         const std::string& etag = "\"v1\"") {
  return ranged(request, content, std::vector<std::string>{"ETag: " + etag});
}

/// An HTTP server on a free loopback port, with one thread per connection.
class range_server {
 public:
  using handler = std::function<http_reply(const http_request&)>;

  explicit range_server(handler answers)
      : answers_(std::move(answers)), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ::sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::socklen_t size = sizeof(place);
    auto* const address = reinterpret_cast<::sockaddr*>(&place);
    if (socket_ < 0 || ::bind(socket_, address, size) != 0 || ::listen(socket_, 64) != 0 ||
        ::getsockname(socket_, address, &size) != 0) {
      throw std::runtime_error("no socket on the loopback");
    }
    port_ = ntohs(place.sin_port);
    accepting_ = std::thread{[this] { accept_all(); }};
  }
  /// Constructs a correct server that returns the same contents for every name.
  explicit range_server(std::string content)
      : range_server([all = std::move(content)](const http_request& request) {
          return ranged(request, all);
        }) {}
  range_server(const range_server&) = delete;
  range_server& operator=(const range_server&) = delete;
  ~range_server() {
    {
      const std::lock_guard lock{mutex_};
      is_ending_ = true;
      for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    }
    ::shutdown(socket_, SHUT_RDWR);
    accepting_.join();
    for (std::thread& one : serving_) one.join();
    for (const int connection : connections_) ::close(connection);
    ::close(socket_);
  }

  /// Returns the URL of the server without a trailing slash.
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  /// Returns all requests received so far.
  [[nodiscard]] std::vector<http_request> requests() const {
    const std::lock_guard lock{mutex_};
    return requests_;
  }
  /// Waits until `count` requests have arrived. Throws after a minute.
  void wait_for(std::size_t count) {
    std::unique_lock lock{mutex_};
    const bool have_come =
        changed_.wait_for(lock, std::chrono::minutes{1}, [&] { return requests_.size() >= count; });
    if (!have_come) throw std::runtime_error("a request that was expected has not come");
  }

 private:
  void accept_all() {
    while (true) {
      const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      const std::lock_guard lock{mutex_};
      if (connection < 0 || is_ending_ || connections_.size() >= 500) {
        if (connection >= 0) ::close(connection);
        if (connection < 0 || is_ending_) return;
        continue;
      }
      connections_.push_back(connection);
      serving_.emplace_back([this, connection] { serve(connection); });
    }
  }

  void serve(int connection) {
    std::string text;
    while (true) {
      std::size_t end = 0;
      while ((end = text.find("\r\n\r\n")) == std::string::npos) {
        char piece[4096];
        const ssize_t count = ::recv(connection, piece, sizeof(piece), 0);
        if (count <= 0) return;
        text.append(piece, static_cast<std::size_t>(count));
      }
      http_request request = parsed(text.substr(0, end));
      text.erase(0, end + 4);
      {
        const std::lock_guard lock{mutex_};
        request.number = requests_.size();
        requests_.push_back(request);
        changed_.notify_all();
      }
      const http_reply reply = answers_(request);
      std::string_view left = reply.bytes;
      while (!left.empty()) {
        const ssize_t count = ::send(connection, left.data(), left.size(), MSG_NOSIGNAL);
        if (count <= 0) return;
        left.remove_prefix(static_cast<std::size_t>(count));
      }
      if (reply.closes) {
        ::shutdown(connection, SHUT_RDWR);
        return;
      }
    }
  }

  static http_request parsed(const std::string& head) {
    http_request request;
    const std::size_t first = head.find(' ');
    request.method = head.substr(0, first);
    request.path = head.substr(first + 1, head.find(' ', first + 1) - first - 1);
    for (std::size_t at = head.find("\r\n"); at != std::string::npos; at = head.find("\r\n", at)) {
      at += 2;
      const std::size_t colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const std::size_t begin = head.find_first_not_of(' ', colon + 1);
      request.lines[name] = head.substr(begin, head.find("\r\n", at) - begin);
    }
    return request;
  }

  handler answers_;
  int socket_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<http_request> requests_;
  std::vector<int> connections_;
  std::vector<std::thread> serving_;
  bool is_ending_ = false;
  std::thread accepting_;
};

}  // namespace test
