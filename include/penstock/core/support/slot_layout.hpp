// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Writes the words that describe `Field` to `words`, starting at `end` (see `record_words`).
template <class Field, std::size_t Count>
constexpr void add_field_words(std::array<std::uint64_t, Count>& words, std::size_t& end) noexcept {
  using value = typename Field::value_type;
  const std::uint64_t kind = (std::is_floating_point_v<value> ? 1U : 0U) +
                             (std::is_integral_v<value> ? 2U : 0U) +
                             (std::is_signed_v<value> ? 4U : 0U);
  // Does not loop over a list, because nvcc 13.0 passes such a loop to the host compiler
  // incorrectly.
  words[end++] = Field::key.word0;
  words[end++] = Field::key.word1;
  words[end++] = Field::key.word2;
  words[end++] = Field::key.word3;
  words[end++] = std::uint64_t{sizeof(value)} << 3U | kind;
  words[end++] = Field::extents_type::rank;
  for (std::size_t d = 0; d != Field::extents_type::rank; ++d) {
    words[end++] = fixed_extent<typename Field::extents_type>(d);
  }
}

/// Computes `record_words`.
template <record_type Record, std::size_t... Is>
[[nodiscard]] constexpr auto words_of_record(std::index_sequence<Is...>) noexcept {
  constexpr std::size_t words_of_field = 6;
  constexpr std::size_t ranks =
      (std::size_t{0} + ... + Record::template field_at<Is>::extents_type::rank);
  std::array<std::uint64_t, Record::size * words_of_field + ranks> words{};
  std::size_t end = 0;
  (add_field_words<typename Record::template field_at<Is>>(words, end), ...);
  return words;
}

/// The field names, value types and extents of `Record`, encoded as integers. Different records
/// have different encodings, unless they differ only in a class or an enumeration of the same size.
/// Unlike addresses and `std::type_info`, the encoding is also the same in libraries with hidden
/// symbols and without RTTI.
template <record_type Record>
inline constexpr auto record_words =
    words_of_record<Record>(std::make_index_sequence<Record::size>{});

/// The layout of a slab without the record type, for code that treats a batch as bytes. Also stores
/// the typed layout for code that knows the record.
class slot_layout {
 public:
  /// A field in the record.
  struct field {
    std::size_t offset = 0;  ///< offset of the samples or the ragged values
    /// Size of a sample in bytes, or of a value if the field is ragged.
    std::size_t sample_bytes = 0;
    bool is_ragged = false;
    /// Position of the offset array in the slab, if the field is ragged.
    std::size_t offsets_at = 0;
  };

  /// Copies `layout` without its type.
  template <record_type Record>
  slot_layout(const batch_layout<Record>& layout)  // NOLINT: implicit, the same layout
      : typed_(std::make_shared<const batch_layout<Record>>(layout)),
        record_(record_words<Record>),
        bytes_(layout.bytes()),
        batch_size_(layout.batch_size()),
        sample_bytes_(layout.sample_bytes()) {
    fields_.reserve(Record::size);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (add<Is>(layout), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// Returns the typed layout passed to the constructor. `Record` must be its record.
  template <record_type Record>
  [[nodiscard]] const batch_layout<Record>& as() const noexcept {
    return *static_cast<const batch_layout<Record>*>(typed_.get());
  }

  /// Returns true if `Record` is the record of the layout (see `record_words`).
  template <record_type Record>
  [[nodiscard]] bool is_of() const noexcept {
    constexpr auto& words = record_words<Record>;
    return std::equal(record_.begin(), record_.end(), words.begin(), words.end());
  }

  /// Returns the size of the slab in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns the number of samples in a full batch.
  [[nodiscard]] std::size_t batch_size() const noexcept { return batch_size_; }
  /// Returns the sample size in bytes (see `batch_layout::sample_bytes`).
  [[nodiscard]] std::size_t sample_bytes() const noexcept { return sample_bytes_; }
  /// Returns the size of a sample in bytes, without the ragged values.
  [[nodiscard]] std::size_t fixed_bytes() const noexcept { return fixed_bytes_; }
  /// Returns true if the record has a ragged field.
  [[nodiscard]] bool is_ragged() const noexcept { return fields_[last_].is_ragged; }
  /// Returns the fields, in field order.
  [[nodiscard]] const std::vector<field>& fields() const noexcept { return fields_; }

  /// Returns the number of bytes used by the `samples` samples in `slab`, like
  /// `batch_layout::used_bytes`.
  [[nodiscard]] std::size_t used_bytes(std::size_t samples, const std::byte* slab) const noexcept {
    const field& last = fields_[last_];
    if (!last.is_ragged) return last.offset + samples * last.sample_bytes;
    const auto* const begins = reinterpret_cast<const std::int32_t*>(slab + last.offsets_at);
    const std::size_t used = static_cast<std::uint32_t>(begins[samples]);
    return (std::min)(last.offset + used * last.sample_bytes, bytes_);
  }

  /// Returns the number of bytes used by ragged values for the `samples` samples in `slab`.
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
  std::span<const std::uint64_t> record_;  // `record_words` of the record
  std::size_t bytes_;
  std::size_t batch_size_;
  std::size_t sample_bytes_;
  std::size_t fixed_bytes_ = 0;
  std::size_t last_ = 0;  // index of the field that ends last in the slab
  std::vector<field> fields_;
};

/// Returns a layout of `Record` for slots with this layout.
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
