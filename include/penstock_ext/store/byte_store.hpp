// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A read request for `out.size()` bytes of an object, starting at byte `offset`.
struct byte_range {
  std::string_view object;   ///< Object name in the store, such as a path or a bucket key.
  std::uint64_t offset = 0;  ///< Offset of the first byte in the object.
  std::span<std::byte> out;  ///< Destination, whose size is the length of the range.
};

/// A range that a reader expects to read.
struct upcoming_range {
  std::string_view object;   ///< Object name in the store.
  std::uint64_t offset = 0;  ///< Offset of the first byte in the object.
  std::uint64_t length = 0;  ///< Length in bytes.
};

/// Random access to the bytes of named objects, such as local files, HTTP or S3 objects, or a cache
/// of another store. A store has these members:
///
///     struct store {
///       std::uint64_t size_of(std::string_view object) const;  // in bytes
///       void read(const byte_range& range) const;              // reads the whole range or throws
///     };
///
/// Objects must not change while a store is in use. Several threads may call both members
/// concurrently. Each call blocks until it is complete. Errors derive from `file_error`, with the
/// object as the path and the range offset as the offset.
template <class S>
concept byte_store = requires(const S& store, std::string_view object, const byte_range& range) {
  { store.size_of(object) } -> std::convertible_to<std::uint64_t>;
  store.read(range);
};

/// Metadata of an object, available without reading the object.
struct object_state {
  std::uint64_t size = 0;    ///< Size in bytes.
  std::string version = {};  ///< Changes when the object changes. Empty if unknown.
};

/// A store that reports object versions, so that a cache never returns outdated bytes:
///
///     object_state state_of(std::string_view object) const;
///
/// `state_of` has the same thread safety and errors as `size_of`.
template <class S>
concept versioned_store = byte_store<S> && requires(const S& store, std::string_view object) {
  { store.state_of(object) } -> std::convertible_to<object_state>;
};

/// A store that can keep many reads of one caller in flight, because slow disks and networks need
/// many reads in flight to reach full throughput:
///
///     void read_many(std::span<const byte_range> ranges) const;  // reads all ranges or throws
///
/// After an exception, the content of all ranges is indeterminate, and the store no longer writes
/// to them.
template <class S>
concept batching_store =
    byte_store<S> &&
    requires(const S& store, std::span<const byte_range> ranges) { store.read_many(ranges); };

/// A store, such as a cache, that uses announcements of upcoming reads to improve performance:
///
///     void announce_reads(const void* who, std::span<const upcoming_range> ranges) const;
///     void retract(const void* who) const;
///     std::uint64_t plan_capacity() const;
///
/// `announce_reads` appends `ranges` to the announced reads. Each range is expected to be read
/// once. The call fetches nothing. `retract` withdraws all announcements of the caller identified
/// by the address `who`. Announcements are hints: an announced read may never happen, and a read
/// may happen without an announcement. `plan_capacity` returns the maximum total size in bytes of
/// useful announcements, or 0 if announcements have no effect.
///
/// Several threads may call these members concurrently, including during reads. The calls return
/// quickly and affect only performance.
template <class S>
concept planned_store = byte_store<S> && requires(const S& store, const void* who,
                                                  std::span<const upcoming_range> ranges) {
  store.announce_reads(who, ranges);
  store.retract(who);
  { store.plan_capacity() } -> std::convertible_to<std::uint64_t>;
};

/// Object bytes in memory that the store owns.
struct borrowed_bytes {
  std::span<const std::byte> bytes;   ///< Immutable bytes.
  std::shared_ptr<const void> owner;  ///< Keeps `bytes` valid, even if the store evicts them.
};

/// A store that lends bytes from its own memory, so that the caller need not copy them:
///
///     std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) const;
///
/// A successful call counts as a read of the whole range. If the call returns nothing, it has no
/// effect, and the caller must read the range. Several threads may call `try_borrow` concurrently.
/// The call returns quickly and performs no I/O.
template <class S>
concept borrowable_store = byte_store<S> && requires(const S& store, const upcoming_range& range) {
  { store.try_borrow(range) } -> std::convertible_to<std::optional<borrowed_bytes>>;
};

/// A store that can report that a range is nearby, so that no thread needs to prefetch it:
///
///     bool warm(const upcoming_range& range) const;
///
/// `warm` returns true if a read of `range` will not block for long. A range in memory is marked as
/// recently used. For a range on a local disk, the operating system starts a background read.
/// Several threads may call `warm` concurrently, including during reads. The call returns quickly,
/// and does not throw if a file is missing.
template <class S>
concept warmable_store = byte_store<S> && requires(const S& store, const upcoming_range& range) {
  { store.warm(range) } -> std::convertible_to<bool>;
};

// Errors of remote objects. `path()` returns the object URL without secret parts, and `offset()`
// returns the start of the requested range.

/// Thrown if the server has no such object (status 404 or 410).
class [[gnu::visibility("default")]] object_missing : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// Thrown if the server denies access (status 401 or 403). The message never contains credentials.
class [[gnu::visibility("default")]] access_denied : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// Thrown if all attempts failed, the deadline passed, or a retry cannot help. `found()` contains
/// the number of attempts and the result of the last attempt. A later read may succeed.
class [[gnu::visibility("default")]] store_unreachable : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// Thrown if a response does not match the request. Examples are a different range, a page without
/// range support, too many redirects, an invalid listing, and contradictory responses.
class [[gnu::visibility("default")]] bad_response : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// Thrown if the size, ETag or Last-Modified of an object differs from an earlier response or
/// listing. `expected()` and `found()` contain both values. The store keeps the first value, and a
/// new store accepts the current object.
class [[gnu::visibility("default")]] object_changed : public file_error {
 public:
  using file_error::file_error;
};

namespace detail {

/// A transparent hash, so that maps can look up a name without copying it.
struct name_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept {
    return std::hash<std::string_view>{}(name);
  }
};

/// Throws `file_truncated` if `range` extends beyond the `size` bytes of its object. `path()`
/// returns the object path for the message.
template <class Path>
void require_inside(const byte_range& range, std::uint64_t size, const Path& path) {
  if (range.offset <= size && range.out.size() <= size - range.offset) return;
  throw file_truncated(path(), range.offset,
                       std::to_string(range.out.size()) + " bytes starting there",
                       "an object of " + std::to_string(size) + " bytes");
}

/// A deleter for an object that owns threads, such as a `blob_read_ahead`. Does nothing in a child
/// created by fork(), because the threads do not exist there and cannot be joined.
struct delete_unless_forked {
  template <class T>
  void operator()(T* one) const noexcept {
    if (!one->is_in_child()) delete one;
  }
};

/// The member type for a store passed as `Store`: a reference for an lvalue, and a value for an
/// rvalue.
template <class Store>
using store_member =
    std::conditional_t<std::is_lvalue_reference_v<Store>, const std::remove_cvref_t<Store>&,
                       std::remove_cvref_t<Store>>;

/// Reads all `ranges`, concurrently if `store` is a `batching_store`, otherwise one after another.
template <byte_store Store>
void read_ranges(const Store& store, std::span<const byte_range> ranges) {
  if constexpr (batching_store<Store>) {
    store.read_many(ranges);
  } else {
    for (const byte_range& range : ranges) store.read(range);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
