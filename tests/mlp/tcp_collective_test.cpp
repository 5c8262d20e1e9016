// SPDX-License-Identifier: BSL-1.0
#include "ranks/tcp/tcp_collective.hpp"

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/ranks/world.hpp>
#include <penstock/ranks/world_error.hpp>

#include "ranks/tcp/frame.hpp"
#include "ranks/tcp/meeting_place.hpp"
#include "ranks/tcp/store_server.hpp"
#include "ranks/tcp/tcp_listener.hpp"
#include "ranks/tcp/tcp_store.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;

namespace {

constexpr std::chrono::seconds ample{60};

/// Ranks as threads, which find each other by a store of the test's.
struct threads_of_ranks {
  mlp::store_server server{0};
  mlp::meeting_place where{{"127.0.0.1", server.port()}, true, "test/"};
  std::chrono::milliseconds patience = ample;

  /// What each rank has had for an error; "" for none. As the program does, a rank that fails tells
  /// the others.
  std::vector<std::string> run(int size, const std::function<void(mlp::tcp_collective&)>& work) {
    std::vector<std::string> problems(static_cast<std::size_t>(size));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          mlp::tcp_collective all{{.rank = rank, .size = size}, where, patience};
          try {
            work(all);
          } catch (const std::exception& error) {
            all.abort(error.what());
            throw;
          }
        } catch (const std::exception& error) {
          problems[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    for (auto& rank : ranks) rank.join();
    return problems;
  }
};

/// What `call` says when it is given more and more patience, until it says what is expected: how
/// fast the machine is is no matter of the test.
std::string said_with_patience(const std::string& expected, auto&& call) {
  std::string said;
  for (std::chrono::milliseconds patience{30}; patience < ample; patience *= 2) {
    said = call(patience);
    if (said.find(expected) != std::string::npos) break;
  }
  return said;
}

bool holds(const std::string& text, const std::string& part) {
  INFO(text);
  const bool is_there = text.find(part) != std::string::npos;
  CHECK(is_there);
  return is_there;
}

mlp::meeting_place place_by(std::map<std::string, std::string> variables) {
  return mlp::meeting_place::from_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

}  // namespace

TEST_CASE("ranks gather, sum and meet over TCP", "[mlp]") {
  for (const int size : {1, 2, 3, 5}) {
    threads_of_ranks world;
    const auto problems = world.run(size, [&](mlp::tcp_collective& ranks) {
      const auto count = static_cast<std::size_t>(size);
      if (ranks.size() != size) throw std::logic_error("size");
      for (std::size_t step = 0; step < 3; ++step) {
        const std::array mine{static_cast<std::uint32_t>(ranks.rank()),
                              static_cast<std::uint32_t>(step)};
        std::vector<std::uint32_t> all(2 * count);
        ranks.all_gather(std::as_bytes(std::span{mine}), std::as_writable_bytes(std::span{all}));
        for (std::size_t rank = 0; rank < count; ++rank) {
          if (all[2 * rank] != rank || all[2 * rank + 1] != step) throw std::logic_error("gather");
        }
        // Of different lengths, so that rank 0's memory for them is used again.
        std::vector<float> values(1000 * (3 - step), static_cast<float>(ranks.rank() + 1));
        ranks.all_reduce(values);
        for (const float value : values) {
          if (value != static_cast<float>(size * (size + 1) / 2)) throw std::logic_error("sum");
        }
        ranks.barrier();
      }
    });
    CHECK(problems == std::vector<std::string>(static_cast<std::size_t>(size)));
  }
}

TEST_CASE("a sum over TCP is made in the order of the ranks, and is the same on all", "[mlp]") {
  threads_of_ranks world;
  for (int again = 0; again < 5; ++again) {
    std::vector<float> sums(3);
    world.run(3, [&](mlp::tcp_collective& ranks) {
      constexpr std::array parts{1e8F, 1.0F, -1e8F};
      const auto rank = static_cast<std::size_t>(ranks.rank());
      std::array value{parts[rank]};
      ranks.all_reduce(value);
      sums[rank] = value.front();
    });
    CHECK(sums == std::vector<float>{0, 0, 0});  // and 1 in another order
  }
}

TEST_CASE("a rank over TCP that ends is named to all others", "[mlp]") {
  threads_of_ranks world;
  const auto problems = world.run(4, [](mlp::tcp_collective& ranks) {
    ranks.barrier();
    if (ranks.rank() == 2) return;
    ranks.barrier();
  });
  CHECK(problems[2].empty());
  holds(problems[0], "rank 2, call 1, a gather of 0 bytes: ");
  for (const std::size_t rank : {1U, 3U}) {
    holds(problems[rank], "rank 0 has ended: ");
    holds(problems[rank], "rank 2, call 1");
  }
}

TEST_CASE("a rank over TCP says why it fails, and all others have its words", "[mlp]") {
  threads_of_ranks world;
  const auto problems = world.run(3, [](mlp::tcp_collective& ranks) {
    ranks.barrier();
    if (ranks.rank() == 1) throw std::runtime_error("the disk is full");
    ranks.barrier();
  });
  CHECK(problems ==
        std::vector<std::string>{"rank 1 has ended: the disk is full", "the disk is full",
                                 "rank 0 has ended: rank 1 has ended: the disk is full"});
  const auto hub_fails = world.run(2, [](mlp::tcp_collective& ranks) {
    if (ranks.rank() == 0) throw std::runtime_error("the file is torn");
    ranks.barrier();
  });
  CHECK(hub_fails[1] == "rank 0 has ended: the file is torn");
  // A rank that comes with bytes to a connection that is closed: it is told all the same.
  std::promise<void> closed;
  const auto late = world.run(2, [&](mlp::tcp_collective& ranks) {
    if (ranks.rank() == 0) {
      ranks.abort("the file is torn");
      return closed.set_value();
    }
    closed.get_future().wait();
    std::array<float, 4> values{};
    ranks.all_reduce(values);
  });
  CHECK(late[1] == "rank 0 has ended: the file is torn");
}

TEST_CASE("a rank over TCP that does not come is named when the patience ends", "[mlp]") {
  threads_of_ranks world;
  std::promise<void> ended;
  const auto problems = world.run(3, [&](mlp::tcp_collective& ranks) {
    if (ranks.rank() == 2) return ended.get_future().wait();
    ranks.set_patience(std::chrono::milliseconds{ranks.rank() == 0 ? 20 : 60'000});
    try {
      ranks.barrier();
    } catch (const std::exception&) {
      if (ranks.rank() == 0) ended.set_value();
      throw;
    }
  });
  holds(problems[0], " of 3: not come to call 0, a gather of 0 bytes, within 1 s");
  holds(problems[0], "2 of 3");  // and rank 1, where that was slow
  holds(problems[1], "rank 0 has ended: ");
}

TEST_CASE("ranks over TCP that make different calls are told which", "[mlp]") {
  threads_of_ranks world;
  const auto problems = world.run(2, [](mlp::tcp_collective& ranks) {
    std::array<std::byte, 4> mine{};
    std::array<std::byte, 8> all{};
    if (ranks.rank() == 0) ranks.all_gather(mine, all);
    std::array<float, 2> values{};
    ranks.all_reduce(values);
  });
  holds(problems[0],
        "rank 1 is at call 0, a sum of 8 bytes, and rank 0 at call 0, a gather of 4 bytes");
  holds(problems[1], "rank 0 has ended: ");
}

TEST_CASE("ranks over TCP that were not started are named", "[mlp]") {
  threads_of_ranks world;
  const auto check = [&](int rank, const std::string& expected) {
    const auto alone = [&](std::chrono::milliseconds patience) {
      const auto start = [&] {
        mlp::tcp_collective({.rank = rank, .size = 3}, world.where, patience);
      };
      return std::string{test::error_of<mlp::tcp_error>(start).what()};
    };
    holds(said_with_patience(expected, alone), expected);
  };
  check(0, ": ranks 1, 2 of 3 have not come within 1 s: see whether all were started");
  world.where.prefix = "another start/";
  check(1, ": get 'hub': no answer in time");
  // Rank 0's place of a start before, where nobody is.
  mlp::tcp_store store{world.where.store, ample, world.where.prefix};
  const std::uint16_t gone = mlp::tcp_listener{0}.port();
  store.set("hub", mlp::hub_address{gone, 5}.str());
  check(1, "rank 0 can't be reached: 127.0.0.1:");
  store.set("hub", "elsewhere");
  check(1, "'hub': expected a port and a token, found 'elsewhere'");
}

TEST_CASE("strangers and ranks of an earlier start do not count as ranks over TCP", "[mlp]") {
  threads_of_ranks world;
  mlp::tcp_store store{world.where.store, ample, world.where.prefix};
  // Where somebody listens, and goes.
  std::optional<mlp::tcp_listener> before{std::in_place, std::uint16_t{0}};
  store.set("hub", mlp::hub_address{before->port(), 5}.str());
  std::string problem = "none";
  std::thread early{[&] {
    try {
      mlp::tcp_collective all{{.rank = 1, .size = 2}, world.where, ample};
      all.barrier();
      problem.clear();
    } catch (const mlp::tcp_error& error) {
      problem = error.what();
    }
  }};
  REQUIRE(mlp::wait_for_events(before->descriptor(), POLLIN, mlp::tcp_clock::now() + ample));
  before.reset();
  std::thread stranger{[&] {
    // Asks until rank 0 has said where it is.
    std::optional<mlp::hub_address> hub;
    while (!hub || hub->token == 5) hub = mlp::hub_address::parse(store.get("hub"));
    auto socket = mlp::tcp_socket::connect({"127.0.0.1", hub->port}, mlp::tcp_clock::now() + ample);
    const std::string words = "GET / HTTP/1.1\r\nHost: a longer one\r\n\r\n";
    socket.send(std::as_bytes(std::span{words}), mlp::tcp_clock::now() + ample, "a request");
  }};
  mlp::tcp_collective all{{.rank = 0, .size = 2}, world.where, ample};
  all.barrier();
  early.join();
  stranger.join();
  CHECK(problem.empty());
}

TEST_CASE("a second process of one rank over TCP, and one of another world, are refused", "[mlp]") {
  for (const ps::world& second : {ps::world{.rank = 1, .size = 3}, ps::world{.rank = 1, .size = 4},
                                  ps::world{.rank = 7, .size = 3}}) {
    const auto start = [&](std::chrono::milliseconds patience) {
      const threads_of_ranks world;
      std::array<std::string, 3> said;
      const auto rank = [&](const ps::world& w, std::size_t number) {
        try {
          mlp::tcp_collective all{w, world.where, patience};
          all.barrier();
        } catch (const mlp::tcp_error& error) {
          said[number] = error.what();
        }
      };
      std::thread one{rank, ps::world{.rank = 1, .size = 3}, 1};
      std::thread another{rank, second, 2};
      rank({.rank = 0, .size = 3}, 0);
      one.join();
      another.join();
      // Of two processes of one rank the later one is refused.
      return second.rank == 1 && second.size == 3 ? said[0] : said[2];
    };
    const std::string expected = second.size == 4   ? ": a rank of a world of 4, and this one has 3"
                                 : second.rank == 7 ? ": a rank 7: start all ranks by one launcher"
                                                    : ": a second process is rank 1 as ";
    const std::string found = said_with_patience(expected, start);
    holds(found, expected);
    if (second.size == 3 && second.rank == 1) continue;
    CHECK_THAT(found, Catch::Matchers::StartsWith("rank 0 has ended: "));  // it was told
  }
}

TEST_CASE("a rank of another start is no rank over TCP", "[mlp]") {
  threads_of_ranks world;
  std::string problem = "none";
  std::thread first{[&] {
    try {
      mlp::tcp_collective all{{.rank = 0, .size = 2}, world.where, ample};
      all.barrier();
      problem.clear();
    } catch (const mlp::tcp_error& error) {
      problem = error.what();
    }
  }};
  {
    mlp::tcp_store store{world.where.store, ample, world.where.prefix};
    const auto hub = mlp::hub_address::parse(store.get("hub"));
    REQUIRE(hub);
    const auto end = mlp::tcp_clock::now() + ample;
    auto stranger = mlp::tcp_socket::connect({"127.0.0.1", hub->port}, end);
    std::vector<std::byte> greeting;
    mlp::append_raw(greeting, mlp::frame{mlp::frame_kind::hello, hub->token + 1, 8}.raw());
    mlp::append_raw(greeting, std::uint32_t{1});
    mlp::append_raw(greeting, std::uint32_t{2});
    stranger.send(greeting, end, "a greeting");
    std::array<std::byte, 1> answer{};
    CHECK_THROWS_AS(stranger.receive(answer, end, "no answer"), mlp::tcp_error);
  }
  mlp::tcp_collective second{{.rank = 1, .size = 2}, world.where, ample};
  second.barrier();
  first.join();
  CHECK(problem.empty());
}

TEST_CASE("rank 0 hosts the store where no agent does", "[mlp]") {
  threads_of_ranks world;
  world.where = {{"localhost", mlp::tcp_listener{0}.port()}, false, ""};
  const auto problems = world.run(3, [](mlp::tcp_collective& ranks) { ranks.barrier(); });
  CHECK(problems == std::vector<std::string>(3));
  // Its port is taken: by the store of the test.
  world.where.store.port = world.server.port();
  world.patience = std::chrono::milliseconds{50};
  holds(world.run(2, [](mlp::tcp_collective&) {}).front(),
        ": can't listen on it: Address already in use: give MASTER_PORT one that is free");
}

TEST_CASE("where ranks meet is what the environment says", "[mlp]") {
  const auto plain = place_by({{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}});
  CHECK(plain.store.str() == "node7:29500");
  CHECK_FALSE(plain.is_hosted_by_agent);
  CHECK(plain.prefix == "penstock//0/");
  const auto elastic = place_by({{"MASTER_ADDR", "::1"},
                                 {"MASTER_PORT", "1"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                 {"TORCHELASTIC_RUN_ID", "job"},
                                 {"TORCHELASTIC_RESTART_COUNT", "2"}});
  CHECK(elastic.store.str() == "[::1]:1");
  CHECK(elastic.is_hosted_by_agent);
  CHECK(elastic.prefix == "penstock/job/2/");
  const auto refused = [](std::map<std::string, std::string> variables) {
    return std::string{test::error_of<ps::world_error>([&] {
                         static_cast<void>(place_by(std::move(variables)));
                       }).what()};
  };
  holds(refused({{"MASTER_PORT", "1"}}), "no MASTER_ADDR: start the program by torchrun");
  holds(refused({{"MASTER_ADDR", "node7"}}), "no MASTER_PORT: ");
  for (const char* port : {"", "0", "65536", "-1", "29500 ", "port"}) {
    holds(refused({{"MASTER_ADDR", "node7"}, {"MASTER_PORT", port}}),
          "MASTER_PORT='" + std::string{port} + "' is no number from 1 to 65535");
  }
}
