// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/core/extents.hpp>
#include <penstock/core/version.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A field name, usable as a template argument, as in `field<"image", float>` and
/// `get<"image">(b)`.
///
/// Stores a string literal of up to 32 characters, packed into four 64-bit words. The usual
/// `fixed_string<N>` with a char array is not used, because nvcc 13.0 rejects it in kernel
/// signatures, in template arguments of kernels, and in captures of extended lambdas.
struct name {
  /// The maximum number of characters.
  static constexpr std::size_t max_size = 32;

  std::uint64_t word0 = 0;  ///< characters 0 to 7, starting at the lowest byte
  std::uint64_t word1 = 0;  ///< characters 8 to 15
  std::uint64_t word2 = 0;  ///< characters 16 to 23
  std::uint64_t word3 = 0;  ///< characters 24 to 31

  /// Creates a name from a literal of 1 to `max_size` characters.
  template <std::size_t Size>
  consteval name(const char (&text)[Size]) {  // NOLINT: implicit, so that a literal is a name
    static_assert(Size >= 2, "penstock::name: a field's name must not be empty");
    static_assert(Size - 1 <= max_size,
                  "penstock::name: a field's name must have at most 32 characters");
    std::uint64_t words[4] = {};
    for (std::size_t i = 0; i + 1 < Size; ++i) {
      words[i / 8] |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i]))
                      << (8 * (i % 8));
    }
    word0 = words[0];
    word1 = words[1];
    word2 = words[2];
    word3 = words[3];
  }

  /// Creates a name from the packed words. nvcc passes template arguments to the host compiler in
  /// this form.
  constexpr name(std::uint64_t w0, std::uint64_t w1, std::uint64_t w2, std::uint64_t w3) noexcept
      : word0(w0), word1(w1), word2(w2), word3(w3) {}

  /// Returns the i-th character, or 0 beyond the end.
  [[nodiscard]] constexpr char operator[](std::size_t i) const noexcept {
    const std::uint64_t words[4] = {word0, word1, word2, word3};
    return static_cast<char>(static_cast<unsigned char>((words[i / 8] >> (8 * (i % 8))) & 0xffU));
  }

  /// Returns the number of characters.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    std::size_t count = 0;
    while (count < max_size && (*this)[count] != '\0') ++count;
    return count;
  }

  /// Returns the characters as a string for messages.
  [[nodiscard]] std::string str() const {
    std::string text(size(), '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = (*this)[i];
    return text;
  }

  friend constexpr bool operator==(const name&, const name&) = default;
};

/// The extent of a field whose length differs between samples, as in `field<"tokens",
/// std::uint16_t, ragged>`. A batch stores the values of its samples back to back (see
/// `ragged_view`).
inline constexpr std::size_t ragged = dyn - 1;

/// The bounds of a ragged field: the maximum sample length, and the capacity of a batch in values.
/// A dataset returns the bounds once:
///
///     record_extents<R> extents() const { return {{.longest = 2048}, {}}; }
///     record_extents<R> extents() const {
///       return {{.longest = 2048, .max_values_per_batch = 65536}, {}};
///     }
template <>
class extents<ragged> {
 public:
  /// The number of dimensions.
  static constexpr std::size_t rank = 1;
  /// The number of dimensions that are known only at run time.
  static constexpr std::size_t dynamic_rank = 1;

  /// The maximum length of a sample, at least 1. A longer sample is an error.
  std::size_t longest = 0;
  /// The capacity of a batch in values, at least `longest` and less than 2^31. 0 means `longest`
  /// times the batch size (see `loader_options::memory.max_values_per_batch`).
  std::size_t max_values_per_batch = 0;

  /// Returns `longest` for dimension 0, and 1 if `dimension >= rank`.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t operator[](
      std::size_t dimension) const noexcept {
    return dimension == 0 ? longest : 1;
  }
  /// Returns the maximum number of values in a sample.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t size() const noexcept { return longest; }

  /// Returns the capacity for a batch of `samples` samples in values, or the maximum `std::size_t`
  /// on overflow.
  [[nodiscard]] constexpr std::size_t size_of_batch(std::size_t samples) const noexcept {
    constexpr std::size_t max = (std::numeric_limits<std::size_t>::max)();
    const bool wraps = longest != 0 && samples > max / longest;
    const std::size_t all = wraps ? max : samples * longest;
    return max_values_per_batch == 0 || max_values_per_batch > all ? all : max_values_per_batch;
  }

  friend constexpr bool operator==(const extents&, const extents&) = default;
};

/// A named array in each sample, with an element type and extents, outermost first. A field without
/// extents is a scalar. Each extent is fixed or `dyn`. With `ragged` as the only extent, the length
/// may differ between samples.
///
///     field<"image", std::uint8_t, 28, 28>
///     field<"label", std::uint8_t>
///     field<"text", int, dyn>
template <name Name, class T, std::size_t... Extents>
struct field {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T> && !std::is_volatile_v<T> &&
                    !std::is_pointer_v<T> && !std::is_reference_v<T>,
                "penstock::field: a field's type must be a trivially copyable value, because a "
                "batch is copied to the device as bytes");
  static_assert(((Extents > 0) && ...), "penstock::field: an extent must not be 0");
  static_assert(sizeof...(Extents) == 1 || ((Extents != ragged) && ...),
                "penstock::field: a ragged field must have exactly one dimension: "
                "field<\"tokens\", T, ragged>");

  /// The field name.
  static constexpr name key = Name;
  using value_type = T;
  using extents_type = extents<Extents...>;
  /// True if the length of the field differs between samples.
  static constexpr bool is_ragged = sizeof...(Extents) == 1 && ((Extents == ragged) && ...);
};

namespace detail {

template <class>
inline constexpr bool is_field = false;
template <name Name, class T, std::size_t... Extents>
inline constexpr bool is_field<field<Name, T, Extents...>> = true;

template <class... Fields>
consteval bool names_differ() {
  constexpr name keys[] = {Fields::key...};
  for (std::size_t i = 0; i < sizeof...(Fields); ++i) {
    for (std::size_t j = i + 1; j < sizeof...(Fields); ++j) {
      if (keys[i] == keys[j]) return false;
    }
  }
  return true;
}

/// The type of `Field` with the element type T.
template <class Field, class T, class Lengths = typename Field::extents_type>
struct retyped_field;
template <class Field, class T, std::size_t... Extents>
struct retyped_field<Field, T, extents<Extents...>> {
  // Recreates the name, because nvcc 13.0 does not recognize a name taken from a type.
  using type = field<name{Field::key.word0, Field::key.word1, Field::key.word2, Field::key.word3},
                     T, Extents...>;
};

}  // namespace detail

/// A sample type, which is a list of fields with distinct names.
template <class... Fields>
struct record {
  static_assert(sizeof...(Fields) > 0, "penstock::record: a record needs at least one field");
  static_assert((detail::is_field<Fields> && ...), "penstock::record: list penstock::field types");
  static_assert(detail::names_differ<Fields...>(),
                "penstock::record: two fields have the same name");

  /// The number of fields.
  static constexpr std::size_t size = sizeof...(Fields);
  /// True if any extent is known only at run time.
  static constexpr bool has_dynamic_extents = ((Fields::extents_type::dynamic_rank > 0) || ...);
  /// The number of ragged fields.
  static constexpr std::size_t ragged_fields =
      (std::size_t{0} + ... + (Fields::is_ragged ? 1U : 0U));

  /// The field at index `Index`.
  template <std::size_t Index>
  using field_at = std::tuple_element_t<Index, std::tuple<Fields...>>;

  /// Returns the index of the field named `Name`, or `size` if no field has this name.
  template <name Name>
  static consteval std::size_t index_of() {
    constexpr name keys[] = {Fields::key...};
    for (std::size_t i = 0; i < size; ++i) {
      if (keys[i] == Name) return i;
    }
    return size;
  }

  /// Returns the number of ragged fields before index `Index`. If field `Index` is ragged, this
  /// number is its index among the ragged fields.
  template <std::size_t Index>
  static consteval std::size_t ragged_index() {
    constexpr bool is_ragged[] = {Fields::is_ragged...};
    std::size_t count = 0;
    // With `<`, nvcc warns about index 0.
    for (std::size_t i = 0; i != Index; ++i) count += is_ragged[i] ? 1U : 0U;
    return count;
  }

  /// Returns the index of the last ragged field, or 0 if no field is ragged.
  static consteval std::size_t last_ragged() {
    constexpr bool is_ragged[] = {Fields::is_ragged...};
    std::size_t last = 0;
    for (std::size_t i = 0; i < size; ++i) last = is_ragged[i] ? i : last;
    return last;
  }

  /// True if the record has a field named `Name`.
  template <name Name>
  static constexpr bool has_field = index_of<Name>() < size;
};

namespace detail {

template <class>
inline constexpr bool is_record = false;
template <class... Fields>
inline constexpr bool is_record<record<Fields...>> = true;

}  // namespace detail

/// Satisfied only by `record<field<...>...>`.
template <class T>
concept record_type = detail::is_record<T>;

namespace detail {

/// Calls `each` with the index of every ragged field in the record, as a template argument.
template <record_type Record, class Each>
constexpr void for_each_ragged([[maybe_unused]] const Each& each) {
  const auto call = [&]<std::size_t Index>() {
    if constexpr (Record::template field_at<Index>::is_ragged) each.template operator()<Index>();
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (call.template operator()<Is>(), ...);
  }(std::make_index_sequence<Record::size>{});
}

}  // namespace detail

/// The lengths of ragged fields in one sample, in field order.
template <record_type Record>
using sample_lengths = std::array<std::uint64_t, Record::ragged_fields>;

/// The extents of all record fields, in field order. A dataset with dynamic extents returns them
/// from `extents()`:
///
///     using R = record<field<"image", float, 3, dyn, dyn>, field<"label", int>>;
///     record_extents<R> extents() const { return {{height_, width_}, {}}; }
template <class Record>
class record_extents;

/// Specialization for the fields of a record.
template <class... Fields>
class record_extents<record<Fields...>> {
 public:
  constexpr record_extents() noexcept
    requires(!record<Fields...>::has_dynamic_extents)
  = default;

  /// Creates the list from one `extents` per field.
  constexpr record_extents(  // NOLINT: implicit, so that braces suffice
      typename Fields::extents_type... lengths) noexcept
      : lengths_(lengths...) {}

  /// Returns the extents of the field at index `Index`.
  template <std::size_t Index>
  [[nodiscard]] constexpr auto at() const noexcept {
    return std::get<Index>(lengths_);
  }

  friend constexpr bool operator==(const record_extents&, const record_extents&) = default;

 private:
  std::tuple<typename Fields::extents_type...> lengths_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
