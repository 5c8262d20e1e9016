// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/indexed/detail/record_fields.hpp>
#include <penstock_ext/indexed/sample_index.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of `tf_examples`.
struct tf_examples_options {
  /// Options of the index of each file.
  index_options index = {};
  /// If true, compares the CRC-32C of each record that is read.
  bool verify = true;
};

namespace detail {

/// Returns the masked CRC-32C that TFRecord files contain. Source: tensorflow/tsl,
/// lib/hash/crc32c.h.
[[nodiscard]] inline std::uint32_t masked_crc(std::span<const std::byte> bytes) noexcept {
  crc32c_checksum checksum;
  checksum.add(bytes);
  return ((checksum.value() >> 15U) | (checksum.value() << 17U)) + 0xa282ead8U;
}

/// The records of a TFRecord file as samples. A record is a u64 length, the masked CRC-32C of these
/// 8 bytes, the data, and the masked CRC-32C of the data, little-endian. The index has the position
/// of every record.
struct tf_record_format {
  static constexpr std::uint64_t step = 1;
  static constexpr std::size_t head = 12;
  static constexpr std::size_t around = 16;  // bytes of a record without its data

  [[nodiscard]] static std::uint64_t number() noexcept { return 2; }

  /// Finds the records of `data`, one after the other. Throws `file_truncated`, `file_corrupt` if
  /// the checksum of a length differs, and `file_format_error` for a known other format.
  template <class Report>
  [[nodiscard]] static found_samples scan(const mapped_file& data, std::size_t,
                                          const Report& report) {
    const auto next = [&](std::uint64_t& at) {
      const auto rest = data.bytes().subspan(static_cast<std::size_t>(at));
      if (rest.size() >= head && little_endian<4>(&rest[8]) != masked_crc(rest.first(8))) {
        throw file_corrupt(data.path(), at + 8, "the CRC-32C of the length of a record",
                           "a different checksum: the file is damaged or is not a TFRecord file");
      }
      const std::uint64_t size = rest.size() < around ? 0 : little_endian<8>(rest.data());
      if (rest.size() < around || size > rest.size() - around) {
        throw file_truncated(data.path(), data.bytes().size(),
                             "a whole record from byte " + std::to_string(at),
                             "the end of the file");
      }
      at += around + size;
      return size;
    };
    return scan_records(data, "TFRecord", 0, next, report);
  }
};

/// A field of an encoded protobuf message.
struct wire_field {
  std::uint64_t number = 0;               ///< field number
  unsigned type = 0;                      ///< wire type: 0, 1, 2 or 5
  std::uint64_t value = 0;                ///< value of type 0
  std::span<const std::byte> bytes = {};  ///< value of the other types
};

/// Reads the fields of an encoded protobuf message in a file. Source: "Encoding" of the Protocol
/// Buffers documentation. Throws `file_format_error` if the message is damaged.
class wire_reader {
 public:
  wire_reader(const mapped_file& file, std::span<const std::byte> message)
      : file_(&file), rest_(message) {}

  /// Returns false at the end of the message. Otherwise reads a field.
  bool next(wire_field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field.number = tag >> 3U;
    field.type = static_cast<unsigned>(tag & 7U);
    const bool is_known = field.type <= 2 || field.type == 5;
    if (!is_known || field.number == 0 || tag >> 32U != 0) {
      fail("a field of a protobuf message", "the tag " + std::to_string(tag));
    }
    if (field.type == 0) {
      field.value = varint();
    } else {
      const std::uint64_t size = field.type == 2 ? varint() : field.type == 1 ? 8 : 4;
      if (size > rest_.size()) {
        fail(std::to_string(size) + " bytes of a field", "the end of the message");
      }
      field.bytes = rest_.first(static_cast<std::size_t>(size));
      rest_ = rest_.subspan(field.bytes.size());
    }
    return true;
  }
  /// Reads a number of 7 bits in each byte, the lowest first.
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(rest_.front());
      if (shift == 63 && byte > 1) break;
      rest_ = rest_.subspan(1);
      value |= (byte & 0x7fU) << shift;
      if (byte < 0x80U) return value;
    }
    fail("a varint of at most 64 bits", rest_.empty() ? "the end of the message" : "a longer one");
  }
  [[nodiscard]] bool is_done() const noexcept { return rest_.empty(); }
  /// Throws `file_format_error` at the current position.
  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    throw file_format_error(file_->path(),
                            static_cast<std::uint64_t>(rest_.data() - file_->bytes().data()),
                            expected, found + ": the record is not a tf.Example, or is damaged");
  }

 private:
  const mapped_file* file_;
  std::span<const std::byte> rest_;
};

/// The list of a feature: `kind` is 1 for bytes, 2 for float, 3 for int64, and 0 if the feature is
/// empty.
struct tf_feature {
  std::uint64_t kind = 0;
  std::span<const std::byte> list = {};
  bool is_there = false;
};

/// The records of one file of `tf_examples`. Reading is thread-safe.
template <record_type Record>
class tf_examples_file : public indexed_file<tf_record_format> {
 public:
  using record_type = Record;

  tf_examples_file(mapped_file data, sample_index index,
                   const std::optional<record_extents<Record>>& extents, bool verify)
      : indexed_file<tf_record_format>(std::move(data), std::move(index)),
        extents_(given_or_bounded<Record>(extents,
                                          [this]<class Field>() {
                                            const bool is_float =
                                                std::is_same_v<typename Field::value_type, float>;
                                            return longest() / (is_float ? sizeof(float) : 1);
                                          })),
        verify_(verify) {}

  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return extents_; }
  [[nodiscard]] sample_lengths<Record> lengths(std::uint64_t index) const
    requires(Record::ragged_fields > 0)
  {
    sample_lengths<Record> all{};
    try {
      const features found = parsed(record(index));
      for_each_ragged<Record>([&]<std::size_t Index>() {
        using value_type = typename Record::template field_at<Index>::value_type;
        all[Record::template ragged_index<Index>()] =
            decode<Index>(found[Index], std::span<value_type>{});
      });
    } catch (const file_format_error&) {
      if (verify_) require_checksum(index);  // damage explains more than its consequences
      throw;
    }
    return all;
  }
  void read(std::uint64_t index, sample<Record> out) const {
    if (verify_) require_checksum(index);
    const features found = parsed(record(index));
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (read_field<Is>(index, found[Is], out), ...);
    }(std::make_index_sequence<Record::size>{});
  }

 private:
  using features = std::array<tf_feature, Record::size>;

  template <std::size_t Index>
  [[nodiscard]] static const std::string& name() {
    return field_names<Record>()[Index];
  }

  [[nodiscard]] std::span<const std::byte> record(std::uint64_t index) const {
    const auto all = group(index);
    constexpr std::size_t around = tf_record_format::around;
    if (all.size() < around || little_endian<8>(all.data()) != all.size() - around) {
      fail_to_find(index);
    }
    return all.subspan(tf_record_format::head, all.size() - around);
  }
  [[nodiscard]] std::uint64_t place(std::span<const std::byte> bytes) const noexcept {
    return static_cast<std::uint64_t>(bytes.data() - data().bytes().data());
  }
  void require_checksum(std::uint64_t index) const {
    const auto bytes = record(index);
    if (little_endian<4>(bytes.data() + bytes.size()) == masked_crc(bytes)) return;
    throw file_corrupt(data().path(), place(bytes), "the CRC-32C that follows the record",
                       "a different checksum: record " + std::to_string(index) + " is damaged");
  }

  // Finds the features of all fields.
  [[nodiscard]] features parsed(std::span<const std::byte> bytes) const {
    features found;
    wire_field field;
    for (wire_reader example{data(), bytes}; example.next(field);) {
      if (!is_list(example, field, 1)) continue;
      for (wire_reader all{data(), field.bytes}; all.next(field);) {
        if (is_list(all, field, 1)) add(field.bytes, found);
      }
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i].is_there) continue;
      throw file_format_error(data().path(), place(bytes),
                              "a feature \"" + field_names<Record>()[i] + '"',
                              "no feature of this name");
    }
    return found;
  }
  // Returns true for a message in field `number`.
  [[nodiscard]] static bool is_list(const wire_reader& reader, const wire_field& field,
                                    std::uint64_t number) {
    if (field.number != number) return false;
    if (field.type != 2) reader.fail("a message", "wire type " + std::to_string(field.type));
    return true;
  }
  // Adds an entry of the map of features.
  void add(std::span<const std::byte> entry, features& found) const {
    std::string_view key;
    tf_feature feature{.list = entry.first(0), .is_there = true};
    int values = 0;
    wire_field field;
    for (wire_reader reader{data(), entry}; reader.next(field);) {
      if (is_list(reader, field, 1)) {
        key = {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()};
      } else if (is_list(reader, field, 2)) {
        if (++values > 1) reader.fail("one value of a feature", "another");
        wire_field list;
        for (wire_reader one{data(), field.bytes}; one.next(list);) {
          if (list.number > 3) continue;
          if (feature.kind != 0) one.fail("one list of a feature", "another");
          if (is_list(one, list, list.number)) feature = {list.number, list.bytes, true};
        }
      }
    }
    const auto& names = field_names<Record>();
    const auto wanted = std::ranges::find(names, key);
    if (wanted == names.end()) return;
    tf_feature& one = found[static_cast<std::size_t>(wanted - names.begin())];
    if (one.is_there) {
      throw file_format_error(data().path(), place(entry), "feature \"" + *wanted + "\" once",
                              "it again");
    }
    one = feature;
  }

  // Writes the values of a feature that have room in `out`, and returns their number.
  template <std::size_t Index, class T>
  [[nodiscard]] std::size_t decode(const tf_feature& feature, std::span<T> out) const {
    static_assert(std::same_as<T, float> || std::same_as<T, std::byte> ||
                      (std::integral<T> && !std::same_as<T, bool>),
                  "penstock::tf_examples: the values of a field are float, integers or std::byte");
    constexpr std::uint64_t usual = sizeof(T) == 1 ? 1 : std::same_as<T, float> ? 2 : 3;
    const bool fits =
        feature.kind == 0 || feature.kind == usual || (feature.kind == 3 && std::integral<T>);
    if (!fits) {
      constexpr const char* kinds[] = {"", "a bytes_list", "a float_list", "an int64_list"};
      throw element_type_mismatch(data().path(), place(feature.list),
                                  std::string{kinds[usual]} + " for field \"" + name<Index>() + '"',
                                  kinds[feature.kind]);
    }
    std::size_t count = 0;
    const auto copy = [&](std::span<const std::byte> bytes) {
      if (count < out.size()) {
        const auto room = std::as_writable_bytes(out.subspan(count));
        std::copy_n(bytes.begin(), (std::min)(bytes.size(), room.size()), room.begin());
      }
      count += bytes.size() / sizeof(T);
    };
    const auto add_integer = [&](const wire_reader& reader, std::uint64_t bits) {
      if constexpr (std::integral<T>) {
        const auto value = static_cast<std::int64_t>(bits);
        const auto kept = static_cast<T>(value);
        if (static_cast<std::int64_t>(kept) != value || (std::unsigned_integral<T> && value < 0)) {
          reader.fail("a value that fits field \"" + name<Index>() + '"', std::to_string(value));
        }
        if (count < out.size()) out[count] = kept;
      }
      ++count;
    };
    wire_field field;
    std::size_t values = 0;
    for (wire_reader list{data(), feature.list}; list.next(field);) {
      if (field.number != 1) continue;
      if (feature.kind == 3 && field.type == 0) {
        add_integer(list, field.value);
      } else if (feature.kind == 3 && field.type == 2) {
        for (wire_reader packed{data(), field.bytes}; !packed.is_done();) {
          add_integer(packed, packed.varint());
        }
      } else if (feature.kind == 2 && (field.type == 5 || field.type == 2)) {
        if (field.bytes.size() % 4 != 0) list.fail("floats of 4 bytes", "a part of a float");
        copy(field.bytes);
      } else if (feature.kind == 1 && field.type == 2) {
        if (++values > 1) list.fail("one value of bytes for \"" + name<Index>() + '"', "another");
        copy(field.bytes);
      } else {
        list.fail("values of a feature", "wire type " + std::to_string(field.type));
      }
    }
    return count;
  }

  template <std::size_t Index>
  void read_field(std::uint64_t index, const tf_feature& feature, sample<Record> out) const {
    using field = typename Record::template field_at<Index>;
    using value_type = typename field::value_type;
    std::size_t size = 1;
    if constexpr (field::extents_type::rank > 0) size = out.template at<Index>().size();
    const std::span room{reinterpret_cast<value_type*>(out.address(Index)), size};
    const std::size_t found = decode<Index>(feature, room);
    if (found == size) return;
    if (field::is_ragged) fail_to_find(index);  // changed since its length was read
    throw dimension_mismatch(data().path(), place(feature.list),
                             std::to_string(size) + " values for field \"" + name<Index>() + '"',
                             std::to_string(found));
  }

  record_extents<Record> extents_;
  bool verify_;
};

}  // namespace detail

/// A dataset of the `tf.Example` messages in TFRecord files, without TensorFlow or protobuf. Each
/// field takes the feature of its name:
///
///     using image_record = ps::record<ps::field<"image", std::uint8_t, ps::ragged>,  // bytes_list
///                                ps::field<"box", float, 4>,                    // float_list
///                                ps::field<"label", std::int64_t>>;             // int64_list
///     const ps::tf_examples<image_record> images{ps::glob("train-*.tfrecord")};
///
/// A field of `float` takes a `float_list`. A field of 1-byte values takes a `bytes_list` with one
/// value. All integers also take an `int64_list` whose values fit. A field without `ragged` needs
/// as many values as its extents have. Other features are ignored. A feature without a list has no
/// values.
///
/// The first use of a file reads the length of each record, and keeps an index of 8 bytes for each
/// record in a file (see `index_options`). Files are memory-mapped and must not change while they
/// are open. Truncating an open file kills the process. Movable, not copyable. Reading is
/// thread-safe, and throws
///
/// - `file_corrupt` if the checksum of a record differs;
/// - `file_format_error` if a record is not a `tf.Example`, lacks a feature or has it twice, or if
///   an integer does not fit;
/// - `element_type_mismatch` if a list has another type than the field;
/// - `dimension_mismatch` if a list has another number of values than the field.
template <penstock::record_type Record>
class tf_examples
    : public detail::concat_dataset<detail::part_list<detail::tf_examples_file<Record>>> {
 public:
  /// Opens the files at `paths`. Bounds each ragged field by the size of the longest record; set
  /// `.memory.max_values_per_batch` if that is too much. Throws the same errors as `text_lines`.
  /// Throws `file_truncated` if a file ends within a record, `file_corrupt` if the checksum of a
  /// length differs, and `file_format_error` if the file has another format.
  explicit tf_examples(const std::vector<std::string>& paths,
                       const tf_examples_options& options = {})
      : tf_examples(paths, std::nullopt, options) {
    static_assert(!detail::has_dyn_field<Record>,
                  "penstock::tf_examples: pass the extents of a record with dyn extents");
  }
  /// Opens the files at `paths`, whose samples have the given `extents`. Throws the same errors as
  /// the other constructor.
  tf_examples(const std::vector<std::string>& paths,
              const std::optional<record_extents<Record>>& extents,
              const tf_examples_options& options = {})
      : tf_examples::concat_dataset(
            detail::opened_parts<detail::tf_examples_file<Record>>(
                paths, options.index, detail::tf_record_format{}, extents, options.verify),
            "tf_examples") {}
};

static_assert(dataset<tf_examples<record<field<"x", float, ragged>, field<"y", std::int32_t>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
