// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <numeric>
#include <thread>
#include <vector>

#include "contract/device_contract/held_work.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

template <subject S>
void a_stream_waits_for_the_record_of_another(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  int message = 0;  // not atomic, because the event orders the accesses
  std::atomic<bool> ran{false};
  int seen = 0;
  held.on(s, first);
  s.launch(first, [&message] { message = 42; });
  device.record(event, first);
  device.wait(second, event);
  s.launch(second, [&] {
    seen = message;
    ran.store(true);
  });
  CHECK_FALSE(happens(ran));
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(seen == 42);
}

template <subject S>
void a_wait_does_not_wait_for_what_comes_behind_the_record(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  device.record(event, first);
  held.on(s, first);
  device.wait(second, event);
  bool ran = false;
  s.launch(second, [&ran] { ran = true; });
  // If the stream waited for the blocked work, this call would hang.
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(ran);
  held.let_go();
}

template <subject S>
void work_given_after_an_event_is_complete_needs_no_wait(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  int message = 0;  // not atomic: the query orders it
  int seen = 0;
  s.launch(first, [&message] { message = 42; });
  device.record(event, first);
  while (!device.is_complete(event)) std::this_thread::yield();
  s.launch(second, [&] { seen = message; });
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(seen == 42);
}

template <subject S>
void work_given_before_a_wait_does_not_wait(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto before = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  held.on(s, first);
  device.record(event, first);
  bool ran = false;
  s.launch(second, [&ran] { ran = true; });
  device.record(before, second);
  device.wait(second, event);
  device.synchronize(before);  // would hang if the event waited
  CHECK(ran);
  held.let_go();
}

template <subject S>
void a_later_record_does_not_prolong_a_wait(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  auto third = device.make_stream();
  const hold early;
  const hold late;
  early.on(s, first);
  device.record(event, first);
  device.wait(second, event);
  bool ran = false;
  s.launch(second, [&ran] { ran = true; });
  late.on(s, third);
  device.record(event, third);
  early.let_go();
  // The call would hang if the wait referred to a later record of the event.
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(ran);
  CHECK_FALSE(device.is_complete(event));
  late.let_go();
}

template <subject S>
void a_later_record_does_not_cut_a_wait_short(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  auto idle = device.make_stream();
  const hold held;
  held.on(s, first);
  device.record(event, first);
  device.wait(second, event);
  std::atomic<bool> ran{false};
  s.launch(second, [&ran] { ran.store(true); });
  device.record(event, idle);
  device.synchronize(event);
  CHECK_FALSE(happens(ran));
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(ran.load());
}

template <subject S>
void a_wait_before_the_first_record_waits_for_nothing(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  device.wait(second, event);
  held.on(s, first);
  device.record(event, first);
  bool ran = false;
  s.launch(second, [&ran] { ran = true; });
  // If the stream waited for the blocked work, this call would hang.
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(ran);
  held.let_go();
}

template <subject S>
void a_stream_may_wait_for_its_own_record(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto stream = device.make_stream();
  const hold held;
  held.on(s, stream);
  device.record(event, stream);
  device.wait(stream, event);
  bool ran = false;
  s.launch(stream, [&ran] { ran = true; });
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(ran);
}

template <subject S>
void order_carries_through_a_chain_of_three_streams(const S& s) {
  const auto device = s.device();
  auto one = device.make_event();
  auto two = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  auto third = device.make_stream();
  const hold held;
  std::vector<int> seen;  // not atomic, because the events order the accesses
  std::atomic<bool> ran{false};
  held.on(s, first);
  s.launch(first, [&seen] { seen.push_back(1); });
  device.record(one, first);
  device.wait(second, one);
  s.launch(second, [&] {
    seen.push_back(2);
    ran.store(true);
  });
  device.record(two, second);
  device.wait(third, two);
  s.launch(third, [&] {
    seen.push_back(3);
    ran.store(true);
  });
  CHECK_FALSE(happens(ran));
  CHECK_FALSE(device.is_complete(two));
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{third});
  CHECK(seen == std::vector<int>{1, 2, 3});
}

template <subject S>
void a_stream_may_wait_for_several_others(const S& s) {
  const auto device = s.device();
  typename S::device_type::event_type events[] = {device.make_event(), device.make_event(),
                                                  device.make_event()};
  typename S::device_type::stream_type streams[] = {device.make_stream(), device.make_stream(),
                                                    device.make_stream()};
  auto joined = device.make_stream();
  const hold held[3];
  for (std::size_t i = 0; i < 3; ++i) {
    held[i].on(s, streams[i]);
    device.record(events[i], streams[i]);
    device.wait(joined, events[i]);
  }
  std::atomic<bool> ran{false};
  s.launch(joined, [&ran] { ran.store(true); });
  // Releases the streams in a different order than the order of the waits.
  held[1].let_go();
  CHECK_FALSE(happens(ran));
  held[2].let_go();
  CHECK_FALSE(happens(ran));
  held[0].let_go();
  device.synchronize(typename S::device_type::stream_ref{joined});
  CHECK(ran.load());
}

template <subject S>
void two_streams_take_turns_by_two_events(const S& s) {
  const auto device = s.device();
  auto ping = device.make_event();
  auto pong = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  std::vector<int> seen;  // not atomic, because the events order the accesses
  for (int i = 0; i < 1000; i += 2) {
    device.wait(first, pong);
    s.launch(first, [&seen, i] { seen.push_back(i); });
    device.record(ping, first);
    device.wait(second, ping);
    s.launch(second, [&seen, i] { seen.push_back(i + 1); });
    device.record(pong, second);
  }
  device.synchronize(pong);
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(seen == expected);
}

}  // namespace contract
