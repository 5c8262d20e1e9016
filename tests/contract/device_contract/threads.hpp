// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "contract/device_contract/scoped_memory.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

template <subject S>
void a_stream_takes_work_from_several_threads(const S& s) {
  const auto device = s.device();
  constexpr int threads = 4;
  constexpr int each = 300;
  std::vector<std::pair<int, int>> seen;
  auto stream = device.make_stream();
  {
    std::vector<std::thread> givers;
    for (int thread = 0; thread < threads; ++thread) {
      givers.emplace_back([&, thread, mine = device] {
        mine.make_current();
        for (int i = 0; i < each; ++i) {
          s.launch(stream, [&seen, thread, i] { seen.emplace_back(thread, i); });
        }
      });
    }
    for (auto& giver : givers) giver.join();
  }
  device.synchronize(typename S::device_type::stream_ref{stream});
  REQUIRE(seen.size() == std::size_t{threads * each});
  int next[threads] = {};
  // The order within each thread is preserved.
  for (const auto& [thread, i] : seen) CHECK(next[thread]++ == i);
}

template <subject S>
void threads_work_on_streams_of_their_own(const S& s) {
  const auto device = s.device();
  constexpr std::size_t threads = 4;
  std::atomic<std::size_t> right{0};
  std::vector<std::thread> users;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    users.emplace_back([&, thread, mine = device] {
      mine.make_current();
      constexpr std::size_t bytes = 10'000;
      const device_memory there{mine, bytes};
      const pinned_memory from{mine, bytes};
      const pinned_memory to{mine, bytes};
      auto copied = mine.make_event();
      auto first = mine.make_stream();
      auto second = mine.make_stream();
      for (std::size_t round = 0; round < 20; ++round) {
        fill_pattern(from.data(), bytes, static_cast<std::uint32_t>(thread * 100 + round));
        mine.copy_async(there.data(), from.data(), bytes, first);
        mine.record(copied, first);
        mine.wait(second, copied);
        mine.copy_async(to.data(), there.data(), bytes, second);
        mine.synchronize(typename S::device_type::stream_ref{second});
        if (std::memcmp(from.data(), to.data(), bytes) == 0) ++right;
      }
    });
  }
  for (auto& user : users) user.join();
  CHECK(right == threads * 20);
}

template <subject S>
void an_event_may_be_recorded_again_while_threads_wait_for_it(const S& s) {
  const auto device = s.device();
  constexpr int rounds = 50;
  auto stream = device.make_stream();
  auto event = device.make_event(penstock::event_wait::by_host);
  std::atomic<int> done{0};
  std::atomic<int> recorded{0};
  std::atomic<int> early{0};
  device.record(event, stream);  // recorded before other threads use the event
  const auto wait_and_look = [&](auto wait) {
    return [&, wait, mine = device] {
      mine.make_current();
      auto other = mine.make_stream();
      for (int seen = 0; seen != rounds;) {
        seen = recorded.load();
        wait(mine, typename S::device_type::stream_ref{other});
        if (done.load() < seen) ++early;
      }
    };
  };
  std::vector<std::thread> users;
  users.emplace_back(
      wait_and_look([&](const auto& device_of, auto) { device_of.synchronize(event); }));
  users.emplace_back(wait_and_look([&](const auto& device_of, auto other) {
    device_of.wait(other, event);
    device_of.synchronize(other);
  }));
  users.emplace_back(wait_and_look([&](const auto& device_of, auto) {
    while (!device_of.is_complete(event)) std::this_thread::yield();
  }));
  for (int round = 1; round <= rounds; ++round) {
    s.launch(stream, [&done] { ++done; });
    device.record(event, stream);
    recorded.store(round);
  }
  for (auto& user : users) user.join();
  CHECK(early == 0);
}

template <subject S>
void a_thread_may_enter_more_than_once(const S& s) {
  const auto device = s.device();
  const auto enter_and_work = [&s, device] {
    for (int i = 0; i < 3; ++i) device.make_current();
    auto stream = device.make_stream();
    bool ran = false;
    s.launch(stream, [&ran] { ran = true; });
    device.synchronize(typename S::device_type::stream_ref{stream});
    return ran;
  };
  // A new thread is used, because `make_current` may change the floating-point mode of its thread.
  bool ran = false;
  std::thread{[&] { ran = enter_and_work(); }}.join();
  CHECK(ran);
}

}  // namespace contract
