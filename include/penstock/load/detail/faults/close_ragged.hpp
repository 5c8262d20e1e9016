// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Takes the samples that are gone out of the ragged field `Field` of the batch in `slab`: the
/// values of those after them move up, and the offsets say where they are.
template <std::size_t Field, record_type Record>
void close_ragged(std::byte* slab, const batch_layout<Record>& layout,
                  std::span<const std::uint8_t> is_gone) noexcept {
  constexpr std::size_t width = sizeof(typename Record::template field_at<Field>::value_type);
  auto* const offsets = reinterpret_cast<std::int32_t*>(slab + layout.template offsets_at<Field>());
  std::byte* const values = slab + layout.template offset<Field>();
  std::size_t kept = 0;
  std::int32_t begin = offsets[0];  // kept apart: the entry may be overwritten by then
  for (std::size_t i = 0; i < is_gone.size(); ++i) {
    const std::int32_t end = offsets[i + 1];
    if (is_gone[i] == 0) {
      const auto bytes = [](std::int32_t count) { return static_cast<std::size_t>(count) * width; };
      std::memmove(values + bytes(offsets[kept]), values + bytes(begin), bytes(end - begin));
      offsets[kept + 1] = offsets[kept] + (end - begin);
      ++kept;
    }
    begin = end;
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
