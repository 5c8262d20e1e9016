// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where the fields of a batch lie in its slab, without the type of its record: what is done to a
/// batch as bytes asks this in place of a `batch_layout`.
class slot_layout {
 public:
  /// A field of the record.
  struct field {
    std::size_t offset = 0;        ///< of its samples in the slab; of a ragged one's values
    std::size_t sample_bytes = 0;  ///< of one sample; of a ragged one of one value
    bool is_ragged = false;
    std::size_t offsets_at = 0;  ///< of the offsets of a ragged field
  };

  /// That of `layout`.
  template <record_type Record>
  slot_layout(const batch_layout<Record>& layout)  // NOLINT: implicit, it says the same
      : bytes_(layout.bytes()), sample_bytes_(layout.sample_bytes()) {
    fields_.reserve(Record::size);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (add<Is>(layout), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// The bytes of the slab.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The bytes of one sample, all fields; of the longest one.
  [[nodiscard]] std::size_t sample_bytes() const noexcept { return sample_bytes_; }
  /// The bytes of one sample without its ragged values.
  [[nodiscard]] std::size_t fixed_bytes() const noexcept { return fixed_bytes_; }
  /// The fields, in the record's order.
  [[nodiscard]] const std::vector<field>& fields() const noexcept { return fields_; }

  /// The bytes of the ragged values of the `samples` samples in `slab`.
  [[nodiscard]] std::uint64_t value_bytes(const std::byte* slab,
                                          std::size_t samples) const noexcept {
    std::uint64_t bytes = 0;
    for (const field& one : fields_) {
      if (!one.is_ragged) continue;
      const auto* const begins = reinterpret_cast<const std::int32_t*>(slab + one.offsets_at);
      bytes += static_cast<std::uint64_t>(begins[samples] - begins[0]) * one.sample_bytes;
    }
    return bytes;
  }

 private:
  template <std::size_t Index, record_type Record>
  void add(const batch_layout<Record>& layout) {
    using type = typename Record::template field_at<Index>;
    field one{.offset = layout.template offset<Index>()};
    if constexpr (type::is_ragged) {
      one.is_ragged = true;
      one.sample_bytes = sizeof(typename type::value_type);
      one.offsets_at = layout.template offsets_at<Index>();
    } else {
      one.sample_bytes = layout.template sample_bytes<Index>();
      fixed_bytes_ += one.sample_bytes;
    }
    fields_.push_back(one);
  }

  std::size_t bytes_;
  std::size_t sample_bytes_;
  std::size_t fixed_bytes_ = 0;
  std::vector<field> fields_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
