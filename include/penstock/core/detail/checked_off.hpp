// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

#if !PENSTOCK_CHECKED

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/support/host_device_begin.hpp>

/// @file
/// Empty versions of everything in `checked_on.hpp`: views and leases grow by no byte, and calls
/// compile to nothing.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

inline constexpr bool checked = false;

inline void mark_stream_thread() noexcept {}

class lease_tag {
 public:
  PENSTOCK_HOST_DEVICE constexpr void require_alive() const noexcept {}
  PENSTOCK_HOST_DEVICE constexpr void require_data() const noexcept {}
  PENSTOCK_HOST_DEVICE constexpr void note_address() const noexcept {}
};

inline void poison(void*, std::size_t) noexcept {}
inline void forbid(const void*, std::size_t) noexcept {}
inline void allow(const void*, std::size_t) noexcept {}

class ended_lease {
 public:
  template <class Stream, class Then>
  constexpr void behind(const Stream&, const Then&) const noexcept {}
};

class lease_guard {
 public:
  constexpr lease_guard() = default;
  constexpr lease_guard(std::uint64_t, std::uint64_t) noexcept {}
  template <class Stream>
  constexpr lease_guard(std::uint64_t, std::uint64_t, const Stream&) noexcept {}
  constexpr void use() const noexcept {}
  [[nodiscard]] constexpr lease_tag tag() const noexcept { return {}; }
  [[nodiscard]] constexpr bool was_seen_in_body() const noexcept { return false; }
  constexpr void fail(const char*) const noexcept {}
  constexpr void end() noexcept {}
  [[nodiscard]] constexpr ended_lease end_behind(std::size_t) noexcept { return {}; }
};

class call_gate {
 public:
  constexpr call_gate() = default;
  constexpr explicit call_gate(std::in_place_t) noexcept {}
  struct inside {};
  [[nodiscard]] constexpr inside enter() const noexcept { return {}; }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>

#endif
