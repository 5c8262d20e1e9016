// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "contract/device_contract/held_work.hpp"
#include "contract/device_contract/scoped_memory.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

template <subject S>
void a_stream_that_is_destroyed_waits_for_its_work(const S& s) {
  const auto device = s.device();
  std::optional stream{device.make_stream()};
  const hold held;
  bool ran = false;
  held.on(s, *stream);
  s.launch(*stream, [&ran] { ran = true; });
  blocked_call call{device, [&stream] { stream.reset(); }};
  CHECK_FALSE(call.returns());
  held.let_go();
  call.join();
  CHECK(ran);
}

template <subject S>
void events_outlive_their_streams(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  bool ran = false;
  {
    auto gone = device.make_stream();
    s.launch(gone, [&ran] { ran = true; });
    device.record(event, gone);
  }
  CHECK(ran);
  CHECK(device.is_complete(event));
  device.synchronize(event);
  auto stream = device.make_stream();
  device.wait(stream, event);
  device.synchronize(typename S::device_type::stream_ref{stream});
  const hold held;
  held.on(s, stream);
  device.record(event, stream);  // the event can be reused
  CHECK_FALSE(device.is_complete(event));
  held.let_go();
}

template <subject S>
void a_wait_outlives_its_event(const S& s) {
  const auto device = s.device();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  held.on(s, first);
  {
    auto gone = device.make_event();
    device.record(gone, first);
    device.wait(second, gone);
  }
  std::atomic<bool> ran{false};
  s.launch(second, [&ran] { ran.store(true); });
  CHECK_FALSE(happens(ran));
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{second});
  CHECK(ran.load());
}

template <subject S>
void a_stream_moves_with_its_work(const S& s) {
  const auto device = s.device();
  using stream_ref = typename S::device_type::stream_ref;
  std::vector<int> seen;
  auto event = device.make_event();
  std::optional first{device.make_stream()};
  const hold held;
  const stream_ref before{*first};
  held.on(s, before);
  s.launch(before, [&seen] { seen.push_back(1); });
  auto second = std::move(*first);
  first.reset();  // a moved-from stream has no work to wait for
  s.launch(second, [&seen] { seen.push_back(2); });
  s.launch(before, [&seen] { seen.push_back(3); });  // a reference follows its stream
  device.record(event, second);
  CHECK_FALSE(device.is_complete(event));
  held.let_go();
  device.synchronize(stream_ref{second});
  CHECK(seen == std::vector<int>{1, 2, 3});
}

template <subject S>
void assigning_to_a_stream_waits_for_the_work_it_had(const S& s) {
  const auto device = s.device();
  auto target = device.make_stream();
  auto source = device.make_stream();
  const hold held;
  bool ran = false;
  bool kept = false;
  held.on(s, target);
  s.launch(target, [&ran] { ran = true; });
  s.launch(source, [&kept] { kept = true; });
  blocked_call call{device, [&] { target = std::move(source); }};
  CHECK_FALSE(call.returns());
  held.let_go();
  call.join();
  CHECK(ran);
  device.synchronize(typename S::device_type::stream_ref{target});
  CHECK(kept);
}

template <subject S>
void an_event_moves_with_its_record(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  const hold held;
  auto first = device.make_event();
  held.on(s, stream);
  device.record(first, stream);
  auto second = std::move(first);
  CHECK_FALSE(device.is_complete(second));
  auto third = device.make_event();
  third = std::move(second);
  CHECK_FALSE(device.is_complete(third));
  first = device.make_event();  // a moved-from event can be assigned
  CHECK(device.is_complete(first));
  held.let_go();
  device.synchronize(third);
  CHECK(device.is_complete(third));
}

template <subject S>
void a_copy_of_the_handle_is_the_same_device(const S& s) {
  using device_type = std::remove_cvref_t<decltype(s.device())>;
  auto original = std::make_unique<device_type>(s.device());
  auto stream = original->make_stream();
  auto event = original->make_event();
  void* memory = original->allocate(1000);
  void* pinned = original->allocate_pinned(1000).data;
  const auto copy = *original;
  original.reset();
  fill_pattern(static_cast<std::byte*>(pinned), 1000, 5);
  copy.copy_async(memory, pinned, 1000, stream);
  copy.record(event, stream);
  copy.synchronize(event);
  CHECK(copy.is_complete(event));
  copy.deallocate(memory, 1000);
  copy.deallocate_pinned(pinned, 1000);
}

}  // namespace contract
