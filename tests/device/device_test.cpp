// SPDX-License-Identifier: BSL-1.0
#include <penstock/device/device.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

struct stream {
  stream() = default;
  stream(stream&&) = default;
  stream& operator=(stream&&) = default;
};

struct stream_ref {
  stream_ref(stream&) {}  // NOLINT: implicit by intent
};

struct event {};

/// The minimal device, which has only the members that the concept requires. The members do
/// nothing.
struct min {
  using stream_type = stream;
  using stream_ref = ::stream_ref;
  using event_type = event;
  [[nodiscard]] stream_type make_stream() const { return {}; }
  [[nodiscard]] event_type make_event(ps::event_wait) const { return {}; }
  void require_usable(stream_ref) const {}
  void record(event_type&, stream_ref) const {}
  void wait(stream_ref, const event_type&) const {}
  void synchronize(stream_ref) const {}
  void synchronize(const event_type&) const {}
  [[nodiscard]] bool is_complete(const event_type&) const { return true; }
  void copy_async(void*, const void*, std::size_t, stream_ref) const {}
  [[nodiscard]] void* allocate(std::size_t) const { return nullptr; }
  void deallocate(void*, std::size_t) const noexcept {}
  [[nodiscard]] ps::pinned_block allocate_pinned(std::size_t) const { return {}; }
  void deallocate_pinned(void*, std::size_t) const noexcept {}
  void make_current() const {}
};
static_assert(ps::device<min>);

// Devices that each lack one requirement of the concept.
struct not_copyable : min {
  not_copyable() = default;
  not_copyable(not_copyable&&) = default;
  not_copyable& operator=(not_copyable&&) = default;
};
struct copyable_streams : min {
  struct stream_type {};
  struct stream_ref {
    stream_ref(stream_type&) {}  // NOLINT: implicit by intent
  };
  [[nodiscard]] stream_type make_stream() const { return {}; }
  void require_usable(stream_ref) const {}
  void record(event_type&, stream_ref) const {}
  void wait(stream_ref, const event_type&) const {}
  void synchronize(stream_ref) const {}
  void synchronize(const event_type&) const {}
  void copy_async(void*, const void*, std::size_t, stream_ref) const {}
};
struct deallocate_throws : min {
  void deallocate(void*, std::size_t) const {}
};
struct pinned_is_only_a_pointer : min {
  [[nodiscard]] void* allocate_pinned(std::size_t) const { return nullptr; }
};
struct no_threads : min {
  void make_current() const = delete;
};
struct record_is_not_const : min {
  void record(event_type&, stream_ref) {}
};
struct takes_any_stream : min {
  void require_usable(stream_ref) const = delete;
};
struct synchronizes_no_event : min {
  void synchronize(stream_ref) const {}
};
struct completion_is_a_number : min {
  [[nodiscard]] int is_complete(const event_type&) const { return 1; }
};
static_assert(!ps::device<not_copyable>);
static_assert(!ps::device<copyable_streams>);
static_assert(!ps::device<deallocate_throws>);
static_assert(!ps::device<pinned_is_only_a_pointer>);
static_assert(!ps::device<no_threads>);
static_assert(!ps::device<record_is_not_const>);
static_assert(!ps::device<takes_any_stream>);
static_assert(!ps::device<synchronizes_no_event>);
static_assert(!ps::device<completion_is_a_number>);
static_assert(!ps::device<int>);

}  // namespace

TEST_CASE("out_of_memory reports the kind of memory, the bytes and the reason", "[device]") {
  const ps::out_of_memory problem{"pinned", 1'234'567, "Cannot allocate memory"};
  CHECK(std::string{problem.what()} ==
        "pinned memory: 1234567 bytes could not be allocated: Cannot allocate memory");
  CHECK(problem.bytes() == 1'234'567);
  CHECK(std::is_base_of_v<ps::error, ps::out_of_memory>);
}

TEST_CASE("a default pinned block is empty and not pinned", "[device]") {
  const ps::pinned_block block;
  CHECK(block.data == nullptr);
  CHECK_FALSE(block.pinned);
}
