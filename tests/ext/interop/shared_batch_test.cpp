// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/interop/shared_batch.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/lease.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/device_batch.hpp>

#include "support/catch.hpp"
#include "support/freeing_device.hpp"
#include "support/happens.hpp"
#include "support/last_words.hpp"

namespace ps = penstock;

namespace {

using number_pair = ps::record<ps::field<"a", std::uint8_t, 3>, ps::field<"b", std::uint32_t>>;
const ps::batch_layout<number_pair> ten{{{}, {}}, 10};

using host_ring = ps::detail::host_slots<freeing_device>;
using host_lease = ps::host_batch<number_pair, freeing_device>;
using device_ring = ps::detail::device_slots<freeing_device>;
using device_lease = ps::device_batch<number_pair, freeing_device>;

using shared_on_host = ps::shared_batch<host_lease>;
using shared_on_device = ps::shared_batch<device_lease>;
static_assert(std::copyable<shared_on_host> && std::copyable<shared_on_device>);
static_assert(std::is_nothrow_copy_constructible_v<shared_on_device> &&
              std::is_nothrow_move_constructible_v<shared_on_device>);
static_assert(!ps::batch_lease<shared_on_host>, "what is shared is not shared again");

std::shared_ptr<host_ring> host_slots_of(const freeing_device& device, std::size_t count) {
  return std::make_shared<host_ring>(device, ten, count, ps::detail::memory_kind::pinned);
}

host_lease filled(const std::shared_ptr<host_ring>& slots, std::uint32_t value) {
  const auto slot = slots->acquire();
  REQUIRE(slot.has_value());
  host_lease batch{slots, *slot, {.epoch = 3, .batch = value, .size = 10, .valid_size = 9}};
  for (auto& number : ps::get<"b">(batch).flat()) number = value;
  return batch;
}

std::shared_ptr<device_ring> device_slots_of(const freeing_device& device, std::size_t depth) {
  return ps::detail::shared_by_leases<device_ring, ps::cpu_stream_ref>(
      device, ten, device.inline_stream(), depth, depth);
}

/// A lease of a user-defined batch in pageable memory. The lease has no views, and all its values
/// equal `value`.
struct plain_lease {
  using record_type = number_pair;

  plain_lease() = default;
  plain_lease(plain_lease&&) = default;
  plain_lease& operator=(plain_lease&&) = default;
  explicit plain_lease(std::uint32_t value) : bytes(std::make_shared<std::byte[]>(ten.bytes())) {
    const ps::batch_view<number_pair> all{bytes.get(), ten, 0, 10};
    for (auto& number : ps::get<"b">(all).flat()) number = value;
    shape = {.epoch = 4, .batch = value, .size = 10, .valid_size = 10};
  }
  explicit operator bool() const { return bytes != nullptr; }
  [[nodiscard]] const std::byte* data() const { return bytes.get(); }
  [[nodiscard]] const ps::batch_info& info() const { return shape; }
  void release_after(ps::cpu_stream_ref stream) {
    stream.launch([kept = std::move(bytes)] {});  // the copy may still read the bytes
  }

  std::shared_ptr<std::byte[]> bytes;
  ps::batch_info shape;
};
static_assert(ps::batch_lease<plain_lease>);

device_lease copied(const std::shared_ptr<device_ring>& slots, std::size_t slot,
                    std::uint32_t value, ps::cpu_stream_ref stream) {
  plain_lease from{value};
  slots->copy_in(slot, from);
  slots->wait_for_copy(slot, stream);
  return device_lease{slots, slot, stream};
}

bool says_no_batch(const std::function<void()>& what) {
  return last_words(what).find("holds no batch") != std::string::npos;
}

/// A device whose `wait` lets other threads run first while the calling thread holds the lock of
/// the batch.
struct asking_device : freeing_device {
  std::shared_ptr<std::function<void()>> meanwhile = std::make_shared<std::function<void()>>();

  void wait(stream_ref stream, const event_type& event) const {
    if (const auto once = std::exchange(*meanwhile, {})) once();
    freeing_device::wait(stream, event);
  }
};
static_assert(ps::device<asking_device>);

}  // namespace

TEST_CASE("a shared lease answers a repeated query while another thread holds its lock",
          "[interop]") {
  using ring = ps::detail::device_slots<asking_device>;
  const asking_device device;
  const auto slots = ps::detail::shared_by_leases<ring, ps::cpu_stream_ref>(
      device, ten, device.inline_stream(), std::size_t{1}, std::size_t{1});
  plain_lease from{7};
  slots->copy_in(0, from);
  slots->wait_for_copy(0, device.inline_stream());
  auto stream = device.make_stream();
  auto batch =
      ps::share(ps::device_batch<number_pair, asking_device>{slots, 0, device.inline_stream()});
  bool is_same = false;
  *device.meanwhile = [&] {
    std::thread other{[&, own = batch]() mutable {
      is_same = own.device().seen == device.seen && own.data() == slots->data(0) &&
                own.slot() == 0 && own.stream() == device.inline_stream() &&
                ps::get<"b">(own)(9) == 7;
      own = {};  // does not release the batch, because another copy still holds the lock
    }};
    other.join();
  };
  batch.also_used_on(stream);
  CHECK(is_same);
  std::thread last{[own = std::exchange(batch, {})]() mutable { own = {}; }};
  last.join();
  CHECK(slots->is_released(0));
}

TEST_CASE("a shared lease describes its batch and provides views like its lease", "[interop]") {
  const auto slots = host_slots_of({}, 2);
  auto batch = ps::share(filled(slots, 7));
  static_assert(std::is_same_v<decltype(batch), shared_on_host>);
  CHECK(batch);
  CHECK(batch.epoch() == 3);
  CHECK(batch.number() == 7);
  CHECK(batch.size() == 10);
  CHECK(batch.valid() == 9);
  CHECK(batch.info().batch == 7);
  CHECK(batch.data() == slots->data(static_cast<std::uint32_t>(batch.slot())));
  CHECK(batch.view().size() == 10);
  CHECK(batch.pinned() == slots->pinned());
  CHECK(batch.device().seen != nullptr);
  ps::get<"b">(batch)[4] = 44;
  const auto& constant = batch;
  CHECK(constant.get<"b">()(4) == 44);
  CHECK(constant.data() == batch.data());
  static_assert(std::is_same_v<decltype(ps::get<"b">(batch).data()), std::uint32_t*>);
  static_assert(std::is_same_v<decltype(ps::get<"b">(constant).data()), const std::uint32_t*>);
  static_assert(std::is_same_v<decltype(constant.view()), ps::const_batch_view<number_pair>>);
}

TEST_CASE("the last copy of a shared lease releases its slot once",
          "[interop][promise:race-free-3]") {
  const auto slots = host_slots_of({}, 1);
  auto first = ps::share(filled(slots, 1));
  {
    const auto second = first;
    CHECK(second.data() == first.data());
    auto third = std::move(first);
    CHECK_FALSE(first);
    third = {};
    CHECK_FALSE(slots->try_acquire().has_value());
    CHECK(ps::get<"b">(second)(9) == 1);
  }
  CHECK(slots->leased() == 0);
  CHECK(slots->try_acquire().has_value());
  CHECK_FALSE(slots->try_acquire().has_value());
}

TEST_CASE("a producer's own lease, which has no views, is shared by its memory", "[interop]") {
  const auto batch = ps::share(plain_lease{5});
  const auto copy = batch;
  CHECK(copy.number() == 5);
  CHECK(copy.data() == batch.data());
  const ps::const_batch_view<number_pair> all{copy.data(), ten, 0, copy.size()};
  CHECK(ps::get<"b">(all)(9) == 5);
}

TEST_CASE("an empty shared handle names its last batch and ends the program when used",
          "[interop]") {
  const auto slots = host_slots_of({}, 2);
  shared_on_host held = ps::share(filled(slots, 7));
  const auto kept = std::move(held);
  CHECK(held.number() == 7);
  CHECK(held.size() == 10);
  auto gone = filled(slots, 8);
  { const auto taken = std::move(gone); }
  shared_on_host of_an_empty_lease = ps::share(std::move(gone));
  CHECK(of_an_empty_lease.number() == 8);
  shared_on_host never;
  CHECK(never.size() == 0);
  for (auto* empty : {&held, &of_an_empty_lease, &never}) {
    CHECK_FALSE(*empty);
    CHECK(says_no_batch([&] { (void)empty->data(); }));
    CHECK(says_no_batch([&] { (void)std::as_const(*empty).data(); }));
    CHECK(says_no_batch([&] { (void)ps::get<"b">(*empty); }));
    CHECK(says_no_batch([&] { (void)empty->slot(); }));
    CHECK(says_no_batch([&] { (void)empty->pinned(); }));
  }
  const shared_on_device never_on_device;
  const auto inline_stream = freeing_device{}.inline_stream();
  CHECK(says_no_batch([&] { never_on_device.also_used_on(inline_stream); }));
  CHECK(says_no_batch([&] { (void)never_on_device.stream(); }));
}

TEST_CASE("the end of a shared device lease waits for each stream that a thread has named",
          "[interop][promise:race-free-3]") {
  const freeing_device device;
  const auto slots = device_slots_of(device, 1);
  constexpr std::size_t users = 4;
  ps::detail::waitable_counter gate;
  std::vector<ps::cpu_stream> streams;
  for (std::size_t u = 0; u <= users; ++u) streams.push_back(device.make_stream());
  std::vector<std::uint32_t> seen(users + 1);

  auto batch = ps::share(copied(slots, 0, 1, streams[users]));
  CHECK(batch.stream() == ps::cpu_stream_ref{streams[users]});
  const auto read_on = [&](const shared_on_device& own, std::size_t user) {
    const auto view = ps::get<"b">(own.used_on(streams[user]));
    streams[user].launch([&gate, &to = seen[user], view] {
      gate.wait([](std::uint32_t open) { return open != 0; });
      to = view(9);
    });
  };
  std::vector<std::thread> threads;
  for (std::size_t user = 0; user < users; ++user) {
    threads.emplace_back([&, user, own = batch] {
      own.also_used_on(streams[user]);
      own.also_used_on(streams[user]);  // the stream counts only once
      read_on(own, user);
    });
  }
  read_on(batch, users);
  for (auto& thread : threads) thread.join();
  threads.clear();
  CHECK_FALSE(slots->is_released(0));
  batch = {};
  CHECK(slots->is_released(0));
  plain_lease next{2};
  slots->copy_in(0, next);
  CHECK_FALSE(test::happens([&] { return device.copies() > 1; }));
  gate.store(1);
  slots->wait_for_copy(0, device.inline_stream());
  CHECK(seen == std::vector<std::uint32_t>(users + 1, 1));
  slots->discard(0);
}

TEST_CASE("copies of a shared lease are used and dropped by threads while the loop continues",
          "[interop]") {
  const freeing_device device;
  const auto slots = device_slots_of(device, 2);
  constexpr std::uint32_t rounds = 100;
  constexpr std::size_t users = 3;
  std::vector<ps::cpu_stream> streams;
  for (std::size_t u = 0; u < users; ++u) streams.push_back(device.make_stream());
  std::atomic<std::uint32_t> wrong{0};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::size_t slot = round % 2;
    auto batch = ps::share(copied(slots, slot, round, device.inline_stream()));
    std::vector<std::thread> threads;
    for (std::size_t user = 0; user < users; ++user) {
      threads.emplace_back([&, user, round, own = batch]() mutable {
        const auto copy = own;
        copy.also_used_on(streams[user]);
        streams[user].launch([&wrong, round, view = ps::get<"b">(copy)] {
          for (std::size_t i = 0; i < view.size(); ++i) wrong += view(i) == round ? 0U : 1U;
        });
        own = {};
      });
    }
    batch = {};
    for (auto& thread : threads) thread.join();
    REQUIRE(slots->is_released(slot));
  }
  for (auto& stream : streams) stream.synchronize();
  CHECK(wrong == 0);
}

TEST_CASE("writes before the last copy is dropped are visible to the thread that fills the slot",
          "[interop][promise:race-free-3]") {
  const auto slots = host_slots_of({}, 1);
  std::uint64_t message = 0;  // not atomic, because the end of the lease orders the accesses
  for (std::uint32_t round = 1; round <= 200; ++round) {
    auto batch = ps::share(filled(slots, round));
    std::thread one{[own = batch]() mutable {
      (void)ps::get<"b">(own)(0);
      own = {};
    }};
    std::thread other{[&message, round, own = std::move(batch)]() mutable {
      message = round;
      own = {};
    }};
    const auto slot = slots->acquire();  // waits for both threads
    const auto seen = message;
    one.join();
    other.join();
    REQUIRE(seen == round);
    slots->release(*slot);
  }
}
