// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/table/arrow_abi.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Owns one of Arrow's structures and calls its `release` once: `arrow_schema`, `arrow_array` and
/// `arrow_stream`. Move-only. Holds the structure itself: the specification lets it be copied to
/// another place, as long as one copy is left.
template <class Struct>
class arrow_owner {
 public:
  /// Owns nothing. `address()` is then what a producer writes to.
  arrow_owner() noexcept = default;
  /// Takes what `*given` owns, and marks it as released: its place, which the caller keeps, may go
  /// then. Owns nothing where `given` is null or was released.
  explicit arrow_owner(Struct* given) noexcept {
    if (given == nullptr) return;
    value_ = *given;
    given->release = nullptr;
  }
  arrow_owner(arrow_owner&& other) noexcept : arrow_owner(&other.value_) {}
  /// Releases what it owned.
  arrow_owner& operator=(arrow_owner&& other) noexcept {
    arrow_owner taken{std::move(other)};
    std::swap(value_, taken.value_);
    return *this;
  }
  ~arrow_owner() {
    if (value_.release != nullptr) value_.release(&value_);
  }

  /// Whether it owns something.
  [[nodiscard]] explicit operator bool() const noexcept { return value_.release != nullptr; }
  /// The structure, to read.
  [[nodiscard]] const Struct& operator*() const noexcept { return value_; }
  /// Its members, to read.
  [[nodiscard]] const Struct* operator->() const noexcept { return &value_; }
  /// The structure's address, for calls of the C interface. What is written there is owned; so
  /// nothing may be owned before.
  [[nodiscard]] Struct* address() noexcept { return &value_; }
  /// Gives the structure away: the caller releases it.
  [[nodiscard]] Struct release() noexcept {
    const Struct given = value_;
    value_.release = nullptr;
    return given;
  }

 private:
  Struct value_{};
};

/// Owns a type.
using arrow_schema = arrow_owner<ArrowSchema>;
/// Owns values: a batch of rows.
using arrow_array = arrow_owner<ArrowArray>;
/// Owns a stream of batches.
using arrow_stream = arrow_owner<ArrowArrayStream>;

static_assert(!std::is_copy_constructible_v<arrow_array>);
static_assert(std::is_nothrow_move_assignable_v<arrow_array>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
