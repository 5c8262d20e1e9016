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

/// A read request: `out.size()` bytes of an object, starting at byte `offset`.
struct byte_range {
  std::string_view object;   ///< Name within the store, such as a path or a bucket key.
  std::uint64_t offset = 0;  ///< Position of the first byte within the object.
  std::span<std::byte> out;  ///< Receives the bytes. The size is the length of the range.
};

/// A range that will be read later.
struct upcoming_range {
  std::string_view object;   ///< The object's name within its store.
  std::uint64_t offset = 0;  ///< Position of the first byte within the object.
  std::uint64_t length = 0;  ///< Length in bytes.
};

/// Random access to the bytes of named objects: local files, objects over HTTP or S3, or a cache of
/// another store. A store has these members:
///
///     struct store {
///       std::uint64_t size_of(std::string_view object) const;  // in bytes
///       void read(const byte_range& range) const;              // all of it, or it throws
///     };
///
/// Objects must not change while a store is in use. Several threads may call both members
/// concurrently. Each call blocks until it has its result. Errors derive from `file_error`, with
/// the object as path and the offset of the range as offset.
template <class S>
concept byte_store = requires(const S& store, std::string_view object, const byte_range& range) {
  { store.size_of(object) } -> std::convertible_to<std::uint64_t>;
  store.read(range);
};

/// Metadata of an object, available without reading the object.
struct object_state {
  std::uint64_t size = 0;    ///< Size in bytes.
  std::string version = {};  ///< Differs after the object has changed. Empty if unknown.
};

/// A store that reports the version of an object, so that a cache never serves bytes of an older
/// version:
///
///     object_state state_of(std::string_view object) const;
///
/// `state_of` follows the same rules as `size_of`: several threads may call it concurrently, and it
/// throws the same errors.
template <class S>
concept versioned_store = byte_store<S> && requires(const S& store, std::string_view object) {
  { store.state_of(object) } -> std::convertible_to<object_state>;
};

/// A store that keeps many reads of one caller in flight. Slow disks and networks reach their full
/// throughput only with many reads in flight:
///
///     void read_many(std::span<const byte_range> ranges) const;  // all of them, or it throws
///
/// `read_many` reads all ranges or throws. If it throws, the contents of all ranges are
/// indeterminate, and the store no longer writes to any of them.
template <class S>
concept batching_store =
    byte_store<S> &&
    requires(const S& store, std::span<const byte_range> ranges) { store.read_many(ranges); };

/// A store, such as a cache, that performs better if it knows the upcoming reads:
///
///     void announce_reads(const void* who, std::span<const upcoming_range> ranges) const;
///     void retract(const void* who) const;
///     std::uint64_t plan_capacity() const;
///
/// `announce_reads` appends `ranges` to the reads announced so far. Each range will be read once.
/// The call fetches nothing. `retract` withdraws everything that the same `who` has announced;
/// `who` is an address that identifies the caller. Announcements are hints: an announced read may
/// never happen, and a read may happen without an announcement. `plan_capacity` returns how many
/// bytes are worth announcing, or 0 if announcements have no effect.
///
/// Several threads may call these members concurrently, also during reads. The calls return
/// quickly, and they affect only performance.
template <class S>
concept planned_store = byte_store<S> && requires(const S& store, const void* who,
                                                  std::span<const upcoming_range> ranges) {
  store.announce_reads(who, ranges);
  store.retract(who);
  { store.plan_capacity() } -> std::convertible_to<std::uint64_t>;
};

/// Bytes of an object, in memory that the store owns.
struct borrowed_bytes {
  std::span<const std::byte> bytes;   ///< The bytes, which never change.
  std::shared_ptr<const void> owner;  ///< Keeps `bytes` valid, even if the store drops them.
};

/// A store that lends bytes that it holds in memory, so that the caller need not copy them:
///
///     std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) const;
///
/// If the store lends the range, the call counts as a read of the whole range. If it returns
/// nothing, the call has no effect, and the caller reads the range instead. Several threads may
/// call `try_borrow` concurrently. The call returns quickly and reads nothing.
template <class S>
concept borrowable_store = byte_store<S> && requires(const S& store, const upcoming_range& range) {
  { store.try_borrow(range) } -> std::convertible_to<std::optional<borrowed_bytes>>;
};

/// A store that may have ranges nearby, in which case no thread has to read them in advance:
///
///     bool warm(const upcoming_range& range) const;
///
/// `warm` returns true if a read of `range` will not block for long. If the range is in memory, the
/// store treats it as just used. If the range is on a local disk, the operating system starts to
/// read it in the background. Several threads may call `warm` concurrently, also during reads. The
/// call returns quickly, and does not throw if a file is missing.
template <class S>
concept warmable_store = byte_store<S> && requires(const S& store, const upcoming_range& range) {
  { store.warm(range) } -> std::convertible_to<bool>;
};

// Errors of remote objects. `path()` is the object's URL without its secret parts, and `offset()`
// is the position where the request began.

/// The server has no such object: status 404 or 410.
class [[gnu::visibility("default")]] object_missing : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// The server denies access with these credentials: status 401 or 403. The message never contains
/// the credentials.
class [[gnu::visibility("default")]] access_denied : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// All attempts failed, the deadline passed, or a retry cannot help. `found()` contains the number
/// of attempts and how the last attempt ended. A later read may succeed.
class [[gnu::visibility("default")]] store_unreachable : public file_unreadable {
 public:
  using file_unreadable::file_unreadable;
};

/// The server's response does not match the request. For example, a different range, a page without
/// range support, too many redirects, an invalid listing, or two contradictory responses.
class [[gnu::visibility("default")]] bad_response : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// The size, ETag or Last-Modified of the object differs from an earlier response or listing.
/// `expected()` and `found()` contain both values. The store keeps the first value; a new store
/// accepts the current object.
class [[gnu::visibility("default")]] object_changed : public file_error {
 public:
  using file_error::file_error;
};

namespace detail {

/// Transparent hash, so that tables of objects find a name without copying it.
struct name_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept {
    return std::hash<std::string_view>{}(name);
  }
};

/// Throws `file_truncated` if `range` extends beyond the `size` bytes of its object. `path()`
/// returns the object's path for the message.
template <class Path>
void require_inside(const byte_range& range, std::uint64_t size, const Path& path) {
  if (range.offset <= size && range.out.size() <= size - range.offset) return;
  throw file_truncated(path(), range.offset,
                       std::to_string(range.out.size()) + " bytes starting there",
                       "an object of " + std::to_string(size) + " bytes");
}

/// Deleter for an object that owns threads, such as a `blob_read_ahead`. Does nothing in a child
/// made by fork(), because the threads do not exist there and cannot be joined.
struct delete_unless_forked {
  template <class T>
  void operator()(T* one) const noexcept {
    if (!one->is_in_child()) delete one;
  }
};

/// The member type that holds a store passed as `Store`. References an lvalue store, and moves an
/// rvalue store in.
template <class Store>
using kept_store =
    std::conditional_t<std::is_lvalue_reference_v<Store>, const std::remove_cvref_t<Store>&,
                       std::remove_cvref_t<Store>>;

/// Reads all of `ranges`: concurrently if `store` is a `batching_store`, otherwise one after the
/// other.
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
