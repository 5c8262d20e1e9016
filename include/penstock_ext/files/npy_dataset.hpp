// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/run_context.hpp>
#include <penstock/data/support/field_extents.hpp>
#include <penstock_ext/files/detail/npy_header.hpp>
#include <penstock_ext/files/detail/npy_header_parser.hpp>
#include <penstock_ext/files/detail/zip_directory.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/mapped_file.hpp>
#include <penstock_ext/files/support/mapped_rows.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A file that `numpy.savez` wrote: several arrays, stored as they are.
struct npz {
  std::string path;  ///< the file's
  /// Whether the construction reads the arrays that are used and compares each with its CRC-32 in
  /// the archive. Without it a flipped bit of an element is another element.
  bool verify = false;
};

/// A dataset out of npy files of numpy's, one a field in the record's order, or out of the arrays
/// of one npz file:
///
///     using sample = record<field<"x", float, 28, 28>, field<"y", std::int64_t>>;
///     npy_dataset<sample> train{"x.npy", "y.npy"};
///     npy_dataset<sample> test{npz{"test.npz"}};                  // its arrays x and y
///     npy_dataset<sample> other{npz{"test.npz"}, "data", "target"};
///
/// An array's first dimension counts the samples, the others are the field's extents; dynamic ones
/// are taken from the file. Elements are bool, integers, float or double, of the field's type, in
/// either byte order. Rows first: an array in Fortran's order is refused.
///
/// The files are mapped and not read, unless `npz::verify` has it, so opening takes no time and no
/// memory, whatever their size. They must stay as they are meanwhile: a file that is made shorter
/// ends the process, one that is replaced is not seen. Movable, not copyable. Reading is
/// thread-safe.
template <penstock::record_type Record>
class npy_dataset {
 public:
  using record_type = Record;

  /// Opens the files `paths`. Throws, for each in turn, `file_unreadable`, `file_truncated`,
  /// `file_format_error` for what is no npy file, has columns first, or bytes after its elements;
  /// `element_type_mismatch`, `dimension_mismatch` if rank or extents are not the field's, and
  /// `length_mismatch` if it holds another number of samples than the first one.
  template <std::convertible_to<std::string>... Paths>
    requires(sizeof...(Paths) == Record::size)
  explicit npy_dataset(const Paths&... paths)
      : npy_dataset(open_files({std::string(paths)...}), std::make_index_sequence<Record::size>{}) {
  }

  /// Opens the arrays `names` of an npz file; without names, those called as the fields. Throws
  /// besides `file_format_error` for an array that is not there or is compressed, and
  /// `file_corrupt` where the archive's directory is damaged, or with `verify` one of the arrays.
  template <std::convertible_to<std::string>... Names>
    requires(sizeof...(Names) == Record::size || sizeof...(Names) == 0)
  explicit npy_dataset(const npz& archive, const Names&... names)
      : npy_dataset(open_archive(archive, {std::string(names)...}),
                    std::make_index_sequence<Record::size>{}) {}

  npy_dataset(npy_dataset&&) = default;
  npy_dataset& operator=(npy_dataset&&) = delete;

  /// How many samples there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return rows_.size(); }
  /// The extents of a sample's fields.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return rows_.extents(); }

  /// Copies the samples `indices` into `out`. Throws `index_error`.
  void read_run(std::span<const std::uint64_t> indices, batch_view<Record> out,
                const run_context& context) const {
    rows_.read_run(indices, out, context, "npy_dataset");
  }

  /// Brings the sample nearer; does nothing for an index out of range.
  void prefetch(std::uint64_t index) const noexcept { rows_.prefetch(index); }
  /// Has the system read the samples that come, as far as it does not have them in memory.
  void will_read(std::span<const std::uint64_t> indices) const noexcept {
    rows_.will_read(indices);
  }
  /// The bytes of a sample in the files.
  [[nodiscard]] std::uint64_t stored_bytes(std::uint64_t) const noexcept {
    return rows_.stored_bytes();
  }

 private:
  using files = std::vector<std::shared_ptr<const detail::mapped_file>>;

  // An array in a file: the bytes from `begin` on.
  struct array {
    std::shared_ptr<const detail::mapped_file> file;
    std::string path;  // for messages: that of the file, and the array's name in an archive
    std::uint64_t begin = 0;
    std::span<const std::byte> bytes = {};
    detail::npy_header header = {};
  };
  using arrays = std::array<array, Record::size>;

  template <std::size_t Index>
  using field_at = typename Record::template field_at<Index>;

  static void read_header(array& of) {
    of.header = detail::npy_header_parser{of.bytes, of.path, of.begin}.read();
    const std::uint64_t found = of.bytes.size() - of.header.data;
    const std::uint64_t end = of.begin + of.bytes.size();
    if (found < of.header.bytes) {
      throw file_truncated(of.path, end, std::to_string(of.header.bytes) + " bytes of elements",
                           "the end of the file after " + std::to_string(found));
    }
    if (found > of.header.bytes) {
      throw file_format_error(of.path, end - (found - of.header.bytes), "the end of the file",
                              "more bytes than the shape says");
    }
  }

  // Opens the array of field `Index`, which is a file of its own.
  template <std::size_t Index>
  static void open_file(arrays& all, std::string path) {
    array& one = all[Index];
    one.file = std::make_shared<detail::mapped_file>(std::move(path));
    one.path = one.file->path();
    one.bytes = one.file->bytes();
    read_header(one);
    require<Index>(all);
  }

  // Opens the array of field `Index`, which is an entry of an archive: by default the one that is
  // called as the field.
  template <std::size_t Index>
  static void open_entry(arrays& all, const std::shared_ptr<const detail::mapped_file>& file,
                         const detail::zip_directory& entries, std::string name, bool verify) {
    if (name.empty()) name = field_at<Index>::key.str();
    name += ".npy";
    const auto place = entries.find(name);
    if (verify) entries.require_sum(place, name);
    array& one = all[Index];
    one.file = file;
    one.path = file->path() + '/' + name;
    one.begin = place.begin;
    one.bytes = file->bytes().subspan(static_cast<std::size_t>(place.begin),
                                      static_cast<std::size_t>(place.size));
    read_header(one);
    require<Index>(all);
  }

  [[nodiscard]] static arrays open_files(std::array<std::string, Record::size> paths) {
    arrays all;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (open_file<Is>(all, std::move(paths[Is])), ...);
    }
    (std::make_index_sequence<Record::size>{});
    return all;
  }

  [[nodiscard]] static arrays open_archive(const npz& archive,
                                           std::array<std::string, Record::size> names) {
    const auto file = std::make_shared<const detail::mapped_file>(archive.path);
    const detail::zip_directory entries{file->bytes(), archive.path};
    arrays all;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (open_entry<Is>(all, file, entries, std::move(names[Is]), archive.verify), ...);
    }
    (std::make_index_sequence<Record::size>{});
    return all;
  }

  // Throws where an array is not that of its field, or not as long as the first one.
  template <std::size_t Index>
  static void require(const arrays& all) {
    using field = field_at<Index>;
    using lengths = typename field::extents_type;
    const auto& [file, path, begin, bytes, found] = all[Index];
    const std::string of_field = " for field \"" + field::key.str() + "\"";
    const std::string type = detail::npy_type_of<typename field::value_type>();
    if (found.descr.substr(1) != type) {
      throw element_type_mismatch(path, found.descr_at,
                                  "elements of type '" + type + "'" + of_field,
                                  '\'' + found.descr + '\'');
    }
    if (found.lengths.size() != lengths::rank + 1) {
      throw dimension_mismatch(path, found.shape_at,
                               std::to_string(lengths::rank + 1) + " dimensions" + of_field,
                               std::to_string(found.lengths.size()));
    }
    for (std::size_t d = 1; d <= lengths::rank; ++d) {
      const std::size_t expected = detail::fixed_extent<lengths>(d - 1);
      if (expected == dyn ? found.lengths[d] > 0 : found.lengths[d] == expected) continue;
      throw dimension_mismatch(path, found.shape_at,
                               (expected == dyn ? "1 or more" : std::to_string(expected)) +
                                   " in dimension " + std::to_string(d) + of_field,
                               std::to_string(found.lengths[d]));
    }
    if (found.lengths[0] != all[0].header.lengths[0]) {
      throw length_mismatch(
          path, found.shape_at,
          std::to_string(all[0].header.lengths[0]) + " samples as in " + all[0].path,
          std::to_string(found.lengths[0]));
    }
  }

  template <std::size_t... Is>
  npy_dataset(const arrays& all, std::index_sequence<Is...>)
      : npy_dataset(
            files{all[Is].file...}, all,
            batch_layout<Record>{
                record_extents<Record>{detail::extents_in<typename field_at<Is>::extents_type>(
                    std::span{all[Is].header.lengths}.subspan(1))...},
                1}) {}

  npy_dataset(files opened, const arrays& all, const batch_layout<Record>& layout)
      : files_(std::move(opened)),
        rows_(layout, all[0].header.lengths[0], fields_of(all, layout)) {}

  [[nodiscard]] static std::array<detail::mapped_field, Record::size> fields_of(
      const arrays& all, const batch_layout<Record>& layout) {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return std::array<detail::mapped_field, Record::size>{
          detail::mapped_field{all[Is].bytes.data() + all[Is].header.data,
                               layout.template sample_bytes<Is>(), all[Is].header.is_swapped()}...};
    }
    (std::make_index_sequence<Record::size>{});
  }

  files files_;
  detail::mapped_rows<Record> rows_;
};

static_assert(dataset<npy_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
