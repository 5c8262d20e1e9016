// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// IDX element types. The values are the type codes in the header.
enum class idx_type : std::uint8_t {
  u8 = 0x08,
  i8 = 0x09,
  i16 = 0x0b,
  i32 = 0x0c,
  f32 = 0x0d,
  f64 = 0x0e
};

template <class T>
consteval idx_type idx_type_of() {
  constexpr idx_type found = std::same_as<T, std::uint8_t>   ? idx_type::u8
                             : std::same_as<T, std::int8_t>  ? idx_type::i8
                             : std::same_as<T, std::int16_t> ? idx_type::i16
                             : std::same_as<T, std::int32_t> ? idx_type::i32
                             : std::same_as<T, float>        ? idx_type::f32
                                                             : idx_type::f64;
  static_assert(found != idx_type::f64 || std::same_as<T, double>,
                "penstock: IDX holds uint8_t, int8_t, int16_t, int32_t, float or double");
  return found;
}

/// Name of an element type, and element size in bytes.
struct idx_kind {
  idx_type type;
  const char* name;
  std::size_t size;
};
inline constexpr std::array<idx_kind, 6> idx_kinds{{{idx_type::u8, "uint8", 1},
                                                    {idx_type::i8, "int8", 1},
                                                    {idx_type::i16, "int16", 2},
                                                    {idx_type::i32, "int32", 4},
                                                    {idx_type::f32, "float", 4},
                                                    {idx_type::f64, "double", 8}}};

/// Returns the properties of `type`, or null if `type` is unknown.
constexpr const idx_kind* kind_of(idx_type type) noexcept {
  for (const idx_kind& one : idx_kinds) {
    if (one.type == type) return &one;
  }
  return nullptr;
}

/// Formats the name and code of a type.
inline std::string describe(idx_type type) {
  return kind_of(type)->name + (" (" + hex(static_cast<std::uint8_t>(type)) + ")");
}

/// A file in IDX, the MNIST format. The file starts with two zero bytes, the element type, the
/// rank, and a big-endian 32-bit length for each dimension, outermost first. The elements follow in
/// big-endian row-major order. The constructor reads the file into memory and converts it to native
/// byte order.
class idx_file {
 public:
  /// Header of the file.
  struct header {
    /// Element type.
    idx_type type = idx_type::u8;
    /// Length of each dimension, outermost first.
    std::vector<std::uint32_t> lengths;
    std::uint64_t bytes = 0;  ///< size of all elements in bytes

    /// Returns the header size in bytes.
    [[nodiscard]] std::uint64_t size() const noexcept { return 4 + 4 * lengths.size(); }
  };

  /// Reads the file `path`. Throws `file_unreadable` and `file_truncated`. Throws
  /// `file_format_error` if the first bytes are wrong, or if bytes follow the elements. Throws
  /// `dimension_mismatch` if the rank is 0, or if the product of the dimensions exceeds 64 bits.
  /// Allocates at most twice the file size, even if the header specifies more.
  explicit idx_file(std::string path) : idx_file(open_file, std::move(path)) {}

  /// Reads a file with an opener, as in `idx_file{gzip, "train-images-idx3-ubyte.gz"}`. Also throws
  /// errors from the opener's source.
  template <file_opener Open>
  idx_file(const Open& open, std::string path)
      : idx_file(open, std::move(path), [](const std::string&, const header&) {}) {}

  /// Reads a file, and calls `check(path, header)` before reading the elements. `check` must throw
  /// if the file does not meet the caller's requirements.
  template <file_opener Open, std::invocable<const std::string&, const header&> Check>
  idx_file(const Open& open, std::string path, Check check) : path_(std::move(path)) {
    auto source = open(path_);
    read_header(source);
    check(path_, std::as_const(header_));
    read_elements(source);
  }

  /// Returns the file path.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the element type.
  [[nodiscard]] idx_type type() const noexcept { return header_.type; }
  /// Returns the dimensions, outermost first. There is at least one.
  [[nodiscard]] std::span<const std::uint32_t> lengths() const noexcept { return header_.lengths; }

  /// Returns the elements. Throws `element_type_mismatch` if the element type is not `T`. The span
  /// remains valid if this object is moved.
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    require_type<T>(path_, header_);
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  /// Throws `element_type_mismatch` if the element type in the header `found` is not `T`.
  template <class T>
  static void require_type(const std::string& path, const header& found) {
    constexpr idx_type expected = idx_type_of<T>();
    if (found.type == expected) return;
    throw element_type_mismatch(path, 2, "elements of type " + describe(expected),
                                describe(found.type));
  }

  /// Returns the file offset of the length of dimension `d`.
  [[nodiscard]] static std::uint64_t offset_of_length(std::size_t d) noexcept { return 4 + 4 * d; }

 private:
  template <byte_source Source>
  void read_exactly(Source& source, std::span<std::byte> out, std::uint64_t offset) {
    const std::size_t filled = source.read(out);
    if (filled == out.size()) return;
    throw file_truncated(
        path_, offset + filled,
        "an IDX header of " + std::to_string(offset + out.size()) + " bytes or more",
        "the end of the file");
  }

  template <byte_source Source>
  void read_header(Source& source) {
    std::array<std::byte, 4> begin{};
    read_exactly(source, begin, 0);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto found = std::to_integer<std::uint8_t>(begin[i]);
      if (found == 0) continue;
      std::vector<std::byte> start{begin.begin(), begin.end()};
      append_bytes(source, start, 512);
      const std::string foreign = foreign_text(start);
      throw file_format_error(path_, i, "0x00, the first byte of an IDX file",
                              hex(found) + (foreign.empty() ? "" : ", " + foreign));
    }
    header_.type = static_cast<idx_type>(begin[2]);
    const idx_kind* const kind = kind_of(header_.type);
    if (kind == nullptr) {
      throw file_format_error(path_, 2, "the code of an element type, 0x08, 0x09 or 0x0b to 0x0e",
                              hex(std::to_integer<std::uint8_t>(begin[2])));
    }
    const auto rank = std::to_integer<std::size_t>(begin[3]);
    if (rank == 0) throw dimension_mismatch(path_, 3, "one dimension or more", "none");

    header_.bytes = kind->size;
    bool too_large = false;
    for (std::size_t d = 0; d < rank; ++d) {
      std::array<std::byte, 4> raw{};
      read_exactly(source, raw, offset_of_length(d));
      std::reverse(raw.begin(), raw.end());  // IDX is big-endian
      const auto length = static_cast<std::uint32_t>(little_endian<4>(raw.data()));
      header_.lengths.push_back(length);
      too_large = __builtin_mul_overflow(header_.bytes, length, &header_.bytes) || too_large;
    }
    const bool is_empty =
        std::find(header_.lengths.begin(), header_.lengths.end(), 0U) != header_.lengths.end();
    if (is_empty) {
      header_.bytes = 0;
    } else if (too_large) {
      std::string product;
      for (const std::uint32_t length : header_.lengths) {
        product += (product.empty() ? "" : " x ") + std::to_string(length);
      }
      throw dimension_mismatch(path_, offset_of_length(0),
                               "dimensions whose size in bytes fits 64 bits",
                               product + " elements of type " + describe(header_.type));
    }
  }

  template <byte_source Source>
  void read_elements(Source& source) {
    const std::uint64_t filled = append_bytes(source, bytes_, header_.bytes);
    const std::uint64_t end = header_.size() + header_.bytes;
    if (filled < header_.bytes) {
      throw file_truncated(path_, header_.size() + filled,
                           std::to_string(header_.bytes) + " bytes of elements",
                           "the end of the file after " + std::to_string(filled));
    }
    std::byte next{};
    if (source.read({&next, 1}) != 0) {
      throw file_format_error(path_, end, "the end of the file",
                              "more bytes than given by the dimensions");
    }
    if constexpr (std::endian::native == std::endian::little) {
      const std::size_t size = kind_of(header_.type)->size;
      if (size == 2) swap_bytes<2>(bytes_);
      if (size == 4) swap_bytes<4>(bytes_);
      if (size == 8) swap_bytes<8>(bytes_);
    }
  }

  std::string path_;
  header header_;
  std::vector<std::byte> bytes_;
};

}  // namespace detail

/// A sample of MNIST, or of another dataset in the same format.
using digit_record = record<field<"image", std::uint8_t, 28, 28>, field<"label", std::uint8_t>>;

/// A dataset of IDX files, one for each field in record order. The constructor reads the files into
/// memory:
///
///     idx_dataset digits{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
///     idx_dataset packed{gzip, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"};
///     idx_dataset<record<field<"x", float, dyn>>> vectors{"x.idx"};
///
/// The first dimension of a file is the number of samples, and the others are the field extents.
/// Dynamic extents are those of the file. An empty dataset is allowed here, but a loader rejects
/// it. Movable, not copyable. Reading is thread-safe.
template <penstock::record_type Record = digit_record>
class idx_dataset {
  using idx_file = detail::idx_file;

 public:
  using record_type = Record;

  /// Reads the files `paths`. Throws for the first faulty file:
  /// - `file_unreadable`, `file_truncated`
  /// - `file_format_error` if the first bytes are wrong, or if bytes follow the elements
  /// - `element_type_mismatch` if the element type differs from the field type
  /// - `dimension_mismatch` if the rank or the extents differ from the field extents
  /// - `length_mismatch` if the number of samples differs from the first file
  template <std::convertible_to<std::string>... Paths>
    requires(sizeof...(Paths) == Record::size)
  explicit idx_dataset(Paths&&... paths) : idx_dataset(open_file, std::forward<Paths>(paths)...) {}

  /// Reads the files with `opener`, for example `gzip`. Throws the same errors as the constructor
  /// above, and errors from the opener's sources.
  template <file_opener Open, std::convertible_to<std::string>... Paths>
    requires(sizeof...(Paths) == Record::size)
  explicit idx_dataset(const Open& open, Paths&&... paths)
      : idx_dataset(open, {std::string(std::forward<Paths>(paths))...},
                    std::make_index_sequence<Record::size>{}) {}

  idx_dataset(idx_dataset&&) = default;
  idx_dataset& operator=(idx_dataset&&) = default;

  [[nodiscard]] std::uint64_t size() const noexcept { return samples_.size(); }
  [[nodiscard]] const record_extents<Record>& extents() const noexcept {
    return samples_.extents();
  }

  /// Copies the samples with the given `indices` into `out`. Throws `index_error` if an index is
  /// out of range.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    samples_.read_chunk(indices, out, context);
  }

  /// Returns a view of a sample in the dataset's memory. Throws `index_error` if `index` is out of
  /// range.
  [[nodiscard]] const_sample<Record> view(std::uint64_t index) const {
    return samples_.view(index);
  }

  void prefetch(std::uint64_t index) const noexcept { samples_.prefetch(index); }

 private:
  template <std::size_t Index>
  using field_at = typename Record::template field_at<Index>;

  template <class Open, std::size_t... Is>
  idx_dataset(const Open& open, std::array<std::string, Record::size> paths,
              std::index_sequence<Is...>)
      : files_(read_files(open, std::move(paths))),
        samples_(record_extents<Record>{detail::extents_in<typename field_at<Is>::extents_type>(
                     files_[Is].lengths().subspan(1))...},
                 files_[Is].template values<typename field_at<Is>::value_type>()...) {}

  template <class Open>
  static std::vector<idx_file> read_files(const Open& open,
                                          std::array<std::string, Record::size> paths) {
    std::vector<idx_file> files;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (files.emplace_back(open, std::move(paths[Is]),
                          [&](const std::string& path, const idx_file::header& found) {
                            require_field<field_at<Is>>(path, found);
                            if (!files.empty()) require_length(files.front(), path, found);
                          }),
       ...);
    }(std::make_index_sequence<Record::size>{});
    return files;
  }

  template <class Field>
  static void require_field(const std::string& path, const idx_file::header& found) {
    using lengths = typename Field::extents_type;
    idx_file::require_type<typename Field::value_type>(path, found);
    if (found.lengths.size() != lengths::rank + 1) {
      throw dimension_mismatch(
          path, 3,
          std::to_string(lengths::rank + 1) + " dimensions for field \"" + Field::key.str() + "\"",
          std::to_string(found.lengths.size()));
    }
    for (std::size_t d = 1; d < found.lengths.size(); ++d) {
      const std::size_t expected = detail::fixed_extent<lengths>(d - 1);
      if (expected == dyn ? found.lengths[d] > 0 : found.lengths[d] == expected) continue;
      throw dimension_mismatch(path, idx_file::offset_of_length(d),
                               (expected == dyn ? "1 or more" : std::to_string(expected)) +
                                   " in dimension " + std::to_string(d) + " for field \"" +
                                   Field::key.str() + "\"",
                               std::to_string(found.lengths[d]));
    }
  }

  static void require_length(const idx_file& first, const std::string& path,
                             const idx_file::header& found) {
    if (found.lengths[0] == first.lengths()[0]) return;
    throw length_mismatch(path, idx_file::offset_of_length(0),
                          std::to_string(first.lengths()[0]) + " samples as in " + first.path(),
                          std::to_string(found.lengths[0]));
  }

  // Moving the files does not move their elements, so views remain valid.
  std::vector<idx_file> files_;
  memory_dataset<Record> samples_;
};

static_assert(dataset<idx_dataset<>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
