// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include <penstock/device/stream_timeline.hpp>

#include "contract/device_contract/held_work.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

template <subject S>
using timeline_of = penstock::detail::stream_timeline<typename S::device_type>;

template <subject S>
void a_point_is_reached_when_the_work_before_its_mark_is_done(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  timeline_of<S> timeline{device, stream, 2, penstock::event_wait::by_host};
  CHECK(timeline.reached(0));
  timeline.wait(0);
  const hold held;
  held.on(s, stream);
  bool ran = false;
  s.launch(stream, [&ran] { ran = true; });
  const auto end = timeline.mark();
  CHECK(end.error == nullptr);
  CHECK_FALSE(timeline.reached(end.at));
  blocked_call call{device, [&] { timeline.wait(end.at); }};
  CHECK_FALSE(call.returns());
  held.let_go();
  call.join();
  CHECK(ran);
  CHECK(timeline.reached(end.at));
  CHECK(timeline.try_synchronize(end.at));
}

template <subject S>
void a_point_whose_event_was_recorded_again_is_not_reached_too_early(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  auto other = device.make_stream();
  timeline_of<S> timeline{device, stream, 2, penstock::event_wait::by_host};
  const hold held;
  const auto before = timeline.mark();
  timeline.wait(before.at);
  held.on(s, stream);
  const auto first = timeline.mark();
  for (int i = 0; i < 3; ++i) CHECK(timeline.mark().at > first.at);
  std::atomic<bool> ran{false};
  timeline.wait(first.at, other);
  s.launch(other, [&ran] { ran.store(true); });
  CHECK(timeline.reached(before.at));
  CHECK_FALSE(timeline.reached(first.at));
  CHECK_FALSE(happens(ran));
  held.let_go();
  timeline.wait(first.at);
  device.synchronize(typename S::device_type::stream_ref{other});
  CHECK(ran.load());
}

template <subject S>
void a_later_point_implies_the_earlier_points(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  timeline_of<S> timeline{device, stream, 4, penstock::event_wait::by_host};
  const auto first = timeline.mark();
  const auto second = timeline.mark();
  const hold held;
  held.on(s, stream);
  const auto third = timeline.mark();
  timeline.wait(second.at);
  CHECK(timeline.reached(first.at));
  CHECK_FALSE(timeline.reached(third.at));
  held.let_go();
}

template <subject S>
void a_stream_waits_for_a_point_of_another(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  auto other = device.make_stream();
  timeline_of<S> timeline{device, stream, 2, penstock::event_wait::by_streams};
  const hold held;
  held.on(s, stream);
  const auto end = timeline.mark();
  std::atomic<bool> ran{false};
  typename timeline_of<S>::point known = 0;
  timeline.wait(end.at, other, known);
  CHECK(known == end.at);
  timeline.wait(end.at, other, known);
  s.launch(other, [&ran] { ran.store(true); });
  CHECK_FALSE(happens(ran));
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{other});
  CHECK(ran.load());
}

/// Threads wait for points of slots while other threads fill the slots and mark new points. Each
/// event of the ring is recorded many times.
template <subject S>
void threads_mark_and_wait_at_once(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  constexpr std::size_t threads = 3;
  constexpr int rounds = 20;
  timeline_of<S> timeline{device, stream, 2, penstock::event_wait::by_host};
  std::array<int, threads> done{};  // only the stream writes; read after a wait
  std::atomic<int> wrong{0};
  std::vector<std::thread> users;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    users.emplace_back([&, thread, mine = device] {
      mine.make_current();
      for (int round = 1; round <= rounds; ++round) {
        s.launch(stream, [&done, thread, round] { done[thread] = round; });
        const auto end = timeline.mark();
        timeline.wait(end.at);
        if (end.error != nullptr || done[thread] != round) ++wrong;
      }
    });
  }
  for (auto& user : users) user.join();
  CHECK(wrong == 0);
}

template <subject S>
void a_timeline_outlives_its_stream(const S& s) {
  const auto device = s.device();
  auto stream = std::make_unique<typename S::device_type::stream_type>(device.make_stream());
  timeline_of<S> timeline{device, *stream, 2, penstock::event_wait::by_host};
  bool ran = false;
  s.launch(*stream, [&ran] { ran = true; });
  const auto end = timeline.mark();
  stream.reset();
  CHECK(timeline.try_synchronize(end.at));
  CHECK(ran);
}

}  // namespace contract
