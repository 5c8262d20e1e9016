// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/device/device.hpp>
#include <penstock/threads/detail/waiting/waitable_counter.hpp>

#include "support/catch.hpp"

/// What every device must do, whatever it is made of. A device's own test file brings a subject and
/// runs all checks:
///
///     struct host_subject {
///       using device_type = penstock::cpu_device;
///       device_type device() const;                                    // the device under test
///       void launch(stream_ref, std::function<void()> work) const;     // puts work on a stream
///     };
///     TEST_CASE("a CPU device keeps the contract of devices", "[contract]") {
///       contract::run_all(host_subject{});
///     }
///
/// `launch` is the one thing here that the concept does not have: work that runs on the host, in
/// stream order, and may block. By it the checks hold a stream, look that what must wait has not
/// run, and let go. They never wait for held work to begin: a device may run work as late as its
/// order allows. Launched work makes no call to the device.
namespace contract {

template <class S>
concept subject = penstock::device<typename S::device_type> &&
    requires(const S& s, typename S::device_type::stream_ref stream, std::function<void()> work) {
  { s.device() } -> std::same_as<typename S::device_type>;
  s.launch(stream, work);
};

/// Something that holds a stream until it is let go. Made after the streams, so that a check that
/// is left by an exception lets go of them before they are destroyed.
class hold {
 public:
  hold() = default;
  hold(hold&&) = delete;
  ~hold() { let_go(); }

  template <subject S>
  void on(const S& s, typename S::device_type::stream_ref stream) const {
    s.launch(stream, [gate = gate_] { gate->wait([](std::uint32_t open) { return open != 0; }); });
  }
  void let_go() const noexcept { gate_->store(1); }

 private:
  std::shared_ptr<penstock::detail::waitable_counter> gate_ =
      std::make_shared<penstock::detail::waitable_counter>();
};

/// How many turns the other threads get to do what they must not. A turn is long where the machine
/// is busy: a caller that runs the checks many times gives few.
inline int turns = 1000;

/// Whether `happened` comes true although it must not: gives the other threads turns enough for
/// what nothing holds back. A right device can't fail by it, however slow.
inline bool happens(const std::atomic<bool>& happened) {
  for (int turn = 0; turn < turns; ++turn) {
    if (happened.load()) return true;
    std::this_thread::yield();
  }
  return happened.load();
}

/// Runs a call that must block on a thread of its own.
class blocked_call {
 public:
  template <class Device, class Call>
  blocked_call(const Device& device, Call call)
      : thread_([this, device, call] {
          device.make_current();
          call();
          returned_.store(true);
        }) {}
  blocked_call(blocked_call&&) = delete;
  ~blocked_call() { join(); }

  [[nodiscard]] bool returns() const { return happens(returned_); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] bool has_returned() const { return returned_.load(); }

 private:
  std::atomic<bool> returned_{false};
  std::thread thread_;
};

/// Memory of a device for the time of a check.
template <penstock::device Device>
class device_memory {
 public:
  device_memory(const Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(device.allocate(bytes))) {}
  device_memory(device_memory&&) = delete;
  ~device_memory() { device_.deallocate(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Device device_;
  std::size_t bytes_;
  std::byte* data_;
};

template <penstock::device Device>
class pinned_memory {
 public:
  pinned_memory(const Device& device, std::size_t bytes)
      : device_(device),
        bytes_(bytes),
        data_(static_cast<std::byte*>(device.allocate_pinned(bytes).data)) {}
  pinned_memory(pinned_memory&&) = delete;
  ~pinned_memory() { device_.deallocate_pinned(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::byte* begin() const { return data_; }
  [[nodiscard]] std::byte* end() const { return data_ + bytes_; }

 private:
  Device device_;
  std::size_t bytes_;
  std::byte* data_;
};

/// Bytes that no shift by one and no swap of two halves leaves as they are.
inline void fill_pattern(std::byte* data, std::size_t bytes, std::uint32_t seed) {
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 1664525U + 1013904223U;
    data[i] = static_cast<std::byte>(state >> 24);
  }
}

// ---- order within a stream ---------------------------------------------------------------------

template <subject S>
void work_of_one_stream_runs_in_order(const S& s) {
  const auto device = s.device();
  std::vector<int> seen;
  auto stream = device.make_stream();
  for (int i = 0; i < 1000; ++i) s.launch(stream, [&seen, i] { seen.push_back(i); });
  device.synchronize(typename S::device_type::stream_ref{stream});
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(seen == expected);
}

template <subject S>
void an_idle_stream_is_synchronized_at_once(const S& s) {
  const auto device = s.device();
  auto stream = device.make_stream();
  using ref = typename S::device_type::stream_ref;
  device.synchronize(ref{stream});
  device.synchronize(ref{stream});
  bool ran = false;
  s.launch(stream, [&ran] { ran = true; });
  device.synchronize(ref{stream});
  CHECK(ran);
}

template <subject S>
void two_streams_do_not_wait_for_each_other(const S& s) {
  const auto device = s.device();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  held.on(s, first);
  bool ran = false;
  s.launch(second, [&ran] { ran = true; });
  device.synchronize(typename S::device_type::stream_ref{second});  // a hang if it waited
  CHECK(ran);
  held.let_go();
}

// ---- copies ------------------------------------------------------------------------------------

template <subject S>
void copies_move_the_bytes_and_no_other(const S& s) {
  const auto device = s.device();
  constexpr std::size_t guard = 64;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{7}, std::size_t{255}, std::size_t{256}, std::size_t{257},
        std::size_t{4096}, std::size_t{4097}, (std::size_t{1} << 20) + 3, std::size_t{5} << 20}) {
    INFO(bytes << " bytes");
    const std::size_t all = bytes + 2 * guard;
    const pinned_memory before{device, all};
    const pinned_memory from{device, bytes};
    const pinned_memory after{device, all};
    const device_memory there{device, all};
    fill_pattern(before.data(), all, 1);
    fill_pattern(from.data(), bytes, 2);
    auto stream = device.make_stream();
    device.copy_async(there.data(), before.data(), all, stream);
    device.copy_async(there.data() + guard, from.data(), bytes, stream);
    device.copy_async(after.data(), there.data(), all, stream);
    device.synchronize(typename S::device_type::stream_ref{stream});
    CHECK(std::memcmp(after.data(), before.data(), guard) == 0);
    CHECK(std::memcmp(after.data() + guard, from.data(), bytes) == 0);
    CHECK(std::memcmp(after.data() + guard + bytes, before.data() + guard + bytes, guard) == 0);
  }
}

template <subject S>
void copies_of_one_stream_run_in_order(const S& s) {
  const auto device = s.device();
  constexpr std::size_t bytes = 100'000;
  constexpr std::size_t rounds = 20;
  const device_memory there{device, bytes};
  const pinned_memory from{device, bytes * rounds};
  const pinned_memory to{device, bytes * rounds};
  fill_pattern(from.data(), bytes * rounds, 3);
  auto stream = device.make_stream();
  for (std::size_t i = 0; i < rounds; ++i) {  // all through one piece of device memory
    device.copy_async(there.data(), from.data() + i * bytes, bytes, stream);
    device.copy_async(to.data() + i * bytes, there.data(), bytes, stream);
  }
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(std::memcmp(to.data(), from.data(), bytes * rounds) == 0);
}

template <subject S>
void a_copy_reads_its_source_in_stream_order(const S& s) {
  const auto device = s.device();
  constexpr std::size_t bytes = 5000;
  const device_memory there{device, bytes};
  const pinned_memory from{device, bytes};
  const pinned_memory to{device, bytes};
  std::fill(from.begin(), from.end(), std::byte{1});
  std::fill(to.begin(), to.end(), std::byte{0});
  std::size_t early = 99;
  auto stream = device.make_stream();
  s.launch(stream, [&] { std::fill(from.begin(), from.end(), std::byte{2}); });
  device.copy_async(there.data(), from.data(), bytes, stream);
  s.launch(stream, [&] { std::fill(from.begin(), from.end(), std::byte{3}); });
  s.launch(stream, [&] {
    early = static_cast<std::size_t>(std::count(to.begin(), to.end(), std::byte{2}));
  });
  device.copy_async(to.data(), there.data(), bytes, stream);
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(early == 0);
  CHECK(std::count(to.begin(), to.end(), std::byte{2}) == std::ptrdiff_t{bytes});
}

template <subject S>
void a_copy_waits_for_held_work_and_the_caller_does_not(const S& s) {
  const auto device = s.device();
  const device_memory there{device, 256};
  const pinned_memory from{device, 256};
  const pinned_memory to{device, 256};
  std::fill(from.begin(), from.end(), std::byte{1});
  std::fill(to.begin(), to.end(), std::byte{0});
  auto stream = device.make_stream();
  const hold held;
  std::atomic<bool> copied{false};
  held.on(s, stream);
  device.copy_async(there.data(), from.data(), 256, stream);
  device.copy_async(to.data(), there.data(), 256, stream);
  s.launch(stream, [&copied] { copied.store(true); });
  CHECK_FALSE(happens(copied));
  // The copy has not run, so what it copies is what the source holds now.
  std::fill(from.begin(), from.end(), std::byte{7});
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(copied.load());
  CHECK(std::count(to.begin(), to.end(), std::byte{7}) == 256);
}

// ---- events ------------------------------------------------------------------------------------

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
  CHECK(device.is_complete(event));  // what came after the record does not count
  device.record(event, stream);
  CHECK_FALSE(device.is_complete(event));
  device.record(event, other);  // to an idle stream
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
  device.synchronize(event);  // a hang if it waited
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

// ---- order between streams ---------------------------------------------------------------------

template <subject S>
void a_stream_waits_for_the_record_of_another(const S& s) {
  const auto device = s.device();
  auto event = device.make_event();
  auto first = device.make_stream();
  auto second = device.make_stream();
  const hold held;
  int message = 0;  // plain: the event orders it
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
  device.synchronize(typename S::device_type::stream_ref{second});  // a hang if it waited
  CHECK(ran);
  held.let_go();
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
  device.synchronize(before);  // a hang if it waited
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
  device.synchronize(typename S::device_type::stream_ref{second});  // a hang if it were bound late
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
  device.synchronize(typename S::device_type::stream_ref{second});  // a hang if it waited
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
  std::vector<int> seen;  // plain: the events order it
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
  // In no order that the waits were given in.
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
  std::vector<int> seen;  // plain: the events order it
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

// ---- lifetime ----------------------------------------------------------------------------------

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
  device.record(event, stream);  // and can be used again
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
  s.launch(before, [&seen] { seen.push_back(3); });  // a reference follows the work
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
  first = device.make_event();  // a moved-from event can be assigned to
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

// ---- memory ------------------------------------------------------------------------------------

inline constexpr std::array memory_sizes = {
    std::size_t{1},    std::size_t{255},  std::size_t{256},     std::size_t{257},
    std::size_t{4096}, std::size_t{4097}, std::size_t{1} << 20, (std::size_t{3} << 20) + 1};

template <subject S>
void device_memory_is_aligned_to_256_bytes_and_all_there(const S& s) {
  const auto device = s.device();
  for (const std::size_t bytes : memory_sizes) {
    INFO(bytes << " bytes");
    const device_memory one{device, bytes};
    const device_memory two{device, bytes};
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(two.data()) % 256 == 0);
    // Written full, one after the other: neither touches the other.
    const pinned_memory from{device, 2 * bytes};
    const pinned_memory to{device, 2 * bytes};
    fill_pattern(from.data(), 2 * bytes, 6);
    auto stream = device.make_stream();
    device.copy_async(one.data(), from.data(), bytes, stream);
    device.copy_async(two.data(), from.data() + bytes, bytes, stream);
    device.copy_async(to.data(), one.data(), bytes, stream);
    device.copy_async(to.data() + bytes, two.data(), bytes, stream);
    device.synchronize(typename S::device_type::stream_ref{stream});
    CHECK(std::memcmp(from.data(), to.data(), 2 * bytes) == 0);
  }
}

template <subject S>
void pinned_memory_is_aligned_to_256_bytes_and_the_hosts_to_write(const S& s) {
  const auto device = s.device();
  for (const std::size_t bytes : memory_sizes) {
    INFO(bytes << " bytes");
    const pinned_memory one{device, bytes};
    const pinned_memory two{device, bytes};
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(two.data()) % 256 == 0);
    std::memset(one.data(), 1, bytes);
    std::memset(two.data(), 2, bytes);
    CHECK(one.data()[bytes - 1] == std::byte{1});
    CHECK(two.data()[0] == std::byte{2});
  }
}

template <subject S>
void a_size_that_nobody_has_is_out_of_memory_and_says_how_much(const S& s) {
  const auto device = s.device();
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {most, most - 4094, most - 4096, most / 2, std::size_t{1} << 60}) {
    INFO(bytes << " bytes");
    const auto tells = [bytes](const penstock::out_of_memory& error) {
      return error.bytes() == bytes &&
             std::string{error.what()}.find(std::to_string(bytes)) != std::string::npos;
    };
    const auto matcher =
        Catch::Matchers::Predicate<penstock::out_of_memory>(tells, "says the number of bytes");
    CHECK_THROWS_MATCHES(device.allocate(bytes), penstock::out_of_memory, matcher);
    CHECK_THROWS_MATCHES(device.allocate_pinned(bytes), penstock::out_of_memory, matcher);
  }
  const device_memory still_works{device, 1};
}

// ---- threads -----------------------------------------------------------------------------------

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
  for (const auto& [thread, i] : seen) CHECK(next[thread]++ == i);  // each one's own order is kept
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
  // Not on the test's own thread: entering may change its floating-point mode.
  bool ran = false;
  std::thread{[&] { ran = enter_and_work(); }}.join();
  CHECK(ran);
}

// ---- all of it ---------------------------------------------------------------------------------

template <subject S>
struct check {
  const char* name;
  void (*run)(const S&);
};

/// Every check; a device that keeps the contract passes all of them.
template <subject S>
inline constexpr check<S> checks[] = {
    {"work of one stream runs in order", work_of_one_stream_runs_in_order<S>},
    {"an idle stream is synchronized at once", an_idle_stream_is_synchronized_at_once<S>},
    {"two streams do not wait for each other", two_streams_do_not_wait_for_each_other<S>},
    {"copies move the bytes and no other", copies_move_the_bytes_and_no_other<S>},
    {"copies of one stream run in order", copies_of_one_stream_run_in_order<S>},
    {"a copy reads its source in stream order", a_copy_reads_its_source_in_stream_order<S>},
    {"a copy waits for held work, and the caller does not",
     a_copy_waits_for_held_work_and_the_caller_does_not<S>},
    {"an event that was never recorded is complete",
     an_event_that_was_never_recorded_is_complete<S>},
    {"an event is complete when the work before its record is done",
     an_event_is_complete_when_the_work_before_its_record_is_done<S>},
    {"an event recorded on an idle stream completes by itself",
     an_event_recorded_on_an_idle_stream_completes_by_itself<S>},
    {"an event for streams alone may be waited for by a thread",
     an_event_for_streams_alone_may_be_waited_for_by_a_thread<S>},
    {"recording again moves the mark", recording_again_moves_the_mark<S>},
    {"synchronizing an event waits for what came before its record",
     synchronizing_an_event_waits_for_what_came_before_its_record<S>},
    {"synchronizing an event does not wait for what came after its record",
     synchronizing_an_event_does_not_wait_for_what_came_behind_its_record<S>},
    {"synchronizing a stream waits for all of its work",
     synchronizing_a_stream_waits_for_all_of_its_work<S>},
    {"a stream waits for the record of another", a_stream_waits_for_the_record_of_another<S>},
    {"a wait does not wait for what comes after the record",
     a_wait_does_not_wait_for_what_comes_behind_the_record<S>},
    {"work given before a wait does not wait", work_given_before_a_wait_does_not_wait<S>},
    {"a later record does not prolong a wait", a_later_record_does_not_prolong_a_wait<S>},
    {"a later record does not cut a wait short", a_later_record_does_not_cut_a_wait_short<S>},
    {"a wait before the first record waits for nothing",
     a_wait_before_the_first_record_waits_for_nothing<S>},
    {"a stream may wait for its own record", a_stream_may_wait_for_its_own_record<S>},
    {"order carries through a chain of three streams",
     order_carries_through_a_chain_of_three_streams<S>},
    {"a stream may wait for several others", a_stream_may_wait_for_several_others<S>},
    {"two streams take turns by two events", two_streams_take_turns_by_two_events<S>},
    {"a stream that is destroyed waits for its work",
     a_stream_that_is_destroyed_waits_for_its_work<S>},
    {"events outlive their streams", events_outlive_their_streams<S>},
    {"a wait outlives its event", a_wait_outlives_its_event<S>},
    {"a stream moves with its work", a_stream_moves_with_its_work<S>},
    {"assigning to a stream waits for the work it had",
     assigning_to_a_stream_waits_for_the_work_it_had<S>},
    {"an event moves with its record", an_event_moves_with_its_record<S>},
    {"a copy of the handle is the same device", a_copy_of_the_handle_is_the_same_device<S>},
    {"device memory is aligned to 256 bytes, and all there",
     device_memory_is_aligned_to_256_bytes_and_all_there<S>},
    {"pinned memory is aligned to 256 bytes, and the host's to write",
     pinned_memory_is_aligned_to_256_bytes_and_the_hosts_to_write<S>},
    {"an impossible size is out of memory, and named",
     a_size_that_nobody_has_is_out_of_memory_and_says_how_much<S>},
    {"a stream takes work from several threads", a_stream_takes_work_from_several_threads<S>},
    {"threads work on streams of their own", threads_work_on_streams_of_their_own<S>},
    {"a thread may enter more than once", a_thread_may_enter_more_than_once<S>},
};

/// Runs every check as a section of the calling test case.
template <subject S>
void run_all(const S& s) {
  for (const auto& one : checks<S>) {
    DYNAMIC_SECTION(one.name) { one.run(s); }
  }
}

}  // namespace contract
