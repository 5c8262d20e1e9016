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

/// A range of an object and where its bytes go: `out.size()` bytes from byte `offset` on.
struct byte_range {
  std::string_view object;   ///< Names the object within its store: a path, a key of a bucket.
  std::uint64_t offset = 0;  ///< Where in it the range begins, in bytes.
  std::span<std::byte> out;  ///< As many bytes as are read.
};

/// A range that will be read.
struct upcoming_range {
  std::string_view object;   ///< the object's name in its store
  std::uint64_t offset = 0;  ///< of the first byte
  std::uint64_t length = 0;  ///< in bytes
};

/// Random access to the bytes of named objects: local files, objects over HTTP or S3, or those of
/// another store that are kept nearer. The contract:
///
///     struct store {
///       std::uint64_t size_of(std::string_view object) const;  // in bytes
///       void read(const byte_range& range) const;              // all of it, or it throws
///     };
///
/// Objects do not change while a store is in use. Both members are called from several threads at
/// once, and return when the bytes are there. They throw types derived from `file_error`, whose
/// path is the object and whose offset the range's.
template <class S>
concept byte_store = requires(const S& store, std::string_view object, const byte_range& range) {
  { store.size_of(object) } -> std::convertible_to<std::uint64_t>;
  store.read(range);
};

/// What a store knows of an object without reading it.
struct object_state {
  std::uint64_t size = 0;    ///< in bytes
  std::string version = {};  ///< another text when the object has changed; "": nothing tells that
};

/// A store that tells versions of an object apart, so that a cache takes no bytes of an older one:
///
///     object_state state_of(std::string_view object) const;
///
/// Called and throws as `size_of`.
template <class S>
concept versioned_store = byte_store<S> && requires(const S& store, std::string_view object) {
  { store.state_of(object) } -> std::convertible_to<object_state>;
};

/// A store that has many reads under way for one caller, which is where slow disks and networks
/// are fast:
///
///     void read_many(std::span<const byte_range> ranges) const;  // all of them, or it throws
///
/// After an exception the bytes of all ranges are indeterminate, and none is written to any more.
template <class S>
concept batching_store =
    byte_store<S> &&
    requires(const S& store, std::span<const byte_range> ranges) { store.read_many(ranges); };

/// A store that does better when it knows what will be read, as a cache does:
///
///     void announce_reads(const void* who, std::span<const upcoming_range> ranges) const;
///     void retract(const void* who) const;
///     std::uint64_t plan_capacity() const;
///
/// `announce_reads`: these ranges are read after all that were foreseen so far, each once; nothing
/// is to be fetched. `retract` takes back what the same `who`, an address of the caller's, foresaw.
/// What was foreseen may turn out wrong, and reads that nobody foresaw may come. `plan_capacity`:
/// how many bytes it is of use to announce; 0: none. Called from several threads at once, beside
/// reads; they return soon, and nothing but speed depends on them.
template <class S>
concept planned_store = byte_store<S> && requires(const S& store, const void* who,
                                                  std::span<const upcoming_range> ranges) {
  store.announce_reads(who, ranges);
  store.retract(who);
  { store.plan_capacity() } -> std::convertible_to<std::uint64_t>;
};

/// Bytes of an object where a store has them in memory.
struct borrowed_bytes {
  std::span<const std::byte> bytes;   ///< never changed
  std::shared_ptr<const void> owner;  ///< as long as it lives they stay, whatever the store does
};

/// A store that lends what it has in memory, so that it need not be copied:
///
///     std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) const;
///
/// Counts as a read of the whole range where it lends it, and does nothing where it does not: the
/// range is to be read then. Called from several threads at once, returns soon, and reads nothing.
template <class S>
concept borrowable_store = byte_store<S> && requires(const S& store, const upcoming_range& range) {
  { store.try_borrow(range) } -> std::convertible_to<std::optional<borrowed_bytes>>;
};

/// A store that may have ranges near, so that no thread need read them before they are asked for:
///
///     bool warm(const upcoming_range& range) const;
///
/// Whether a read of `range` will not wait for long: it is in memory, where it is kept as if it had
/// just been used, or on a disk of this machine, from which the system reads it meanwhile. Called
/// from several threads at once, beside reads; returns soon, and does not throw for want of a file.
template <class S>
concept warmable_store = byte_store<S> && requires(const S& store, const upcoming_range& range) {
  { store.warm(range) } -> std::convertible_to<bool>;
};

// What goes wrong with remote objects. `path()` is the object's URL, without what is secret in it;
// `offset()` is where the request began.

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

namespace detail {

/// By which tables of objects find a name without a copy of it.
struct name_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept {
    return std::hash<std::string_view>{}(name);
  }
};

/// Throws `file_truncated` for a range that reaches beyond the `size` bytes of its object, whose
/// path is `path()`.
template <class Path>
void require_inside(const byte_range& range, std::uint64_t size, const Path& path) {
  if (range.offset <= size && range.out.size() <= size - range.offset) return;
  throw file_truncated(path(), range.offset,
                       std::to_string(range.out.size()) + " bytes from there on",
                       "an object of " + std::to_string(size) + " bytes");
}

/// Deletes what has threads of its own, such as a `blob_read_ahead`, but not in a child made by
/// fork(): there are none to be joined.
struct delete_unless_forked {
  template <class T>
  void operator()(T* one) const noexcept {
    if (!one->is_in_child()) delete one;
  }
};

/// How a store is kept that was given as `Store`: an lvalue is referred to, an rvalue is moved in.
template <class Store>
using kept_store =
    std::conditional_t<std::is_lvalue_reference_v<Store>, const std::remove_cvref_t<Store>&,
                       std::remove_cvref_t<Store>>;

/// Reads all of `ranges`: side by side where `store` can, else one after the other.
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
