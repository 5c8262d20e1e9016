// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

// What goes wrong with objects behind a network. `path()` is the object's URL, without what is
// secret in it; `offset()` is where the request began.

/// The server has no such object: 404 or 410.
class [[gnu::visibility("default")]] object_missing : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// The server refuses the object to these credentials: 401 or 403. Never says which they were.
class [[gnu::visibility("default")]] access_denied : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// All attempts failed, or the deadline passed, or no attempt makes sense; `found()` says how many
/// there were and how the last one ended. A later read may succeed.
class [[gnu::visibility("default")]] store_unreachable : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// The server answers something else than what was asked for: another range, a page without
/// ranges, too many redirects, a listing that is none.
class [[gnu::visibility("default")]] bad_response : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// The object has another size, ETag or Last-Modified than in an answer before; `expected()` and
/// `found()` name both. The store keeps to the first one: a new store takes the object as it is.
class [[gnu::visibility("default")]] object_changed : public file_error {
 public:
  using file_error::file_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
