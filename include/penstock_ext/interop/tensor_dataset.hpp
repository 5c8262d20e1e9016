// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/tensor_view.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/interop/dlpack_abi.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The expected form of a tensor: samples with `extents`, each fixed or `dyn`, in host memory.
struct expected_tensor {
  std::string_view where;  // message prefix
  dlpack::data_type type;
  std::size_t element_bytes;
  std::size_t alignment;
  std::span<const std::size_t> extents;
};

/// The location of the samples of a validated tensor.
struct tensor_rows {
  const std::byte* first;     // null only without samples
  std::uint64_t count;        // number of samples
  std::int64_t stride_bytes;  // distance between samples in bytes; may be 0 or negative
  std::size_t row_bytes;      // size of a contiguous sample
};

/// Formats numbers as in "[60000, 28, 28]".
[[nodiscard]] inline std::string numbers_of(const std::int64_t* numbers, std::size_t count) {
  std::string text = "[";
  for (std::size_t d = 0; d < count; ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(numbers[d]);
  }
  return text + "]";
}

/// Validates a tensor description. Never reads the data.
class tensor_check {
 public:
  tensor_check(const expected_tensor& expected, const dlpack::tensor& found) noexcept
      : expected_(expected), found_(found) {}

  /// Returns the location of the samples. Throws `dlpack_error` for the first mismatch.
  [[nodiscard]] tensor_rows rows() const {
    require_rank();
    require_type();
    require_device();
    tensor_rows rows{};
    rows.row_bytes = require_shape();
    rows.count = static_cast<std::uint64_t>(found_.shape[0]);
    rows.stride_bytes = require_strides(rows);
    rows.first = require_data(rows);
    return rows;
  }

 private:
  [[noreturn]] void reject(std::string_view part, std::string expected, std::string found,
                           std::string_view advice) const {
    throw dlpack_error(expected_.where, part, std::move(expected), std::move(found), advice);
  }

  [[nodiscard]] std::size_t rank() const noexcept { return 1 + expected_.extents.size(); }

  void require_rank() const {
    if (found_.rank == static_cast<std::int32_t>(rank()) && found_.shape != nullptr) return;
    reject("rank", std::to_string(rank()),
           found_.shape == nullptr ? "no shape" : std::to_string(found_.rank),
           "the outermost dimension is the number of samples, the others are the field's extents; "
           "reshape the tensor");
  }

  void require_type() const {
    if (found_.type == expected_.type) return;
    reject("type", dlpack::to_string(expected_.type), dlpack::to_string(found_.type),
           "convert the tensor, or use its type in the record");
  }

  void require_device() const {
    switch (found_.where.kind) {
      case dlpack::device_kind::cpu:
      case dlpack::device_kind::cuda_host:
      case dlpack::device_kind::rocm_host:
        return;
      default:
        reject("device", "host memory", dlpack::to_string(found_.where),
               "host threads read a dataset; copy the tensor to the host");
    }
  }

  /// Checks the shape, and returns the size of a sample in bytes.
  [[nodiscard]] std::size_t require_shape() const {
    std::int64_t bytes = static_cast<std::int64_t>(expected_.element_bytes);
    bool fits = found_.shape[0] >= 0;
    for (std::size_t d = 1; d < rank(); ++d) {
      const std::size_t expected = expected_.extents[d - 1];
      const std::int64_t length = found_.shape[d];
      fits = fits && length > 0 &&
             (expected == dyn || static_cast<std::uint64_t>(length) == expected) &&
             !__builtin_mul_overflow(bytes, length, &bytes);
    }
    std::int64_t all = 0;
    if (fits && !__builtin_mul_overflow(bytes, found_.shape[0], &all)) {
      return static_cast<std::size_t>(bytes);
    }
    reject("shape", expected_shape(), numbers_of(found_.shape, rank()),
           "the outermost dimension is the number of samples, the others are the field's extents");
  }

  [[nodiscard]] std::string expected_shape() const {
    std::string text = "[samples";
    for (const std::size_t extent : expected_.extents) {
      text += extent == dyn ? ", 1 or more" : ", " + std::to_string(extent);
    }
    return text + "]";
  }

  /// Checks the strides, and returns the distance between samples in bytes.
  [[nodiscard]] std::int64_t require_strides(const tensor_rows& rows) const {
    const auto row_bytes = static_cast<std::int64_t>(rows.row_bytes);
    if (found_.strides == nullptr || rows.count == 0) return row_bytes;
    std::int64_t dense = 1;
    bool fits = true;
    for (std::size_t d = rank() - 1; d > 0; --d) {
      // The stride of a dimension with length 1 is never used.
      fits = fits && (found_.shape[d] == 1 || found_.strides[d] == dense);
      dense *= found_.shape[d];
    }
    if (rows.count == 1 && fits) return row_bytes;
    std::int64_t step = 0;
    std::int64_t reach = 0;
    fits = fits &&
           !__builtin_mul_overflow(found_.strides[0],
                                   static_cast<std::int64_t>(expected_.element_bytes), &step) &&
           !__builtin_mul_overflow(step, found_.shape[0] - 1, &reach);
    if (fits) return step;
    reject("strides", expected_strides(), numbers_of(found_.strides, rank()),
           "each sample must be contiguous; copy the tensor, as `contiguous()` does");
  }

  [[nodiscard]] std::string expected_strides() const {
    std::string text = "]";
    std::int64_t dense = 1;
    for (std::size_t d = rank() - 1; d > 0; --d) {
      text = ", " + std::to_string(dense) + text;
      dense *= found_.shape[d];
    }
    return "[any" + text;
  }

  /// Checks the addresses, and returns the first sample.
  [[nodiscard]] const std::byte* require_data(const tensor_rows& rows) const {
    if (rows.count == 0) return nullptr;
    if (found_.data == nullptr) {
      reject("data", std::to_string(rows.count) + " samples", "a null pointer",
             "the tensor's producer must keep the memory until the deleter is called");
    }
    const auto base = reinterpret_cast<std::uintptr_t>(found_.data);
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    std::uintptr_t end = 0;
    const std::int64_t reach = rows.stride_bytes * (found_.shape[0] - 1);
    // Half of the address space, which is the range of pointer arithmetic.
    constexpr auto farthest = (std::numeric_limits<std::ptrdiff_t>::max)();
    if (found_.byte_offset > static_cast<std::uint64_t>(farthest) ||
        __builtin_add_overflow(base, found_.byte_offset, &first) ||
        __builtin_add_overflow(first, reach, &last) ||
        __builtin_add_overflow(first, rows.row_bytes, &end) ||
        __builtin_add_overflow(last, rows.row_bytes, &end)) {
      reject("data", "samples within the address space",
             std::to_string(found_.byte_offset) + " bytes of offset and strides beyond it",
             "the tensor is damaged");
    }
    // Strides are multiples of the element size, so all samples are aligned like the first sample.
    if (first % expected_.alignment != 0) {
      reject("alignment", "an address that " + std::to_string(expected_.alignment) + " divides",
             std::to_string(first % expected_.alignment) + " bytes past one", "copy the tensor");
    }
    return static_cast<const std::byte*>(found_.data) +
           static_cast<std::ptrdiff_t>(found_.byte_offset);
  }

  const expected_tensor& expected_;
  const dlpack::tensor& found_;
};

}  // namespace detail

/// A host tensor from another library, as a sequence of samples. The outermost dimension is the
/// number of samples, and each sample is an array of `Extents`, fixed or `dyn`. Data is not copied.
/// Any stride between samples is allowed, as in a slice or a reversed array, but each sample must
/// be contiguous.
///
/// Copies share ownership of the tensor. The thread that destroys the last copy calls the deleter,
/// so a worker may release a Python tensor. The producer's deleter must acquire the Python GIL
/// itself, as in NumPy and PyTorch. The memory must not change while the tensor exists. Reading is
/// thread-safe.
template <dlpack::element T, std::size_t... Extents>
class imported_tensor {
 public:
  /// Element type, read-only.
  using element_type = const T;
  using value_type = T;
  /// Extents of a sample.
  using extents_type = penstock::extents<Extents...>;

  /// Takes ownership of the tensor. Throws `dlpack_error`, whose message begins with `where`, for a
  /// null pointer, an unsupported version, or a mismatch of rank, type, device, shape or strides.
  /// Also throws `std::bad_alloc`. After an exception, the deleter has been called.
  imported_tensor(  // NOLINT: implicit, so that a dataset takes tensors directly
      dlpack::managed_ptr managed, std::string_view where = "from_dlpack")
      : imported_tensor(array_of(managed.get(), where), where) {
    owner_ = std::move(managed);
  }
  /// Takes ownership of a tensor of the unversioned layout. Throws the same errors as the other
  /// constructor.
  imported_tensor(  // NOLINT: implicit, for the same reason
      dlpack::unversioned_ptr managed, std::string_view where = "from_dlpack")
      : imported_tensor(array_of(managed.get(), where), where) {
    owner_ = std::move(managed);
  }

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return rows_.count; }
  /// Returns the extents of a sample.
  [[nodiscard]] const extents_type& extents() const noexcept { return extents_; }
  /// Returns the distance between samples in bytes. The distance is negative for samples in reverse
  /// order, and 0 for samples that share memory.
  [[nodiscard]] std::ptrdiff_t stride_bytes() const noexcept { return rows_.stride_bytes; }

  /// Returns sample `index` in tensor memory. `index` must be less than `size()`.
  [[nodiscard]] tensor_view<const T, Extents...> operator[](std::uint64_t index) const noexcept {
    return {address(index), extents_};
  }

  /// Returns true if all samples are contiguous, as required by `flat`.
  [[nodiscard]] bool is_contiguous() const noexcept {
    return rows_.count < 2 || rows_.stride_bytes == static_cast<std::int64_t>(rows_.row_bytes);
  }
  /// Returns all samples as an array, for example for a `memory_dataset`. The array must not
  /// outlive the tensor. Throws `dlpack_error` if the samples are not contiguous.
  [[nodiscard]] std::span<const T> flat() const {
    if (is_contiguous()) return {address(0), static_cast<std::size_t>(size()) * extents_.size()};
    throw dlpack_error("imported_tensor", "strides",
                       std::to_string(rows_.row_bytes) + " bytes from sample to sample",
                       std::to_string(rows_.stride_bytes),
                       "give a tensor_dataset the tensor, or copy it, as `contiguous()` does");
  }

 private:
  static constexpr std::array<std::size_t, sizeof...(Extents)> lengths{Extents...};

  imported_tensor(const dlpack::tensor& given, std::string_view where)
      : rows_(detail::tensor_check{expected(where), given}.rows()),
        extents_(detail::extents_in<extents_type>(given.shape + 1)) {}

  template <class Managed>
  static const dlpack::tensor& array_of(const Managed* managed, std::string_view where) {
    if (managed == nullptr) {
      throw dlpack_error(where, "tensor", "one", "null", "pass the tensor of the producer");
    }
    if constexpr (requires { managed->version; }) {
      if (managed->version.layout != dlpack::layout_version) {
        throw dlpack_error(where, "version", std::to_string(dlpack::layout_version) + ".x",
                           std::to_string(managed->version.layout) + "." +
                               std::to_string(managed->version.feature),
                           "request an older version from the producer (max_version in Python)");
      }
    }
    return managed->array;
  }

  static detail::expected_tensor expected(std::string_view where) noexcept {
    return {where, dlpack::type_of<T>::value, sizeof(T), alignof(T), lengths};
  }

  [[nodiscard]] const T* address(std::uint64_t index) const noexcept {
    const auto offset = static_cast<std::int64_t>(index) * rows_.stride_bytes;
    return reinterpret_cast<const T*>(rows_.first + offset);
  }

  detail::tensor_rows rows_;
  extents_type extents_;
  std::shared_ptr<void> owner_;
};

/// Imports a tensor from another library as samples with `Extents`:
/// `ps::from_dlpack<float, 3, 224, 224>(std::move(tensor))`. Throws the same errors as
/// `imported_tensor`.
template <dlpack::element T, std::size_t... Extents>
[[nodiscard]] imported_tensor<T, Extents...> from_dlpack(dlpack::managed_ptr managed) {
  return {std::move(managed)};
}
/// Imports a tensor of the unversioned layout.
template <dlpack::element T, std::size_t... Extents>
[[nodiscard]] imported_tensor<T, Extents...> from_dlpack(dlpack::unversioned_ptr managed) {
  return {std::move(managed)};
}

namespace detail {

template <class Field, class List>
struct imported_field;
template <class Field, std::size_t... Extents>
struct imported_field<Field, extents<Extents...>> {
  using type = imported_tensor<typename Field::value_type, Extents...>;
};

/// The tensor of a field, with the field name for messages.
template <class Field>
class tensor_of_field {
 public:
  using type = typename imported_field<Field, typename Field::extents_type>::type;

  tensor_of_field(type tensor) : tensor_(std::move(tensor)) {}  // NOLINT: implicit
  tensor_of_field(dlpack::managed_ptr managed)                  // NOLINT: implicit
      : tensor_(std::move(managed), where()) {}
  tensor_of_field(dlpack::unversioned_ptr managed)  // NOLINT: implicit
      : tensor_(std::move(managed), where()) {}

  [[nodiscard]] const type& get() const noexcept { return tensor_; }
  /// Returns the message prefix for this field.
  [[nodiscard]] static std::string where() {
    return "tensor_dataset: field \"" + Field::key.str() + "\"";
  }

 private:
  type tensor_;
};

}  // namespace detail

/// A dataset of tensors from other libraries. Only the specialization for records is defined.
template <penstock::record_type Record>
class tensor_dataset;

/// A dataset of host tensors from other libraries, one for each field in record order. Each is a
/// `dlpack::managed_ptr`, a `dlpack::unversioned_ptr`, or a result of `from_dlpack`. Data is copied
/// only when a sample is read. Any stride between samples is allowed.
///
///     using digit = ps::record<ps::field<"image", float, 28, 28>,
///                              ps::field<"label", std::int64_t>>;
///     ps::tensor_dataset<digit> digits{std::move(images), std::move(labels)};
///
/// Copies share ownership of the tensors (see `imported_tensor`). A loader that owns the dataset
/// keeps the tensors alive. Dynamic extents are those of the tensors. Reading is thread-safe.
/// Prefetches rows into the CPU cache, four samples ahead.
template <class... Fields>
class tensor_dataset<record<Fields...>> {
 public:
  using record_type = record<Fields...>;
  static_assert(record_type::ragged_fields == 0,
                "penstock::tensor_dataset: all rows of a tensor have the same length: write your "
                "own dataset for a ragged field, see docs/ragged.md");

  /// Takes ownership of one tensor for each field. Throws `dlpack_error` with the field name if a
  /// tensor does not match its field (see `imported_tensor`), or if its number of samples differs
  /// from the first tensor. After an exception, the converted tensors have been freed, and the
  /// caller still owns the others.
  explicit tensor_dataset(detail::tensor_of_field<Fields>... tensors)
      : tensors_(std::move(tensors)...),
        layout_(std::apply(
                    [](const auto&... each) {
                      return record_extents<record_type>{each.get().extents()...};
                    },
                    tensors_),
                1),
        size_(std::get<0>(tensors_).get().size()),
        places_(
            std::apply([this](const auto&... each) { return std::array{this->place_of(each)...}; },
                       tensors_)) {}

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Returns the extents of a sample, determined by the tensors.
  [[nodiscard]] const record_extents<record_type>& extents() const noexcept {
    return layout_.extents();
  }

  /// Copies the samples with the given `indices` into `out`. Throws `index_error` if an index is
  /// out of range.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    detail::copy_rows(*this, layout_, indices, out, context);
  }

  /// Returns a view of a sample in tensor memory. Throws `index_error` if `index` is out of range.
  [[nodiscard]] const_sample<record_type> view(std::uint64_t index) const {
    if (index >= size_) throw index_error("tensor_dataset", index, size_);
    return {rows(index), layout_.extents()};
  }

  /// Prefetches a sample into the CPU cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size_) return;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      const auto row = rows(index);
      (detail::prefetch_row(row[Is], layout_.template sample_bytes<Is>()), ...);
    }(std::index_sequence_for<Fields...>{});
  }

 private:
  struct place {
    const std::byte* first;
    std::int64_t stride_bytes;
  };

  template <class Tensor>
  [[nodiscard]] place place_of(const Tensor& tensor) const {
    const auto& samples = tensor.get();
    if (samples.size() != size_) {
      throw dlpack_error(Tensor::where(), "shape", std::to_string(size_) + " samples",
                         std::to_string(samples.size()),
                         "all fields must have as many samples as the first field");
    }
    if (size_ == 0) return {};
    return {reinterpret_cast<const std::byte*>(samples[0].data()), samples.stride_bytes()};
  }

  [[nodiscard]] auto rows(std::uint64_t index) const noexcept {
    const auto at = static_cast<std::int64_t>(index);
    return std::apply(
        [at](const auto&... each) { return std::array{(each.first + at * each.stride_bytes)...}; },
        places_);
  }

  std::tuple<detail::tensor_of_field<Fields>...> tensors_;
  batch_layout<record_type> layout_;
  std::uint64_t size_;
  std::array<place, sizeof...(Fields)> places_;
};

static_assert(dataset<tensor_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
