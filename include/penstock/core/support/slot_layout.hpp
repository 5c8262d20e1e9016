// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where the fields of a batch lie in its slab, without the type of its record: what is done to a
/// batch as bytes asks this in place of a `batch_layout`, which it keeps for those that know the
/// type.
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
      : typed_(std::make_shared<const batch_layout<Record>>(layout)),
        bytes_(layout.bytes()),
        batch_size_(layout.batch_size()),
        sample_bytes_(layout.sample_bytes()) {
    fields_.reserve(Record::size);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (add<Is>(layout), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// The layout that this one was made of. `Record` must be its record.
  template <record_type Record>
  [[nodiscard]] const batch_layout<Record>& as() const noexcept {
    return *static_cast<const batch_layout<Record>*>(typed_.get());
  }

  /// The bytes of the slab.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The samples of a full batch.
  [[nodiscard]] std::size_t batch_size() const noexcept { return batch_size_; }
  /// The bytes of one sample, all fields; of the longest one.
  [[nodiscard]] std::size_t sample_bytes() const noexcept { return sample_bytes_; }
  /// The bytes of one sample without its ragged values.
  [[nodiscard]] std::size_t fixed_bytes() const noexcept { return fixed_bytes_; }
  /// Whether a field is ragged.
  [[nodiscard]] bool is_ragged() const noexcept { return fields_[last_].is_ragged; }
  /// The fields, in the record's order.
  [[nodiscard]] const std::vector<field>& fields() const noexcept { return fields_; }

  /// The bytes of the slab up to the end of what the first `samples` samples in `slab` use, as
  /// `batch_layout::used_bytes`.
  [[nodiscard]] std::size_t used_bytes(std::size_t samples, const std::byte* slab) const noexcept {
    const field& last = fields_[last_];
    if (!last.is_ragged) return last.offset + samples * last.sample_bytes;
    const auto* const begins = reinterpret_cast<const std::int32_t*>(slab + last.offsets_at);
    const std::size_t used = static_cast<std::uint32_t>(begins[samples]);
    return (std::min)(last.offset + used * last.sample_bytes, bytes_);
  }

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
    if (one.is_ragged || fields_.empty() || !fields_[last_].is_ragged) last_ = Index;
    fields_.push_back(one);
  }

  std::shared_ptr<const void> typed_;
  std::size_t bytes_;
  std::size_t batch_size_;
  std::size_t sample_bytes_;
  std::size_t fixed_bytes_ = 0;
  std::size_t last_ = 0;  // the field that ends last in the slab
  std::vector<field> fields_;
};

/// The layout of `Record` that slots of this layout have.
template <record_type Record>
[[nodiscard]] const batch_layout<Record>& layout_as(const slot_layout& layout) noexcept {
  return layout.as<Record>();
}
template <record_type Record>
[[nodiscard]] const batch_layout<Record>& layout_as(const batch_layout<Record>& layout) noexcept {
  return layout;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
