// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/table_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Looks at what a producer says before anyone relies on it. What memory holds is looked at by its
/// reader; how large it is can't be known: the interface does not say.
class arrow_check {
 public:
  /// `where` and `column` stand in messages, and must outlive this.
  arrow_check(std::string_view where, std::string_view column) noexcept
      : where_(where), column_(column) {}

  [[noreturn]] void refuse(std::string expected, std::string found) const {
    throw arrow_invalid(std::string{where_}, std::string{column_}, std::move(expected),
                        std::move(found),
                        "the producer of the Arrow data is wrong, or the structures were freed");
  }

  /// A type, and those that it is made of.
  void require_schema(const ArrowSchema& node, int depth = 0) const {
    constexpr int deepest = 64;
    if (depth > deepest) refuse("at most 64 types inside each other", "more");
    if (node.release == nullptr) refuse("a type", "one that was released");
    if (node.format == nullptr) refuse("a type's format", "a null pointer");
    if (node.n_children < 0) refuse("0 or more children", std::to_string(node.n_children));
    if (node.n_children > 0 && node.children == nullptr) {
      refuse(std::to_string(node.n_children) + " children", "a null pointer");
    }
    const arrow_kind kind = arrow_type_of(node.format).kind;
    const bool is_list = kind == arrow_kind::list || kind == arrow_kind::large_list ||
                         kind == arrow_kind::fixed_list;
    if (is_list && node.n_children != 1) {
      refuse("1 child of a list", std::to_string(node.n_children));
    }
    for (std::int64_t i = 0; i < node.n_children; ++i) {
      if (node.children[i] == nullptr) refuse("a child", "a null pointer");
      require_schema(*node.children[i], depth + 1);
    }
  }

  /// The values [`begin`, `begin + count`) of an array with these numbers of buffers and children:
  /// that it has them, and a place for what it says. Nulls may have no bitmap only where there are
  /// none.
  void require_array(const ArrowArray& array, std::int64_t buffers, std::int64_t children,
                     std::uint64_t begin, std::uint64_t count) const {
    if (array.release == nullptr) refuse("an array", "one that was released");
    if (array.length < 0) refuse("a length of 0 or more", std::to_string(array.length));
    if (array.offset < 0) refuse("an offset of 0 or more", std::to_string(array.offset));
    if (array.length > most || array.offset > most) {
      refuse("at most " + std::to_string(most) + " values",
             std::to_string(array.length) + " from " + std::to_string(array.offset) + " on");
    }
    const auto length = static_cast<std::uint64_t>(array.length);
    if (begin > length || count > length - begin) {
      refuse(std::to_string(count) + " values from " + std::to_string(begin) + " on",
             "an array of " + std::to_string(length));
    }
    if (array.null_count < -1 || array.null_count > array.length) {
      refuse("0 to " + std::to_string(array.length) + " nulls", std::to_string(array.null_count));
    }
    if (array.n_buffers != buffers) {
      refuse(std::to_string(buffers) + " buffers", std::to_string(array.n_buffers));
    }
    if (array.buffers == nullptr) refuse("buffers", "a null pointer");
    if (array.null_count > 0 && array.buffers[0] == nullptr) {
      refuse("a bitmap for " + std::to_string(array.null_count) + " nulls", "a null pointer");
    }
    if (array.dictionary != nullptr) {
      refuse("no dictionary, as the type says", "an array with a dictionary");
    }
    if (array.n_children != children) {
      refuse(std::to_string(children) + " children", std::to_string(array.n_children));
    }
    if (children > 0 && array.children == nullptr) refuse("children", "a null pointer");
    for (std::int64_t i = 0; i < children; ++i) {
      if (array.children[i] == nullptr) refuse("a child", "a null pointer");
    }
  }

  /// Buffer `index` of an array, of which something is to be read.
  [[nodiscard]] const std::byte* require_buffer(const ArrowArray& array, std::int64_t index) const {
    if (array.buffers[index] == nullptr) refuse("a buffer of values", "a null pointer");
    return static_cast<const std::byte*>(array.buffers[index]);
  }

  /// The offsets `begin` to `begin + count`, in number one more than `count`: 0 or more, and none
  /// below the one before it. Returns the last one.
  template <class Offset>
  std::uint64_t require_offsets(const std::byte* offsets, std::uint64_t begin,
                                std::uint64_t count) const {
    Offset before = offset_at<Offset>(offsets, begin);
    if (before < 0) refuse("an offset of 0 or more", std::to_string(before));
    for (std::uint64_t i = begin + 1; i <= begin + count; ++i) {
      const Offset next = offset_at<Offset>(offsets, i);
      if (next < before) {
        refuse("offset " + std::to_string(i) + " to be " + std::to_string(before) + " or more",
               std::to_string(next));
      }
      before = next;
    }
    return static_cast<std::uint64_t>(before);
  }

  /// The offset at place `index`, at any address.
  template <class Offset>
  [[nodiscard]] static Offset offset_at(const std::byte* offsets, std::uint64_t index) noexcept {
    Offset value = 0;
    std::memcpy(&value, offsets + index * sizeof value, sizeof value);
    return value;
  }

 private:
  // Sums of a few such numbers do not wrap; products with sizes are looked at where they are made.
  static constexpr std::int64_t most = std::int64_t{1} << 40;

  std::string_view where_;
  std::string_view column_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
