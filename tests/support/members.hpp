// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <tuple>

/// Gives a test access to private members. An explicit template instantiation may name them:
///
///     struct in_queue {};
///     constexpr auto members_of(in_queue);
///     template struct opened<in_queue, &queue::head_, &queue::tail_>;
///
/// `members_of(in_queue{})` then returns a tuple of these member pointers. All three lines must be
/// in the global namespace.
template <class Tag, auto... Members>
struct opened {
  friend constexpr auto members_of(Tag) { return std::tuple{Members...}; }
};
