// SPDX-License-Identifier: BSL-1.0
#include "ranks/tcp/tcp_store.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranks/tcp/store_request.hpp"
#include "ranks/tcp/store_server.hpp"
#include "ranks/tcp/store_table.hpp"
#include "ranks/tcp/tcp_listener.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace {

constexpr std::chrono::seconds plenty{30};

mlp::endpoint here(std::uint16_t port) { return {"127.0.0.1", port}; }

std::string store_problem(auto&& call) { return test::error_of<mlp::tcp_error>(call).what(); }

/// The two ends of a connection.
std::pair<mlp::tcp_socket, mlp::tcp_socket> socket_pair() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {mlp::tcp_socket{ends[0], "node7:29500"}, mlp::tcp_socket{ends[1], "a client"}};
}

/// A client that says what it likes.
mlp::tcp_socket raw_client(const mlp::store_server& server, bool is_greeting = true) {
  auto socket = mlp::tcp_socket::connect(here(server.port()), mlp::tcp_clock::now() + plenty);
  if (is_greeting) {
    const auto hello = mlp::bytes_of({mlp::store_query::validate, {}, {}, mlp::store_magic});
    socket.send(hello, mlp::tcp_clock::now() + plenty, "hello");
  }
  return socket;
}

/// No descriptor beyond those that are open, while it lives.
class no_descriptors {
 public:
  no_descriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = ::dup(0);
    REQUIRE(next >= 0);
    ::close(next);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~no_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  no_descriptors(const no_descriptors&) = delete;
  no_descriptors& operator=(const no_descriptors&) = delete;

 private:
  rlimit before_{};
};

bool is_disconnected_by(const mlp::store_server& server, std::span<const std::byte> request,
                        bool is_greeting = true) {
  auto socket = raw_client(server, is_greeting);
  socket.send(request, mlp::tcp_clock::now() + plenty, "a request");
  std::array<std::byte, 1> answer{};
  return store_problem([&] {
           socket.receive(answer, mlp::tcp_clock::now() + plenty, "an answer");
         }).find("in time") == std::string::npos;
}

const std::vector<mlp::store_request> requests{
    {mlp::store_query::validate, {}, "", mlp::store_magic},
    {mlp::store_query::ping, {}, "", 77},
    {mlp::store_query::set, {"/key"}, std::string{"a\0value", 7}, 0},
    {mlp::store_query::set, {""}, "", 0},
    {mlp::store_query::get, {"/key"}, "", 0},
    {mlp::store_query::add, {"/number"}, "", -3},
    {mlp::store_query::wait, {"/key", "/number", ""}, "", 0},
    {mlp::store_query::wait, {}, "", 0},
};

}  // namespace

TEST_CASE("what one client of a store sets all get, also those that have asked before", "[mlp]") {
  const mlp::store_server server{0};
  std::optional<std::string> got;
  std::thread early{[&] {
    mlp::tcp_store store{here(server.port()), plenty};
    got = store.get("key");
  }};
  mlp::tcp_store store{here(server.port()), plenty};
  const std::string value{"all\0bytes", 9};
  store.set("key", value);
  early.join();
  CHECK(got == value);
  store.set("key", "another");
  store.wait("key");
  mlp::tcp_store late{here(server.port()), plenty};
  CHECK(late.get("key") == "another");
  late.set("empty", "");
  CHECK(late.get("empty").empty());
}

TEST_CASE("clients of a store add to one number, and prefixes keep starts apart", "[mlp]") {
  const mlp::store_server server{0};
  mlp::tcp_store first{here(server.port()), plenty, "1/"};
  mlp::tcp_store second{here(server.port()), plenty, "1/"};
  mlp::tcp_store again{here(server.port()), plenty, "2/"};
  CHECK(first.add("ranks", 3) == 3);
  CHECK(second.add("ranks", -5) == -2);
  CHECK(again.add("ranks", 1) == 1);
  CHECK(second.get("ranks") == "-2");
  second.set("ranks", "40");
  CHECK(second.get("ranks") == "40");  // no answer says when a value is set
  CHECK(first.add("ranks", 2) == 42);
}

TEST_CASE("a value of 8 MiB goes through a store, and a longer one or a longer key is refused",
          "[mlp]") {
  const mlp::store_server server{0};
  mlp::tcp_store store{here(server.port()), plenty};
  std::string value(mlp::most_value_bytes, 'v');
  value.back() = 'e';
  store.set("long", value);
  CHECK((store.get("long") == value));
  CHECK(store_problem([&] { store.set("long", value + "."); }) ==
        "set 'long': 8388609 bytes, and a store takes at most 8388608");
  CHECK_THAT(store_problem([&] { store.wait(std::string(8192, 'k')); }),
             Catch::Matchers::EndsWith("8193 bytes, and a store takes at most 8192"));
  CHECK(store.add("still there", 1) == 1);  // nothing was sent
}

TEST_CASE("a call that is not answered in time names host, port, call and key, and is the last",
          "[mlp]") {
  const mlp::store_server server{0};
  const std::string place = "127.0.0.1:" + std::to_string(server.port());
  mlp::tcp_store store{here(server.port()), plenty};
  store.set_patience(std::chrono::milliseconds{10});
  CHECK(store_problem([&] { static_cast<void>(store.get("nobody's")); }) ==
        place + ": get 'nobody's': no answer in time, 0 of 1 bytes");
  CHECK(store_problem([&] { store.set("key", "value"); }) ==
        place + ": an earlier call has failed, and the connection is closed");
}

TEST_CASE("a store that is not there, is none, or goes is an error", "[mlp]") {
  std::uint16_t port = 0;
  {
    const mlp::tcp_listener listener{0};
    port = listener.port();
    // Nobody takes the connection: it is there, and silent.
    std::string problem;
    for (std::chrono::milliseconds patience{20}; patience < plenty; patience *= 2) {
      problem = store_problem([&] { mlp::tcp_store(here(port), patience); });
      if (problem.find("asking") != std::string::npos) break;  // else it was not yet connected
    }
    CHECK_THAT(problem, Catch::Matchers::EndsWith(
                            ": asking whether it is a store: no answer in time, 0 of 4 bytes"));
  }
  CHECK_THAT(store_problem([&] { mlp::tcp_store(here(port), std::chrono::milliseconds{20}); }),
             Catch::Matchers::StartsWith("127.0.0.1:" + std::to_string(port) +
                                         ": can't connect: Connection refused, until"));
  CHECK_THAT(store_problem([&] {
               mlp::tcp_store({"nowhere.invalid", 1}, std::chrono::milliseconds{1});
             }),
             Catch::Matchers::StartsWith("nowhere.invalid:1: the host is not known: "));
  {
    auto [client, server] = socket_pair();
    server.send(std::as_bytes(std::span{"HTTP", 4}), mlp::tcp_clock::now() + plenty, "an answer");
    CHECK(store_problem([&, &made = client] { mlp::tcp_store(std::move(made), plenty); }) ==
          "node7:29500: asking whether it is a store: expected the answer 1885695603, found "
          "1347703880: something else than a TCPStore listens there");
  }
  auto [client, server] = socket_pair();
  server.close();
  CHECK_THAT(store_problem([&, &made = client] { mlp::tcp_store(std::move(made), plenty); }),
             Catch::Matchers::StartsWith("node7:29500: asking whether it is a store: "));
}

TEST_CASE("an answer that can't be a store's is refused with what was expected", "[mlp]") {
  const auto answered = [](std::span<const std::byte> bytes, auto&& call) {
    auto [client, server] = socket_pair();
    const std::uint32_t echo = 1885695603;
    server.send(std::as_bytes(std::span{&echo, 1}), mlp::tcp_clock::now() + plenty, "an answer");
    server.send(bytes, mlp::tcp_clock::now() + plenty, "an answer");
    mlp::tcp_store store{std::move(client), plenty};
    return store_problem([&] { call(store); });
  };
  const std::array other_answer{std::byte{1}};
  CHECK(answered(other_answer, [](auto& store) { store.wait("key"); }) ==
        "node7:29500: wait for 'key': expected the answer 0, found 1");
  std::array<std::byte, 9> long_answer{};
  std::memset(long_answer.data() + 1, 0xff, 8);
  CHECK(answered(long_answer, [](auto& store) { static_cast<void>(store.get("key")); }) ==
        "node7:29500: get 'key': the answer has 18446744073709551615 bytes, and a value has at "
        "most 8388608");
}

TEST_CASE("a store disconnects a client that asks for what can't be, and no other", "[mlp]") {
  const mlp::store_server server{0};
  mlp::tcp_store other{here(server.port()), plenty};
  const auto asks = [&](const mlp::store_request& request, bool is_greeting = true) {
    return is_disconnected_by(server, mlp::bytes_of(request), is_greeting);
  };
  const std::array unknown{std::byte{99}};
  CHECK(is_disconnected_by(server, unknown));
  CHECK(asks({mlp::store_query::ping, {}, {}, 1}, false));
  CHECK(asks({mlp::store_query::validate, {}, {}, 1}, false));
  CHECK(asks({mlp::store_query::get, {"/nobody's"}, {}, 0}));
  CHECK(asks({mlp::store_query::set, {std::string(8193, 'k')}, {}, 0}));
  other.set("word", "seven");
  other.wait("word");
  CHECK(asks({mlp::store_query::add, {"/word"}, {}, 1}));
  CHECK(other.get("word") == "seven");
}

TEST_CASE("a store without a descriptor for a client serves the others, and takes it later",
          "[mlp]") {
  const mlp::store_server server{0};
  mlp::tcp_store first{here(server.port()), plenty};
  mlp::tcp_socket second{::socket(AF_INET, SOCK_STREAM, 0), "the store"};
  REQUIRE(second.is_open());
  {
    const no_descriptors short_of_them;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // The system completes it, whether or not the store can take it.
    REQUIRE(::connect(second.descriptor(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)) == 0);
    REQUIRE(::fcntl(second.descriptor(), F_SETFL, O_NONBLOCK) == 0);
    for (int i = 1; i <= 10; ++i) CHECK(first.add("sum", 1) == i);
  }
  const auto end = mlp::tcp_clock::now() + plenty;
  second.send(mlp::bytes_of({mlp::store_query::validate, {}, {}, mlp::store_magic}), end, "hello");
  second.send(mlp::bytes_of({mlp::store_query::add, {"/sum"}, {}, 7}), end, "a sum");
  std::int64_t sum = 0;
  second.receive(std::as_writable_bytes(std::span{&sum, 1}), end, "the sum");
  CHECK(sum == 17);
}

TEST_CASE("a store serves many requests of a client that has not read an answer yet", "[mlp]") {
  const mlp::store_server server{0};
  auto socket = raw_client(server);
  std::vector<std::byte> many;
  for (int i = 0; i < 1000; ++i) {
    const auto one = mlp::bytes_of({mlp::store_query::add, {"/sum"}, {}, 2});
    many.insert(many.end(), one.begin(), one.end());
  }
  socket.send(many, mlp::tcp_clock::now() + plenty, "sums");
  std::vector<std::int64_t> sums(1000);
  socket.receive(std::as_writable_bytes(std::span{sums}), mlp::tcp_clock::now() + plenty, "sums");
  CHECK(sums.front() == 2);
  CHECK(sums.back() == 2000);
}

TEST_CASE("a request is read when it is whole, and not before", "[mlp]") {
  for (const auto& request : requests) {
    auto bytes = mlp::bytes_of(request);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      CHECK_FALSE(mlp::parse_request(std::span{bytes}.first(length)));
    }
    const std::size_t whole = bytes.size();
    bytes.resize(whole + 3);  // the next one has begun
    const auto found = mlp::parse_request(bytes);
    REQUIRE(found);
    CHECK(found->bytes == whole);
    CHECK(found->what == request);
  }
  CHECK(store_problem([] { static_cast<void>(mlp::parse_request(std::array{std::byte{2}})); }) ==
        "a store was asked for 2, which is none of 0 validate, 1 set, 3 get, 4 add, 6 wait, 13 "
        "ping");
  auto keys = mlp::bytes_of({mlp::store_query::wait, {}, {}, 0});
  keys[2] = std::byte{8};
  CHECK(store_problem([&] { static_cast<void>(mlp::parse_request(keys)); }) ==
        "a store's request has 2048 keys, and at most 1024 are taken");
}

TEST_CASE("what a store keeps is bounded, and its waits end when all of their keys are there",
          "[mlp]") {
  using mlp::store_query;
  mlp::store_table table{20};
  for (const std::size_t client : {1U, 2U}) {
    CHECK(table.handle(client, {store_query::validate, {}, {}, mlp::store_magic}).empty());
  }
  CHECK(table.handle(1, {store_query::wait, {"a", "b"}, {}, 0}).empty());
  CHECK(store_problem([&] {
          static_cast<void>(table.handle(1, {store_query::wait, {"a"}, {}, 0}));
        }) == "a store's client asks for a second wait before the first has ended");
  CHECK(table.handle(2, {store_query::set, {"a"}, "1234567", 0}).empty());
  const auto ended = table.handle(2, {store_query::add, {"b"}, {}, 7});
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].to == 1);
  CHECK(ended[0].bytes == std::vector{std::byte{0}});
  CHECK(ended[1].to == 2);
  CHECK(store_problem([&] {
          static_cast<void>(table.handle(2, {store_query::set, {"c"}, "0123456789", 0}));
        }) == "the store is full: 10 bytes, 11 for 'c', and at most 20");
  // In the place of another value it fits.
  CHECK(table.handle(2, {store_query::set, {"a"}, "0123456789", 0}).empty());
  CHECK(store_problem([&] {
          static_cast<void>(table.handle(
              2, {store_query::add, {"b"}, {}, (std::numeric_limits<std::int64_t>::max)()}));
        }) == "the store can't add 9223372036854775807 to 'b', which holds 7");
  CHECK(table.handle(2, {store_query::wait, {"d"}, {}, 0}).empty());
  table.forget(2);
  CHECK(table.handle(1, {store_query::set, {"d"}, "", 0}).empty());  // nobody waits for it
}
