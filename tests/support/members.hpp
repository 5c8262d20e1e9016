// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <tuple>

/// Opens private members to a test, by what the language allows an explicit instantiation:
///
///     struct in_queue {};
///     constexpr auto members_of(in_queue);
///     template struct opened<in_queue, &queue::head_, &queue::tail_>;
///
/// `members_of(in_queue{})` is a tuple of those pointers to members then. All three lines stand in
/// no namespace.
template <class Tag, auto... Members>
struct opened {
  friend constexpr auto members_of(Tag) { return std::tuple{Members...}; }
};
