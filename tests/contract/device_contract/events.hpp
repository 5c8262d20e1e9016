// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <thread>

#include <penstock/device/device.hpp>

#include "contract/device_contract/held_work.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

template <subject S>
void an_event_that_was_never_recorded_is_complete(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  auto event = device.make_event();
  CHECK(device.is_complete(event));
  device.synchronize(event);
  device.wait(stream, event);
  bool ran = false;
  s.launch(stream, [&ran] { ran = true; });
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(ran);
}

template <subject S>
void an_event_is_complete_when_the_work_before_its_record_is_done(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto stream = device.make_stream();
  const hold held;
  held.on(s, stream);
  device.record(event, stream);
  for (int turn = 0; turn < turns; ++turn) {
    if (device.is_complete(event)) break;
    std::this_thread::yield();
  }
  CHECK_FALSE(device.is_complete(event));
  held.let_go();
  device.synchronize(event);
  CHECK(device.is_complete(event));
}

template <subject S>
void an_event_recorded_on_an_idle_stream_completes_by_itself(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  auto event = device.make_event();
  device.record(event, stream);
  device.synchronize(event);
  CHECK(device.is_complete(event));
}

template <subject S>
void an_event_for_streams_alone_may_be_waited_for_by_a_thread(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  auto second = device.make_stream();
  auto event = device.make_event(penstock::event_wait::by_streams);
  const hold held;
  std::atomic<bool> ran{false};
  held.on(s, stream);
  device.record(event, stream);
  device.wait(second, event);
  s.launch(second, [&ran] { ran.store(true); });
  CHECK_FALSE(happens(ran));
  blocked_call call{device, [&] { device.synchronize(event); }};
  CHECK_FALSE(call.returns());
  held.let_go();
  call.join();
  CHECK(device.is_complete(event));
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(ran.load());
}

template <subject S>
void recording_again_moves_the_mark(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto stream = device.make_stream();
  auto other = device.make_stream();
  const hold held;
  device.record(event, stream);
  device.synchronize(event);
  held.on(s, stream);
  CHECK(device.is_complete(event));  // the event does not cover work queued after the record
  device.record(event, stream);
  CHECK_FALSE(device.is_complete(event));
  device.record(event, other);  // the other stream is idle
  device.synchronize(event);
  CHECK(device.is_complete(event));
  held.let_go();
}

template <subject S>
void synchronizing_an_event_waits_for_what_came_before_its_record(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto stream = device.make_stream();
  const hold held;
  held.on(s, stream);
  bool ran = false;
  s.launch(stream, [&ran] { ran = true; });
  device.record(event, stream);
  blocked_call call{device, [&] { device.synchronize(event); }};
  CHECK_FALSE(call.returns());
  held.let_go();
  call.join();
  CHECK(ran);
}

template <subject S>
void synchronizing_an_event_does_not_wait_for_what_came_behind_its_record(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto stream = device.make_stream();
  const hold held;
  bool ran = false;
  s.launch(stream, [&ran] { ran = true; });
  device.record(event, stream);
  held.on(s, stream);
  device.synchronize(event);  // would hang if the event waited
  CHECK(ran);
  CHECK(device.is_complete(event));
  held.let_go();
}

template <subject S>
void synchronizing_a_stream_waits_for_all_of_its_work(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  const hold held;
  const typename S::device_type::stream_ref ref{stream};
  bool ran = false;
  held.on(s, ref);
  s.launch(ref, [&ran] { ran = true; });
  blocked_call call{device, [&device, ref] { device.synchronize(ref); }};
  CHECK_FALSE(call.returns());
  held.let_go();
  call.join();
  CHECK(ran);
}

}  // namespace contract
