// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <tuple>

/// Gives a test access to private members. The language permits naming them in an explicit
/// instantiation:
///
///     struct in_queue {};
///     constexpr auto members_of(in_queue);
///     template struct opened<in_queue, &queue::head_, &queue::tail_>;
///
/// Then `members_of(in_queue{})` is a tuple of those pointers to members. All three lines must be
/// in the global namespace.
template <class Tag, auto... Members>
struct opened {
  friend constexpr auto members_of(Tag) { return std::tuple{Members...}; }
};
