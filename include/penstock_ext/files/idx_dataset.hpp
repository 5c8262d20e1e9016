// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/data/run_context.hpp>
#include <penstock/data/support/field_extents.hpp>
#include <penstock_ext/files/detail/idx_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A sample of MNIST and of the data sets in its form.
using digit_record = record<field<"image", std::uint8_t, 28, 28>, field<"label", std::uint8_t>>;

/// A dataset out of IDX files, one a field in the record's order, read into memory by the
/// constructor:
///
///     idx_dataset digits{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
///     idx_dataset packed{gzip, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"};
///     idx_dataset<record<field<"x", float, dyn>>> vectors{"x.idx"};
///
/// A file's first dimension counts the samples, the others are the field's extents; dynamic ones
/// are taken from the file. A dataset of no samples is allowed here; a loader refuses it.
/// Movable, not copyable. Reading is thread-safe.
template <penstock::record_type Record = digit_record>
class idx_dataset {
  using idx_file = detail::idx_file;

 public:
  using record_type = Record;

  /// Throws, for each file in turn, `file_unreadable`, `file_truncated`, `file_format_error` for
  /// wrong first bytes and for bytes after the elements; `element_type_mismatch`,
  /// `dimension_mismatch` if rank or extents are not the field's, `length_mismatch` if a file holds
  /// another number of samples than the first one.
  template <std::convertible_to<std::string>... Paths>
    requires(sizeof...(Paths) == Record::size)
  explicit idx_dataset(Paths&&... paths) : idx_dataset(open_file, std::forward<Paths>(paths)...) {}

  /// Reads the files by `opener`, for instance `gzip`.
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

  /// Copies the samples `indices` into `out`. Throws `index_error`.
  void read_run(std::span<const std::uint64_t> indices, batch_view<Record> out,
                const run_context& context) const {
    samples_.read_run(indices, out, context);
  }

  /// The sample where it lies. Throws `index_error`.
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
    }
    (std::make_index_sequence<Record::size>{});
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

  // Moving the files moves no element, so the dataset over them stays good.
  std::vector<idx_file> files_;
  memory_dataset<Record> samples_;
};

static_assert(dataset<idx_dataset<>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
