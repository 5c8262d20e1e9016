// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How numpy calls an element of type T, without the byte order: "f4", "u1", "b1".
template <class T>
[[nodiscard]] std::string npy_type_of() {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8,
                "penstock: an npy file holds bool, integers, float or double");
  const char kind = std::same_as<T, bool>    ? 'b'
                    : std::floating_point<T> ? 'f'
                    : std::is_signed_v<T>    ? 'i'
                                             : 'u';
  return kind + std::to_string(sizeof(T));
}

/// What stands before the elements of an npy file: the magic, a version, and a text that is a
/// dictionary of Python's. The text is read by this parser, and nothing in it is ever evaluated.
struct npy_header {
  std::string descr;                   ///< numpy's name of the elements' type, with its byte order
  std::vector<std::uint64_t> lengths;  ///< of the dimensions, outermost first
  std::uint64_t bytes = 0;             ///< of all elements
  std::uint64_t data = 0;              ///< where the elements start
  std::uint64_t descr_at = 0;          ///< where the text says the type, and
  std::uint64_t shape_at = 0;          ///< the dimensions

  /// Whether the elements are of another byte order than this machine's.
  [[nodiscard]] bool is_swapped() const noexcept {
    const char other = std::endian::native == std::endian::little ? '>' : '<';
    return descr.front() == other;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
