// SPDX-License-Identifier: BSL-1.0
#include "tcp_store.hpp"

#include <array>
#include <utility>

#include "raw_bytes.hpp"
#include "retry_pause.hpp"

namespace mlp {

namespace {

std::string call_on(const char* call, std::string_view key) {
  return std::string{call} + " '" + std::string{key.substr(0, 80)} + "'";
}

void require_length(std::size_t found, std::size_t most, const std::string& what) {
  if (found <= most) return;
  throw tcp_error(what + ": " + std::to_string(found) + " bytes, and a store takes at most " +
                  std::to_string(most));
}

}  // namespace

template <class Call>
auto tcp_store::guarded(const Call& call) {
  if (!socket_.is_open()) {
    throw tcp_error(socket_.peer() + ": an earlier call has failed, and the connection is closed");
  }
  end_ = tcp_clock::now() + patience_;
  try {
    return call();
  } catch (...) {
    socket_.close();
    throw;
  }
}

tcp_store::tcp_store(const endpoint& where, duration patience, std::string prefix)
    : patience_(patience), prefix_(std::move(prefix)), end_(tcp_clock::now() + patience) {
  retry_pause pause{end_};
  while (true) {
    socket_ = tcp_socket::connect_patiently(where, end_);
    try {
      greet();
      break;
    } catch (const tcp_error&) {
      // A listener that has more clients than it can queue may drop one, which tries again.
      if (!pause.wait()) throw;
    }
  }
  require_store();
}

tcp_store::tcp_store(tcp_socket connected, duration patience, std::string prefix)
    : socket_(std::move(connected)), patience_(patience), prefix_(std::move(prefix)) {
  guarded([&] { greet(); });
  require_store();
}

void tcp_store::greet() {
  constexpr std::string_view what = "asking whether it is a store";
  send({.query = store_query::validate, .number = store_magic}, what);
  send({.query = store_query::ping, .number = sent_nonce_}, what);
  found_nonce_ = receive<std::uint32_t>(what);
}

void tcp_store::require_store() const {
  if (found_nonce_ == sent_nonce_) return;
  throw tcp_error(socket_.peer() + ": asking whether it is a store: expected the answer " +
                  std::to_string(sent_nonce_) + ", found " + std::to_string(found_nonce_) +
                  ": something else than a TCPStore listens there");
}

std::string tcp_store::place_of(std::string_view key) const {
  // PyTorch's clients put the slash before all keys of theirs.
  std::string place = "/" + prefix_ + std::string{key};
  require_length(place.size(), most_key_bytes, call_on("the key", key));
  return place;
}

void tcp_store::send(const store_request& request, std::string_view what) {
  socket_.send(bytes_of(request), end_, what);
}

template <class T>
T tcp_store::receive(std::string_view what) {
  std::array<std::byte, sizeof(T)> bytes{};
  socket_.receive(bytes, end_, what);
  return raw_value<T>(bytes);
}

void tcp_store::await(const std::string& key, std::string_view what) {
  send({.query = store_query::wait, .keys = {key}}, what);
  const auto answer = receive<std::uint8_t>(what);
  if (answer == 0) return;
  throw tcp_error(socket_.peer() + ": " + std::string{what} + ": expected the answer 0, found " +
                  std::to_string(answer));
}

void tcp_store::set(std::string_view key, std::string_view value) {
  const std::string what = call_on("set", key);
  require_length(value.size(), most_value_bytes, what);
  const std::string place = place_of(key);
  guarded([&] {
    send({.query = store_query::set, .keys = {place}, .value = std::string{value}}, what);
  });
}

std::string tcp_store::get(std::string_view key) {
  const std::string what = call_on("get", key);
  const std::string place = place_of(key);
  return guarded([&] {
    await(place, what);
    send({.query = store_query::get, .keys = {place}}, what);
    const auto length = receive<std::uint64_t>(what);
    if (length > most_value_bytes) {
      throw tcp_error(socket_.peer() + ": " + what + ": the answer has " + std::to_string(length) +
                      " bytes, and a value has at most " + std::to_string(most_value_bytes));
    }
    std::string value(static_cast<std::size_t>(length), '\0');
    socket_.receive(std::as_writable_bytes(std::span{value}), end_, what);
    return value;
  });
}

std::int64_t tcp_store::add(std::string_view key, std::int64_t amount) {
  const std::string what = call_on("add to", key);
  const std::string place = place_of(key);
  return guarded([&] {
    send({.query = store_query::add, .keys = {place}, .number = amount}, what);
    return receive<std::int64_t>(what);
  });
}

void tcp_store::wait(std::string_view key) {
  const std::string what = call_on("wait for", key);
  const std::string place = place_of(key);
  guarded([&] { await(place, what); });
}

}  // namespace mlp
