// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The bytes of one sample without its ragged values.
template <record_type Record>
[[nodiscard]] std::size_t fixed_bytes(const batch_layout<Record>& layout) noexcept {
  std::size_t bytes = 0;
  const auto add = [&]<std::size_t Index>() {
    if constexpr (!Record::template field_at<Index>::is_ragged) {
      bytes += layout.template sample_bytes<Index>();
    }
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (add.template operator()<Is>(), ...);
  }(std::make_index_sequence<Record::size>{});
  return bytes;
}

/// The bytes of the ragged values in a batch, which the caller must be able to read.
template <record_type Record, class Byte>
[[nodiscard]] std::uint64_t value_bytes(const basic_batch_view<Record, Byte>& part) noexcept {
  std::uint64_t bytes = 0;
  const auto add = [&]<std::size_t Index>() {
    using field = typename Record::template field_at<Index>;
    if constexpr (field::is_ragged) {
      bytes += part.template at<Index>().values().size() * sizeof(typename field::value_type);
    }
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (add.template operator()<Is>(), ...);
  }(std::make_index_sequence<Record::size>{});
  return bytes;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
