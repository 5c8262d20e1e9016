// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <hdf5.h>
#include <unistd.h>
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <typeinfo>
#include <utility>
#include <vector>

#include <penstock/core/extents.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/indexed/hdf5/detail/child_process.hpp>
#include <penstock_ext/indexed/hdf5/detail/hdf5_chunks.hpp>

static_assert(H5_VERSION_GE(1, 10, 5), "penstock: hdf5_dataset needs libhdf5 1.10.5 or newer");

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A field's requirements for a dataset.
struct hdf5_spec {
  std::string field;
  std::string dataset;
  std::string type;                  ///< such as "float32"
  std::vector<std::size_t> extents;  ///< may be `dyn`
};

/// An identifier of libhdf5 that `Close` closes.
template <auto Close>
class hdf5_id {
 public:
  explicit hdf5_id(::hid_t id) noexcept : id_(id) {}
  hdf5_id(const hdf5_id&) = delete;
  hdf5_id& operator=(const hdf5_id&) = delete;
  ~hdf5_id() {
    if (id_ >= 0) Close(id_);
  }
  operator ::hid_t() const noexcept { return id_; }  // NOLINT: implicit by intent

 private:
  ::hid_t id_;
};

/// Excludes other users of this class from libhdf5, which may be built without locks. Prevents
/// libhdf5 from printing errors.
class hdf5_lock {
 public:
  hdf5_lock() : lock_(mutex()) {
    ::H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    ::H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  hdf5_lock(const hdf5_lock&) = delete;
  hdf5_lock& operator=(const hdf5_lock&) = delete;
  ~hdf5_lock() {
    ::H5Eclear2(H5E_DEFAULT);
    ::H5Eset_auto2(H5E_DEFAULT, print_, data_);
  }

 private:
  [[nodiscard, gnu::visibility("default")]] static std::mutex& mutex() noexcept {
    static std::mutex of_process;
    return of_process;
  }

  std::lock_guard<std::mutex> lock_;
  ::H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

/// The reads of libhdf5 from an open file. If `is_locating` is set, a read of a chunk is only
/// recorded, which locates the chunk: listing chunks by their numbers takes quadratic time.
struct hdf5_reads {
  const shard_file* file;
  bool is_open = false;
  bool is_locating = false;
  std::string other_file = {};      // the target of an external link
  std::uint64_t chunk_offset = 0;   // position of the last chunk that was read
  std::uint64_t chunk_bytes = 0;    // size of the last chunk that was read
  std::exception_ptr problem = {};  // thrown by a read
};

/// The file driver of libhdf5 for `hdf5_reads`.
struct hdf5_driver {
  ::H5FD_t base;
  hdf5_reads* reads;
  ::haddr_t end;

  static inline hdf5_reads* current = nullptr;  // reads of the thread that has the lock

  [[nodiscard]] static hdf5_driver& of(::H5FD_t* file) noexcept {
    return *reinterpret_cast<hdf5_driver*>(file);
  }
  [[nodiscard]] static const hdf5_driver& of(const ::H5FD_t* file) noexcept {
    return *reinterpret_cast<const hdf5_driver*>(file);
  }

  /// Opens the file once. The name of a second file is the target of an external link.
  [[nodiscard]] static ::H5FD_t* open(const char* name, unsigned, ::hid_t, ::haddr_t) {
    try {
      if (!std::exchange(current->is_open, true)) return &(new hdf5_driver{{}, current, 0})->base;
      current->other_file = name;
    } catch (...) {
      current->problem = std::current_exception();
    }
    return nullptr;
  }

  [[nodiscard]] static ::herr_t read(::H5FD_t* file, ::H5FD_mem_t type, ::hid_t, ::haddr_t offset,
                                     std::size_t bytes, void* to) {
    hdf5_reads& reads = *of(file).reads;
    const bool is_chunk = reads.is_locating && type == H5FD_MEM_DRAW;
    if (is_chunk) {
      reads.chunk_offset = offset;
      reads.chunk_bytes = bytes;
      return 0;
    }
    try {
      const std::span out{static_cast<std::byte*>(to), bytes};
      std::ranges::fill(out.subspan(reads.file->read_at(offset, out)), std::byte{0});
      return 0;
    } catch (...) {
      reads.problem = std::current_exception();
      return -1;
    }
  }

  /// Returns the functions of the driver.
  [[nodiscard]] static ::H5FD_class_t methods() {
    ::H5FD_class_t all{};
#ifdef H5FD_CLASS_VERSION
    all.version = H5FD_CLASS_VERSION;
    all.value = 600;  // any number of a driver that is not registered
#endif
    all.name = "penstock";
    all.maxaddr = (std::numeric_limits<std::int64_t>::max)();
    all.fc_degree = H5F_CLOSE_STRONG;
    all.open = &open;
    all.close = [](::H5FD_t* file) { return delete &of(file), ::herr_t{0}; };
    all.query = [](const ::H5FD_t*, unsigned long* flags) {
      return *flags = H5FD_FEAT_DEFAULT_VFD_COMPATIBLE, ::herr_t{0};
    };
    all.get_eoa = [](const ::H5FD_t* file, ::H5FD_mem_t) { return of(file).end; };
    all.set_eoa = [](::H5FD_t* file, ::H5FD_mem_t, ::haddr_t to) {
      return of(file).end = to, ::herr_t{0};
    };
    all.get_eof = [](const ::H5FD_t* file, ::H5FD_mem_t) -> ::haddr_t {
      return of(file).reads->file->size();
    };
    all.read = &read;
    all.write = [](::H5FD_t*, ::H5FD_mem_t, ::hid_t, ::haddr_t, std::size_t, const void*) {
      return ::herr_t{-1};
    };
    return all;
  }
};

/// Lists datasets of an HDF5 file with libhdf5. The caller must hold an `hdf5_lock`.
class hdf5_index {
 public:
  /// Opens `file` in libhdf5. If `is_child` is true, limits the processor time of this process.
  /// Throws `file_format_error`, `file_truncated` and `file_unreadable`.
  hdf5_index(const shard_file& file, bool is_child) : is_child_(is_child), reads_{&file} {
    limit_time();
    hdf5_driver::current = &reads_;
    ::H5Pset_driver(access_, driver_, nullptr);
    file_ = std::make_unique<hdf5_id<&::H5Fclose>>(
        ::H5Fopen(file.path().c_str(), H5F_ACC_RDONLY, access_));
    if (*file_ >= 0) return;
    std::array<std::byte, 512> start{};
    const std::string foreign = foreign_text(std::span{start}.first(file.read_at(0, start)));
    const std::string found = message();
    if (found.starts_with("truncated")) {
      throw file_truncated(file.path(), file.size(), "a whole HDF5 file", found);
    }
    reject("an HDF5 file", foreign.empty() || foreign.starts_with("an HDF5") ? found : foreign);
  }

  /// Lists the dataset of a field. Throws the same errors as `hdf5_dataset`.
  [[nodiscard]] hdf5_array array(const hdf5_spec& spec) {
    limit_time();
    of_ = " in dataset \"" + spec.dataset + "\" for field \"" + spec.field + '"';
    const hdf5_id<&::H5Dclose> set{::H5Dopen2(*file_, spec.dataset.c_str(), H5P_DEFAULT)};
    if (!reads_.other_file.empty()) {
      reject("values", "an external link to " + reads_.other_file + ": open that file");
    }
    require(set, "values");
    const hdf5_id<&::H5Tclose> type{require(::H5Dget_type(set), "a type")};
    const hdf5_id<&::H5Sclose> space{require(::H5Dget_space(set), "dimensions")};
    const hdf5_id<&::H5Pclose> made{require(::H5Dget_create_plist(set), "properties")};
    hdf5_array found;
    found.name = spec.dataset;
    read_type(type, spec, found);
    read_lengths(space, spec, found);
    read_layout(made, found);
    found.fill.resize(found.element);
    ::H5D_fill_value_t state{};
    require(::H5Pfill_value_defined(made, &state), "a fill value");
    if (state != H5D_FILL_VALUE_UNDEFINED) {
      require(::H5Pget_fill_value(made, type, found.fill.data()), "a fill value");
    }
    found.convert(found.fill);
    // Without allocated space, H5Dget_offset returns a number that depends on the user block.
    ::H5D_space_status_t space_status{};
    require(::H5Dget_space_status(set, &space_status), "space");
    if (::H5Pget_layout(made) == H5D_CHUNKED) {
      list_chunks(set, space, found);
    } else if (space_status != H5D_SPACE_STATUS_NOT_ALLOCATED && found.lengths[0] != 0) {
      const std::uint64_t bytes = ::H5Dget_storage_size(set);
      add({0, ::H5Dget_offset(set), (std::min)(bytes, found.chunk_bytes), 0}, found);
    }
    return found;
  }

 private:
  [[nodiscard]] const std::string& path() const noexcept { return reads_.file->path(); }

  // Limits the further processor time of a child to 10 seconds, and 10 microseconds for each of
  // `chunks`. Damaged metadata can make libhdf5 loop forever.
  void limit_time(std::uint64_t chunks = 0) const noexcept {
    if (is_child_) child_process::limit_processor_time(10 + chunks / 100000);
  }

  // Returns the most specific of libhdf5's current errors.
  [[nodiscard]] static std::string message() {
    std::string text;
    const auto append = [](unsigned number, const ::H5E_error2_t* problem, void* out) -> ::herr_t {
      if (number == 0 && problem->desc != nullptr) *static_cast<std::string*>(out) = problem->desc;
      return 0;
    };
    ::H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, append, &text);
    return text.empty() ? "a damaged file" : text;
  }

  [[noreturn]] void reject(const std::string& expected, const std::string& found) const {
    if (reads_.problem != nullptr) std::rethrow_exception(reads_.problem);
    throw file_format_error(path(), 0, expected + of_, found);
  }
  // Returns the result of a call of libhdf5, or throws if the call failed.
  template <class Result>
  const Result& require(const Result& result, const char* expected) const {
    if (result < 0) reject(expected, message());
    return result;
  }

  void read_type(::hid_t type, const hdf5_spec& spec, hdf5_array& out) const {
    static constexpr const char* classes[] = {"other integers", "other floats", "times",
                                              "strings",        "bitfields",    "opaque bytes",
                                              "compounds",      "references",   "enumerations",
                                              "variable lists", "arrays"};
    const auto number = static_cast<std::size_t>(require(::H5Tget_class(type), "a type"));
    std::string name = number < std::size(classes) ? classes[number] : "other types";
    out.element = ::H5Tget_size(type);
    const std::string bits = std::to_string(8 * out.element);
    const ::hid_t known[][2] = {{H5T_STD_I8LE, H5T_STD_I8BE},     {H5T_STD_I16LE, H5T_STD_I16BE},
                                {H5T_STD_I32LE, H5T_STD_I32BE},   {H5T_STD_I64LE, H5T_STD_I64BE},
                                {H5T_STD_U8LE, H5T_STD_U8BE},     {H5T_STD_U16LE, H5T_STD_U16BE},
                                {H5T_STD_U32LE, H5T_STD_U32BE},   {H5T_STD_U64LE, H5T_STD_U64BE},
                                {H5T_IEEE_F32LE, H5T_IEEE_F32BE}, {H5T_IEEE_F64LE, H5T_IEEE_F64BE}};
    for (const auto& both : known) {
      if (::H5Tequal(type, both[0]) <= 0 && ::H5Tequal(type, both[1]) <= 0) continue;
      const bool is_unsigned = ::H5Tget_sign(type) == H5T_SGN_NONE;
      name = (number == H5T_FLOAT ? "float" : is_unsigned ? "uint" : "int") + bits;
    }
    std::array<std::size_t, 5> parts{};  // sign, exponent and mantissa
    if (number == H5T_FLOAT && out.element == 2 &&
        ::H5Tget_fields(type, &parts[0], &parts[1], &parts[2], &parts[3], &parts[4]) >= 0) {
      if (parts == std::array<std::size_t, 5>{15, 10, 5, 0, 10}) name = "float16";
      if (parts == std::array<std::size_t, 5>{15, 7, 8, 0, 7}) name = "bfloat16";
    }
    std::int8_t yes = 0;  // h5py stores bool as an enumeration
    out.is_bool = number == H5T_ENUM && out.element == 1 &&
                  ::H5Tenum_valueof(type, "TRUE", &yes) >= 0 && yes == 1;
    if (out.is_bool) name = "bool";
    constexpr bool is_little = std::endian::native == std::endian::little;
    out.is_swapped = ::H5Tget_order(type) == (is_little ? H5T_ORDER_BE : H5T_ORDER_LE);
    if (name == spec.type || (spec.type == "uint16" && name.ends_with("float16"))) return;
    throw element_type_mismatch(path(), 0, "elements of type " + spec.type + of_, name);
  }

  void read_lengths(::hid_t space, const hdf5_spec& spec, hdf5_array& out) const {
    const std::size_t rank = spec.extents.size() + 1;
    const int found = require(::H5Sget_simple_extent_ndims(space), "dimensions");
    if (found != static_cast<int>(rank)) {
      throw dimension_mismatch(path(), 0, std::to_string(rank) + " dimensions" + of_,
                               std::to_string(found));
    }
    out.lengths.resize(rank);
    require(::H5Sget_simple_extent_dims(space, out.lengths.data(), nullptr), "dimensions");
    for (std::size_t d = 1; d < rank; ++d) {
      const std::size_t expected = spec.extents[d - 1];
      if (expected == dyn ? out.lengths[d] > 0 : out.lengths[d] == expected) continue;
      throw dimension_mismatch(path(), 0,
                               (expected == dyn ? "1 or more" : std::to_string(expected)) +
                                   " in dimension " + std::to_string(d) + of_,
                               std::to_string(out.lengths[d]));
    }
  }

  void read_layout(::hid_t made, hdf5_array& out) const {
    out.chunk = out.lengths;
    out.chunk[0] = (std::max)(out.chunk[0], 1ULL);
    const ::H5D_layout_t layout = ::H5Pget_layout(made);
    if (layout == H5D_CHUNKED) {
      const int rank = static_cast<int>(out.chunk.size());
      unsigned options = 0;
      const int found = require(::H5Pget_chunk(made, rank, out.chunk.data()), "chunks");
      if (found != rank || std::ranges::count(out.chunk, 0U) != 0) {
        reject("chunks of the same rank", "other chunks: the file is damaged");
      }
      require(::H5Pget_chunk_opts(made, &options), "chunks");
      if (options != 0)
        reject("filters of all chunks", "partial chunks without them: use h5repack");
    } else if (layout != H5D_CONTIGUOUS || ::H5Pget_external_count(made) != 0) {
      reject("a contiguous or chunked layout",
             layout == H5D_COMPACT ? "a compact one: use h5repack -l CONTI"
                                   : "values in other files: use h5repack -l CONTI");
    }
    for (int i = 0; i < require(::H5Pget_nfilters(made), "filters"); ++i) {
      unsigned width = 1;
      std::size_t count = 1;
      unsigned ignored = 0;
      std::array<char, 64> name{};
      const int number = require(::H5Pget_filter2(made, static_cast<unsigned>(i), &ignored, &count,
                                                  &width, name.size(), name.data(), &ignored),
                                 "filters");
      const auto id = static_cast<hdf5_filter_id>(number);
      if (id != hdf5_filter_id::deflate && id != hdf5_filter_id::shuffle &&
          id != hdf5_filter_id::lzf) {
        reject("no filters except deflate, shuffle and lzf",
               std::to_string(number) + " (" + name.data() + "): use h5repack -f GZIP=4");
      }
      out.filters.push_back({id, (std::max)(width, 1U)});
    }
    constexpr std::uint64_t max_cells = std::uint64_t{1} << 28;
    if (out.measure() && out.cells <= max_cells) return;
    throw dimension_mismatch(path(), 0, "at most 2^28 chunks, and a size of 64 bits" + of_,
                             "larger dimensions, or smaller chunks");
  }

  void add(const hdf5_chunk& one, hdf5_array& out) const {
    const std::uint64_t size = reads_.file->size();
    const std::string what = std::to_string(one.bytes) + " bytes at " + std::to_string(one.offset);
    if (one.offset > size || one.bytes > size - one.offset) {
      throw file_truncated(path(), size, what + of_, "the end of the file");
    }
    if (out.filters.empty() && one.bytes != out.chunk_bytes) {
      throw file_corrupt(path(), one.offset, std::to_string(out.chunk_bytes) + " bytes" + of_,
                         what);
    }
    out.chunks.push_back(one);
  }

  void list_chunks(::hid_t set, ::hid_t space, hdf5_array& out) {
#if H5_VERSION_GE(2, 0, 0)
    const auto read_chunk = &::H5Dread_chunk1;
#else
    const auto read_chunk = &::H5Dread_chunk;
#endif
    ::hsize_t count = 0;
    limit_time((std::min)(out.cells, reads_.file->size()));  // a chunk takes a byte or more
    require(::H5Dget_num_chunks(set, space, &count), "chunks");
    hdf5_array::sizes at(out.lengths.size());
    reads_.is_locating = true;
    for (std::uint64_t cell = 0; cell < out.cells && out.chunks.size() < count; ++cell) {
      if (cell % 65536 == 0) limit_time();
      std::uint64_t rest = cell;
      for (std::size_t d = at.size(); d-- > 0; rest /= out.grid[d]) {
        at[d] = rest % out.grid[d] * out.chunk[d];
      }
      hdf5_chunk one{.cell = cell};
      reads_.chunk_bytes = 0;
      std::byte unused{};  // the driver does not write the chunk
      if (read_chunk(set, H5P_DEFAULT, at.data(), &one.skipped, &unused) < 0) continue;
      one.offset = reads_.chunk_offset;
      one.bytes = reads_.chunk_bytes;
      add(one, out);
    }
    reads_.is_locating = false;
    // libhdf5 fails for missing chunks, and for damaged indexes.
    if (out.chunks.size() != count || reads_.problem != nullptr) {
      reject(std::to_string(count) + " chunks", std::to_string(out.chunks.size()));
    }
  }

  const bool is_child_;
  hdf5_reads reads_;
  std::string of_;  // the dataset in messages
  hdf5_id<&::H5Pclose> access_{::H5Pcreate(H5P_FILE_ACCESS)};
  hdf5_id<&::H5FDunregister> driver_{::H5FDregister(std::array{hdf5_driver::methods()}.data())};
  std::unique_ptr<hdf5_id<&::H5Fclose>> file_;
};

/// Numbers of error types, starting at 1. The number 0 is any other `file_error`.
template <class... Errors>
struct error_numbers {
  [[nodiscard]] static std::uint8_t of(const file_error& problem) noexcept {
    std::uint8_t at = 0;
    std::uint8_t found = 0;
    ((++at, found = typeid(problem) == typeid(Errors) ? at : found), ...);
    return found;
  }
  [[noreturn]] static void raise(std::uint8_t number, const std::string& path, std::uint64_t offset,
                                 const std::string& expected, const std::string& found) {
    ((--number == 0 ? throw Errors(path, offset, expected, found) : void()), ...);
    throw file_error(path, offset, expected, found);
  }
};
using hdf5_errors = error_numbers<file_unreadable, file_truncated, file_corrupt, file_format_error,
                                  element_type_mismatch, dimension_mismatch>;

/// Sends or receives the members of `array` that `measure` does not compute.
template <class Stream, class Array>
void transfer_hdf5_array(Stream& stream, Array& array) {
  stream(array.name);
  stream(array.lengths);
  stream(array.chunk);
  stream(array.element);
  stream(array.is_swapped);
  stream(array.is_bool);
  stream(array.filters);
  stream(array.fill);
  stream(array.chunks);
}

/// Throws the error of a child process that ended without a list of `file`.
[[noreturn]] inline void throw_child_ended(const shard_file& file, const child_ended& problem) {
  const std::string what = std::string{"libhdf5 "} + problem.what();
  if (problem.by_signal == SIGALRM) {
    throw file_unreadable(file.path(), 0, "a child process that can use libhdf5",
                          "a lock that another thread held during fork(): open the file before "
                          "other threads use libhdf5, or set .child_process = false");
  }
  if (problem.by_signal == SIGKILL) {
    throw file_unreadable(file.path(), 0, "enough memory and processor time for libhdf5",
                          what + ": raise the limits (ulimit -H -t)");
  }
  throw file_corrupt(file.path(), 0, "metadata that libhdf5 can read",
                     what + ": restore the file, or write it again");
}

/// Lists the datasets of `file`, in a child process if `in_child` is true. Throws the errors of
/// `hdf5_index`, and `std::bad_alloc`. Throws `file_corrupt` if libhdf5 ended the child, and
/// `file_unreadable` if the child cannot be started, or if it cannot use libhdf5 after
/// `start_seconds`. No other thread may use libhdf5 during the call, except to call this function.
[[nodiscard]] inline std::vector<hdf5_array> list_hdf5(const shard_file& file,
                                                       const std::vector<hdf5_spec>& specs,
                                                       bool in_child, ::pid_t (*fork)() = &::fork,
                                                       unsigned start_seconds = 10) {
  const hdf5_lock lock;
  const auto list = [&] {
    hdf5_index index{file, in_child};
    std::vector<hdf5_array> arrays;
    for (const hdf5_spec& spec : specs) arrays.push_back(index.array(spec));
    return arrays;
  };
  if (!in_child) return list();
  constexpr std::uint8_t is_listed = 254;
  constexpr std::uint8_t no_memory = 255;
  const auto work = [&](const child_output& output) {
    // A lock that another thread held during fork() is never released here. If libhdf5, the
    // allocator and exceptions work once, their locks are free, because the child has one thread.
    ::alarm(start_seconds);
    {
      ::H5E_auto2_t unused = nullptr;
      void* data = nullptr;
      ::H5Eget_auto2(H5E_DEFAULT, &unused, &data);
    }
    try {
      throw child_ended("the allocator and exceptions work");
    } catch (const child_ended&) {
      ::alarm(0);
    }
    try {
      const auto arrays = list();
      output(is_listed);
      for (const hdf5_array& array : arrays) transfer_hdf5_array(output, array);
    } catch (const file_error& problem) {
      output(hdf5_errors::of(problem));
      output(problem.path());
      output(problem.offset());
      output(problem.expected());
      output(problem.found());
    } catch (const std::bad_alloc&) {
      output(no_memory);
    }
  };
  try {
    child_process child{work, fork};
    std::uint8_t kind = 0;
    child(kind);
    if (kind == no_memory) throw std::bad_alloc();
    if (kind == is_listed) {
      std::vector<hdf5_array> arrays(specs.size());
      for (hdf5_array& array : arrays) {
        transfer_hdf5_array(child, array);
        const bool is_possible = !array.lengths.empty() &&
                                 array.chunk.size() == array.lengths.size() &&
                                 std::ranges::count(array.chunk, 0U) == 0 && array.measure();
        if (!is_possible) throw child_ended("sent a damaged result");
      }
      return arrays;
    }
    std::string path;
    std::uint64_t offset = 0;
    std::string expected;
    std::string found;
    child(path);
    child(offset);
    child(expected);
    child(found);
    hdf5_errors::raise(kind, path, offset, expected, found);
  } catch (const child_ended& problem) {
    throw_child_ended(file, problem);
  } catch (const std::system_error& problem) {
    throw file_unreadable(file.path(), 0, "a child process for libhdf5",
                          problem.code().message() +
                              ": raise the limits (ulimit -n -u), or set .child_process = false");
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
