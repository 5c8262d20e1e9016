// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/indexed/hdf5/hdf5_dataset.hpp>

#include <hdf5.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <latch>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock_ext/narrow/half.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>

#include "data/read_batch.hpp"
#include "ext/hdf5/written.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::done;
using test::error_of;
using test::has;
using test::hdf5_writer;
using test::made_array;
using test::read_batch;
using test::sizes;

namespace {

// The types of a record of datasets with 1 to 5 dimensions.
template <class T1, class T2, class T3, class T4, class T5>
using ranks = ps::record<ps::field<"r1", T1>, ps::field<"r2", T2, ps::dyn>,
                         ps::field<"r3", T3, ps::dyn, ps::dyn>,
                         ps::field<"r4", T4, ps::dyn, ps::dyn, ps::dyn>,
                         ps::field<"r5", T5, ps::dyn, ps::dyn, ps::dyn, ps::dyn>>;
using first_record = ranks<std::uint8_t, std::int16_t, float, double, std::int32_t>;
using second_record = ranks<std::int64_t, std::uint32_t, std::int8_t, std::uint16_t, std::uint64_t>;
using third_record = ranks<ps::half, bool, std::int64_t, std::uint8_t, float>;
using fourth_record = ranks<double, std::uint64_t, bool, ps::half, std::int16_t>;

using number = ps::record<ps::field<"x", std::int32_t>>;

/// An element in memory as libhdf5 reads it.
template <class T>
using stored =
    std::conditional_t<std::is_same_v<T, bool>, std::uint8_t,
                       std::conditional_t<std::is_same_v<T, ps::half>, std::uint16_t, T>>;

/// Returns a new description of bool, as stored by h5py.
hid_t new_bool_type() {
  const hid_t type = done(H5Tenum_create(H5T_STD_I8LE));
  const std::int8_t values[] = {0, 1};
  done(H5Tenum_insert(type, "FALSE", &values[0]));
  done(H5Tenum_insert(type, "TRUE", &values[1]));
  return type;
}

/// Returns a new description of float16.
hid_t new_half_type(bool is_big) {
  const hid_t type = done(H5Tcopy(is_big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE));
  done(H5Tset_fields(type, 15, 10, 5, 0, 10));
  done(H5Tset_size(type, 2));
  done(H5Tset_ebias(type, 15));
  return type;
}

/// Returns two descriptions of the type `T`: in a file, with either byte order, and in memory.
template <class T>
std::pair<hid_t, hid_t> types_of(bool is_big) {
  if constexpr (std::is_same_v<T, bool>) {
    static const hid_t type = new_bool_type();
    return {type, type};
  } else if constexpr (std::is_same_v<T, ps::half>) {
    static const hid_t orders[] = {new_half_type(false), new_half_type(true)};
    return {orders[is_big ? 1 : 0], orders[std::endian::native == std::endian::big ? 1 : 0]};
  } else if constexpr (std::is_same_v<T, float>) {
    return {is_big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE, H5T_NATIVE_FLOAT};
  } else if constexpr (std::is_same_v<T, double>) {
    return {is_big ? H5T_IEEE_F64BE : H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE};
  } else {
    const hid_t big[] = {H5T_STD_U8BE, H5T_STD_U16BE, H5T_STD_U32BE, H5T_STD_U64BE,
                         H5T_STD_I8BE, H5T_STD_I16BE, H5T_STD_I32BE, H5T_STD_I64BE};
    const hid_t little[] = {H5T_STD_U8LE, H5T_STD_U16LE, H5T_STD_U32LE, H5T_STD_U64LE,
                            H5T_STD_I8LE, H5T_STD_I16LE, H5T_STD_I32LE, H5T_STD_I64LE};
    const hid_t native[] = {H5T_NATIVE_UINT8,  H5T_NATIVE_UINT16, H5T_NATIVE_UINT32,
                            H5T_NATIVE_UINT64, H5T_NATIVE_INT8,   H5T_NATIVE_INT16,
                            H5T_NATIVE_INT32,  H5T_NATIVE_INT64};
    const auto at =
        static_cast<std::size_t>(std::countr_zero(sizeof(T))) + (std::is_signed_v<T> ? 4U : 0U);
    return {is_big ? big[at] : little[at], native[at]};
  }
}

/// Returns the filters of a dataset with chunks of so many bytes.
std::vector<test::filter> random_filters(std::uint64_t bytes, std::mt19937_64& random) {
  std::vector<test::filter> filters;
  if (random() % 2 == 0) filters.push_back(test::shuffle);
  const std::uint64_t kind = random() % 3;
  if (kind == 1) filters.push_back(test::deflate);
  if (kind == 2) filters.push_back({test::lzf.id, {static_cast<unsigned>(bytes)}});
  return filters;
}

/// Writes a dataset of random shape. Some of its chunks may be missing.
template <class T>
void write_random(const hdf5_writer& to, const std::string& name, std::size_t rank,
                  std::uint64_t samples, std::mt19937_64& random) {
  const auto draw = [&](std::uint64_t end) { return random() % end; };
  made_array array{.name = name, .type = 0, .lengths = {samples}};
  for (std::size_t d = 1; d < rank; ++d) array.lengths.push_back(1 + draw(5));
  const auto [in_file, native] = types_of<T>(draw(2) == 0);
  array.type = in_file;
  if (draw(5) != 0) {  // otherwise contiguous
    if (draw(2) == 0) array.unlimited = 1 + draw(rank);
    std::uint64_t bytes = sizeof(T);
    for (std::size_t d = 0; d < rank; ++d) {
      const bool is_whole = d != 0 && draw(2) == 0;
      array.chunk.push_back(is_whole ? array.lengths[d] : 1 + draw(array.lengths[d]));
      if (d == 0 && array.unlimited != 0 && draw(4) == 0) array.chunk[0] = samples + 3;
      bytes *= array.chunk[d];
    }
    array.filters = random_filters(bytes, random);
  }
  stored<T> fill{};
  std::memcpy(&fill, "\1\2\3\4\0\0\x50\x3f", sizeof(T));
  if (draw(2) == 0) array.fill = &fill;
  std::uint64_t count = 1;
  for (const hsize_t length : array.lengths) count *= length;
  std::vector<stored<T>> values(count);
  for (auto& one : values) one = static_cast<stored<T>>(draw(std::is_same_v<T, bool> ? 2 : 100));
  const hid_t set = to.create(array);
  // Writes some samples, or none.
  sizes begin(rank);
  sizes part = array.lengths;
  begin[0] = draw(3) == 0 ? draw(samples) : 0;
  part[0] = draw(3) == 0 ? draw(samples - begin[0] + 1) : samples - begin[0];
  const hid_t space = done(H5Dget_space(set));
  const hid_t memory = done(H5Screate_simple(static_cast<int>(rank), part.data(), nullptr));
  done(H5Sselect_hyperslab(space, H5S_SELECT_SET, begin.data(), nullptr, part.data(), nullptr));
  if (part[0] != 0) done(H5Dwrite(set, native, memory, space, H5P_DEFAULT, values.data()));
  H5Sclose(memory);
  H5Sclose(space);
  H5Dclose(set);
}

/// The bytes of each sample of each dataset. A sample that libhdf5 cannot read is empty.
using contents = std::vector<std::vector<test::file_bytes>>;

/// The positions of the bytes in a file that contain elements of a dataset.
using byte_ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

template <auto Close>
using closed_id = ps::detail::hdf5_id<Close>;

/// Number of samples that tests compare. A damaged file may have more samples.
constexpr std::size_t max_samples = 12;

/// Returns the first samples of a dataset, each read by its own call of libhdf5.
template <class T>
std::vector<test::file_bytes> samples_by_libhdf5(hid_t file, const std::string& name) {
  const closed_id<&H5Dclose> set{done(H5Dopen2(file, name.c_str(), H5P_DEFAULT))};
  const closed_id<&H5Sclose> space{done(H5Dget_space(set))};
  const int rank = done(H5Sget_simple_extent_ndims(space));
  sizes part(static_cast<std::size_t>(rank));
  done(H5Sget_simple_extent_dims(space, part.data(), nullptr));
  std::vector<test::file_bytes> all(std::min(max_samples, std::size_t{std::exchange(part[0], 1)}));
  sizes begin(part.size());
  const closed_id<&H5Sclose> memory{done(H5Screate_simple(rank, part.data(), nullptr))};
  const auto count = static_cast<std::size_t>(done(H5Sget_simple_extent_npoints(memory)));
  for (; begin[0] < all.size(); ++begin[0]) {
    done(H5Sselect_hyperslab(space, H5S_SELECT_SET, begin.data(), nullptr, part.data(), nullptr));
    test::file_bytes& sample = all[begin[0]];
    sample.resize(count * sizeof(T));
    const hid_t native = types_of<T>(false).second;
    if (H5Dread(set, native, memory, space, H5P_DEFAULT, sample.data()) < 0) sample.clear();
    if (!std::is_same_v<T, bool>) continue;
    for (std::uint8_t& one : sample) one = one != 0 ? 1 : 0;
  }
  return all;
}

template <class Record>
contents contents_by_libhdf5(const std::string& path) {
  const ps::detail::hdf5_lock quiet;
  const closed_id<&H5Fclose> file{done(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT))};
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return contents{samples_by_libhdf5<typename Record::template field_at<Is>::value_type>(
        file, 'r' + std::to_string(Is + 1))...};
  }(std::make_index_sequence<Record::size>{});
}

/// Returns the places of the chunks of a dataset, or of the whole dataset if it is contiguous.
byte_ranges stored_ranges(const std::string& path, const std::string& name) {
  const ps::detail::hdf5_lock quiet;
  const closed_id<&H5Fclose> file{done(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT))};
  const closed_id<&H5Dclose> set{done(H5Dopen2(file, name.c_str(), H5P_DEFAULT))};
  const closed_id<&H5Pclose> made{done(H5Dget_create_plist(set))};
  const hsize_t stored_bytes = H5Dget_storage_size(set);
  if (H5Pget_layout(made) != H5D_CHUNKED && stored_bytes == 0) return {};
  if (H5Pget_layout(made) != H5D_CHUNKED) return {{H5Dget_offset(set), stored_bytes}};
  const closed_id<&H5Sclose> space{done(H5Dget_space(set))};
  hsize_t count = 0;
  done(H5Dget_num_chunks(set, space, &count));
  byte_ranges all(count);
  sizes at(5);
  unsigned skipped = 0;
  for (hsize_t i = 0; i < count; ++i) {
    hsize_t size = 0;
    haddr_t offset = 0;
    done(H5Dget_chunk_info(set, space, i, at.data(), &skipped, &offset, &size));
    all[i] = {offset, size};
  }
  return all;
}

/// Checks the values of the samples `indices`, which are those in a batch.
template <class Batch>
void check_samples(const Batch& batch, const std::vector<std::uint64_t>& indices,
                   const contents& expected) {
  for (std::size_t field = 0; field < expected.size(); ++field) {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const test::file_bytes& sample = expected[field][indices[i]];
      if (!sample.empty() &&
          std::memcmp(batch[i].address(field), sample.data(), sample.size()) == 0)
        continue;
      FAIL("sample " << indices[i] << " of dataset r" << field + 1);
    }
  }
}

/// Options for files with intact metadata. Forking takes longer than listing such a file.
const ps::hdf5_options in_process{.cache_bytes = 1 << 17, .child_process = false};

/// Flips bits in elements of a dataset. Each sample then has the values that libhdf5 reads from
/// the damaged file, or is an error for both. Returns the number of errors.
template <class Record>
std::size_t errors_after_flips(const std::string& path, std::mt19937_64& random) {
  std::string bytes = test::content_of(path);
  const byte_ranges ranges = stored_ranges(path, 'r' + std::to_string(1 + random() % 5));
  if (ranges.empty()) return 0;
  for (std::uint64_t flips = 1 + random() % 3; flips != 0; --flips) {
    const auto [begin, size] = ranges[random() % ranges.size()];
    char& one = bytes.at(begin + random() % size);
    one = static_cast<char>(one ^ static_cast<char>(1U << random() % 8));
  }
  std::ofstream{path, std::ios::binary} << bytes;
  const contents expected = contents_by_libhdf5<Record>(path);
  const ps::hdf5_dataset<Record> data{path, in_process};
  std::size_t errors = 0;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    const auto fails = [&](const auto& samples) { return samples[i].empty(); };
    try {
      check_samples(read_batch(data, {i}).view(), {i}, expected);
    } catch (const ps::file_corrupt&) {
      ++errors;
      if (std::ranges::none_of(expected, fails)) FAIL("libhdf5 reads sample " << i);
    }
  }
  return errors;
}

/// Writes a file with random datasets.
template <class Record>
void write_random_file(const std::string& path, std::uint64_t samples, hsize_t user_block,
                       std::mt19937_64& random) {
  const hdf5_writer to{path, random() % 2 == 0, user_block};
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (write_random<typename Record::template field_at<Is>::value_type>(
         to, 'r' + std::to_string(Is + 1), Is + 1, samples, random),
     ...);
  }(std::make_index_sequence<Record::size>{});
}

/// Writes a file and compares its samples with libhdf5, first whole, then with flipped bits, then
/// cut. Returns the number of samples that are errors because of flipped bits.
template <class Record>
std::size_t check_random_file(const std::string& path, std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  const std::uint64_t samples = 1 + random() % max_samples;
  const bool has_user_block = random() % 4 == 0;
  write_random_file<Record>(path, samples, has_user_block ? 512U : 0U, random);
  {
    const ps::hdf5_dataset<Record> data{path, in_process};
    REQUIRE(data.size() == samples);
    std::vector<std::uint64_t> order(samples);
    std::iota(order.begin(), order.end(), 0U);
    if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    check_samples(read_batch(data, order).view(), order, contents_by_libhdf5<Record>(path));
  }
  if (has_user_block) return 0;  // libhdf5 gives positions without it
  const std::size_t errors = errors_after_flips<Record>(path, random);
  std::filesystem::resize_file(path, random() % std::filesystem::file_size(path));
  CHECK_THROWS_AS(ps::hdf5_dataset<Record>(path), ps::file_error);
  return errors;
}

/// Returns the contents of a damaged file as `contents_by_libhdf5`, or nothing if libhdf5 fails.
template <class Record>
contents damaged_by_libhdf5(const std::string& path) {
  ps::detail::child_process child{[&](const ps::detail::child_output& output) {
    ps::detail::child_process::limit_processor_time(10);
    contents all;
    try {
      all = contents_by_libhdf5<Record>(path);
    } catch (const std::exception&) {
    }
    output(all.size());
    for (const auto& samples : all) {
      output(samples.size());
      for (const auto& sample : samples) output(sample);
    }
  }};
  try {
    std::size_t size = 0;
    child(size);
    contents all(size);
    for (auto& samples : all) {
      child(size);
      samples.resize(size);
      for (auto& sample : samples) child(sample);
    }
    return all;
  } catch (const ps::detail::child_ended&) {
    return {};
  }
}

/// Damages a file anywhere: flips bits, writes zeros or random bytes, or cuts the file.
void damage(std::string& bytes, std::mt19937_64& random) {
  const std::size_t at = random() % bytes.size();
  const std::size_t count = std::min<std::size_t>(1 + random() % 64, bytes.size() - at);
  switch (random() % 8) {
    case 0:
      bytes.resize(at);
      return;
    case 1:
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, '\0');
      return;
    case 2:
      for (std::size_t i = 0; i < count; ++i) bytes[at + i] = static_cast<char>(random());
      return;
    default:
      for (std::size_t flips = 1 + random() % 3; flips != 0; --flips) {
        char& one = bytes[random() % bytes.size()];
        one = static_cast<char>(one ^ static_cast<char>(1U << random() % 8));
      }
  }
}

/// Checks that the sample in a batch has the values in `damaged` or in `original`.
template <class Batch>
void check_damaged_sample(const Batch& batch, std::uint64_t index, const contents& damaged,
                          const contents& original) {
  for (std::size_t field = 0; field < damaged.size(); ++field) {
    const auto matches = [&](const contents& all) {
      if (index >= all[field].size()) return false;
      const test::file_bytes& sample = all[field][index];
      return std::memcmp(batch[0].address(field), sample.data(), sample.size()) == 0;
    };
    if (matches(damaged) || matches(original)) continue;
    FAIL("sample " << index << " of dataset r" << field + 1);
  }
}

/// Reads a damaged file, and checks that each sample is an error of this library, or has the value
/// in the damaged or in the original file. Returns true if the file was opened.
template <class Record>
bool check_damaged_file(const std::string& path, const contents& original) {
  try {
    const ps::hdf5_dataset<Record> data{path, {.cache_bytes = 1 << 17}};
    if (ps::batch_layout<Record>{data.extents(), 1}.bytes() > 1 << 20) return true;
    const contents damaged = damaged_by_libhdf5<Record>(path);
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(data.size(), max_samples); ++i) {
      try {
        check_damaged_sample(read_batch(data, {i}).view(), i, damaged, original);
      } catch (const ps::file_error&) {
      }
    }
    return true;
  } catch (const ps::error&) {
    return false;
  }
}

/// Damages copies of a random file. Returns the number of files that were opened.
template <class Record>
std::size_t opened_after_damage(const std::string& path, std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  write_random_file<Record>(path, 1 + random() % max_samples, 0, random);
  const contents original = contents_by_libhdf5<Record>(path);
  const std::string whole = test::content_of(path);
  std::size_t opened = 0;
  for (int copy = 0; copy < 4; ++copy) {
    CAPTURE(copy);
    std::string bytes = whole;
    damage(bytes, random);
    std::ofstream{path, std::ios::binary} << bytes;
    if (check_damaged_file<Record>(path, original)) ++opened;
  }
  return opened;
}

std::vector<std::int32_t> counted(std::size_t count) {
  std::vector<std::int32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

template <class T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
  std::vector<std::uint8_t> all(values.size() * sizeof(T));
  std::memcpy(all.data(), values.data(), all.size());
  return all;
}

/// Writes a file whose dataset x contains the numbers 0, 1, 2, and so on.
std::string write_numbers(const std::string& path, std::size_t count, const sizes& chunk,
                          const std::vector<test::filter>& filters) {
  hdf5_writer{path}.write({"x", H5T_STD_I32LE, {count}, chunk, filters}, H5T_NATIVE_INT32,
                          counted(count));
  return path;
}

/// Returns the numbers 0, 1, 4, 9, and so on.
std::vector<std::int32_t> squares(std::size_t count) {
  std::vector<std::int32_t> all = counted(count);
  for (std::int32_t& one : all) one *= one;
  return all;
}

/// Writes a file whose dataset x is a single deflate chunk. Returns the deflate stream, which
/// libhdf5 has made.
std::vector<std::uint8_t> deflated(const std::string& path,
                                   const std::vector<std::int32_t>& values) {
  const hdf5_writer to{path};
  const sizes length{values.size()};
  to.write({"x", H5T_STD_I32LE, length, length, {test::deflate}}, H5T_NATIVE_INT32, values);
  done(H5Fflush(to.file(), H5F_SCOPE_GLOBAL));
  const hid_t set = done(H5Dopen2(to.file(), "x", H5P_DEFAULT));
  const hsize_t first = 0;
  unsigned skipped = 0;
  haddr_t at = 0;
  hsize_t size = 0;
  done(H5Dget_chunk_info_by_coord(set, &first, &skipped, &at, &size));
  H5Dclose(set);
  const std::string stream = test::content_of(path).substr(at, size);
  return {stream.begin(), stream.end()};
}

/// Replaces a byte of a file.
void write_byte(const std::string& path, std::size_t at, std::uint8_t byte) {
  std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte));
}

/// Writes a file whose dataset x is a single deflate chunk of 100 numbers with the content `bytes`.
void write_chunk(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  hdf5_writer{path}.write_raw({"x", H5T_STD_I32LE, {100}, {100}, {test::deflate}}, {{{0}, bytes}});
}

/// Calls `write_chunk` and returns the error of reading the first number.
std::string chunk_error(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  write_chunk(path, bytes);
  const ps::hdf5_dataset<number> data{path, in_process};
  return error_of<ps::file_corrupt>([&] { read_batch(data, {0}); }).what();
}

/// Returns the error of opening a file, which is the same in a child process and without one.
template <class Error, class Record = number>
std::string rejection(const std::string& path, ps::hdf5_options options = {}) {
  const auto open = [&] { ps::hdf5_dataset<Record>{path, options}; };
  const Error in_child = error_of<Error>(open);
  options.child_process = false;
  const Error here = error_of<Error>(open);
  CHECK(in_child.what() == std::string{here.what()});
  if constexpr (std::is_base_of_v<ps::file_error, Error>) {
    CHECK(in_child.path() == here.path());
    CHECK(in_child.offset() == here.offset());
    CHECK(in_child.expected() == here.expected());
    CHECK(in_child.found() == here.found());
  }
  return here.what();
}

/// Calls `check` with the seeds below `count`, for one of four records each.
template <class Check>
void for_each_seed(std::uint64_t count, const Check& check) {
  for (std::uint64_t seed = 0; seed < count; seed += 4) {
    check.template operator()<first_record>(seed);
    check.template operator()<second_record>(seed + 1);
    check.template operator()<third_record>(seed + 2);
    check.template operator()<fourth_record>(seed + 3);
  }
}

}  // namespace

TEST_CASE("thousands of HDF5 files have the values or the errors of libhdf5, whole and damaged",
          "[hdf5][large][fault:files-29]") {
  const test::temp_dir dir;
  const test::lzf_in_libhdf5 lzf;
  std::size_t errors = 0;
  for_each_seed(2000, [&]<class Record>(std::uint64_t seed) {
    errors += check_random_file<Record>(dir.path("a.h5"), seed);
  });
  CHECK(errors > 1000);
}

TEST_CASE("1,200 HDF5 files damaged anywhere give typed errors or values of one of the files",
          "[hdf5][large][fault:files-29]") {
  const test::temp_dir dir;
  const test::lzf_in_libhdf5 lzf;
  std::size_t opened = 0;
  for_each_seed(300, [&]<class Record>(std::uint64_t seed) {
    opened += opened_after_damage<Record>(dir.path("a.h5"), seed);
  });
  CHECK(opened > 250);
  CHECK(opened < 1150);
}

TEST_CASE("metadata that crashes libhdf5 is reported as a damaged file", "[hdf5][fault:files-29]") {
  const test::temp_dir dir;
  const std::string path = write_numbers(dir.path("a.h5"), 10000, {100}, {});
  const std::string whole = test::content_of(path);
  // Version 3, chunked, 2 dimensions, the address of the index, 100 elements of 4 bytes.
  const std::size_t layout = whole.find(std::string("d\0\0\0\4\0\0\0", 8)) - 11;
  REQUIRE(whole.substr(layout, 3) == "\3\2\2");
  std::uint64_t root = 0;
  std::memcpy(&root, &whole[layout + 3], 8);
  REQUIRE(whole.substr(root, 6) == std::string("TREE\1\1", 6));
  const auto error_with = [&](std::size_t at, std::string_view bytes) {
    std::ofstream{path, std::ios::binary} << std::string{whole}.replace(at, bytes.size(), bytes);
    const auto error = error_of<ps::file_corrupt>([&] { ps::hdf5_dataset<number>{path}; });
    CHECK(error.path() == path);
    CHECK(error.expected() == "metadata that libhdf5 can read");
    return error.found();
  };
  const std::string remedy = ": restore the file, or write it again";
  const std::string divided = "libhdf5 ended by signal 8 (Floating point exception)" + remedy;
  CHECK(error_with(layout, "\2") == divided);
  CHECK(error_with(layout + 2, std::string_view("\0", 1)) == divided);
  // The root of the index becomes its own child.
  CHECK(error_with(root + 48, whole.substr(layout + 3, 8)) ==
        "libhdf5 ended by signal 11 (Segmentation fault)" + remedy);
}

TEST_CASE("an HDF5 dataset whose dimensions exceed its space is an error",
          "[hdf5][fault:files-29]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  {
    const hdf5_writer to{path};
    to.write({"x", H5T_STD_I32LE, {7919}}, H5T_NATIVE_INT32, counted(7919));
    to.write({"y", H5T_STD_I32LE, {100}}, H5T_NATIVE_INT32, counted(100));
  }
  std::string bytes = test::content_of(path);
  const std::size_t length = bytes.find(std::string("\xef\x1e\0\0\0\0\0\0", 8));
  REQUIRE(length != std::string::npos);
  ++bytes[length];
  std::ofstream{path, std::ios::binary} << bytes;
  CHECK(has(rejection<ps::file_corrupt>(path), "expected 31680 bytes in dataset \"x\""));
}

TEST_CASE("listing an HDF5 file limits the processor time of the child only", "[hdf5]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  {
    // To count chunks, the child gets a second more than to look up chunks.
    const hdf5_writer to{path};
    to.write({"y", H5T_STD_I32LE, {30000}}, H5T_NATIVE_INT32, counted(30000));
    to.write_raw({"x", H5T_STD_I32LE, {110000}, {1}}, {{{109999}, {1, 0, 0, 0}}});
  }
  const ps::detail::shard_file file{path};
  std::vector<rlim_t> limits(4);
  ps::detail::child_process child{[&](const ps::detail::child_output& output) {
    const auto send_limit = [&] {
      rlimit now{};
      getrlimit(RLIMIT_CPU, &now);
      output(now.rlim_cur);
      ps::detail::child_process::limit_processor_time(100);
    };
    const ps::detail::hdf5_lock lock;
    ps::detail::hdf5_index index{file, true};
    send_limit();
    (void)index.array({"x", "x", "int32", {}});
    send_limit();
    ps::detail::hdf5_index other{file, false};
    send_limit();
    (void)other.array({"x", "x", "int32", {}});
    send_limit();
  }};
  for (rlim_t& limit : limits) child(limit);
  CHECK(limits == std::vector<rlim_t>{11, 11, 101, 101});
}

TEST_CASE("the error of a failed fork names the HDF5 file and the option", "[hdf5]") {
  const test::temp_dir dir;
  const ps::detail::shard_file file{write_numbers(dir.path("a.h5"), 10, {}, {})};
  const auto error = error_of<ps::file_unreadable>([&] {
    (void)ps::detail::list_hdf5(file, {{"x", "x", "int32", {}}}, true, []() -> ::pid_t {
      errno = EAGAIN;
      return -1;
    });
  });
  CHECK(error.expected() == "a child process for libhdf5");
  CHECK(error.found() ==
        "Resource temporarily unavailable: raise the limits (ulimit -n -u), or set .child_process "
        "= false");
}

TEST_CASE("a child that libhdf5's lock stops is an error of an HDF5 file, and does not hang",
          "[hdf5][fault:files-29]") {
  hbool_t is_threadsafe = 0;
  done(H5is_library_threadsafe(&is_threadsafe));
  if (is_threadsafe == 0) {
    WARN("not tested: this libhdf5 has no lock");
    return;
  }
  const test::temp_dir dir;
  const ps::detail::shard_file file{write_numbers(dir.path("a.h5"), 10, {}, {})};
  static std::latch is_locked{1};
  static std::latch is_forked{1};
  static std::jthread other;
  const auto error = error_of<ps::file_unreadable>([&] {
    // During fork(), another thread is in a callback of libhdf5, which then holds its lock.
    const auto fork_meanwhile = []() -> pid_t {
      other = std::jthread{[] {
        done(H5Epush2(H5E_DEFAULT, "", "", 0, H5E_ERR_CLS, H5E_FILE, H5E_CANTINIT, ""));
        const auto hold = [](unsigned, const H5E_error2_t*, void*) -> herr_t {
          is_locked.count_down();
          is_forked.wait();
          return 0;
        };
        done(H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, hold, nullptr));
        H5Eclear2(H5E_DEFAULT);
      }};
      is_locked.wait();
      const pid_t child = ::fork();
      if (child != 0) is_forked.count_down();
      return child;
    };
    (void)ps::detail::list_hdf5(file, {{"x", "x", "int32", {}}}, true, fork_meanwhile, 1);
  });
  other.join();
  CHECK(has(error.what(), "a lock that another thread held during fork()"));
  CHECK(has(error.what(), "set .child_process = false"));
}

TEST_CASE("a killed child is no damage of the HDF5 file", "[hdf5]") {
  const test::temp_dir dir;
  const ps::detail::shard_file file{write_numbers(dir.path("a.h5"), 10, {}, {})};
  const auto error = error_of<ps::file_unreadable>([&] {
    const auto fork_to_be_killed = []() -> pid_t {
      const pid_t child = ::fork();
      if (child == 0) ::raise(SIGKILL);
      return child;
    };
    (void)ps::detail::list_hdf5(file, {{"x", "x", "int32", {}}}, true, fork_to_be_killed);
  });
  CHECK(error.found() == "libhdf5 ended by signal 9 (Killed): raise the limits (ulimit -H -t)");
}

TEST_CASE("unshuffling joins the bytes of elements of any width and number", "[hdf5]") {
  std::vector<std::byte> many(8 * 200);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (std::size_t width = 1; width <= 9; ++width) {
    for (std::size_t size = 0; size <= many.size(); ++size) {
      const std::span<const std::byte> shuffled = std::span{many}.first(size);
      const std::size_t count = size / width;
      std::vector<std::byte> expected{shuffled.begin(), shuffled.end()};
      for (std::size_t i = 0; i < count * width; ++i) {
        expected[i] = shuffled[i % width * count + i / width];
      }
      std::vector<std::byte> found(size);
      ps::detail::unshuffle(shuffled, width, found.data());
      if (found != expected) FAIL("width " << width << ", " << size << " bytes");
    }
  }
}

TEST_CASE("LZF chunks and chunks without some filters are decoded", "[hdf5]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  std::vector<std::int32_t> values(200);
  for (std::size_t i = 0; i < 200; ++i) values[i] = static_cast<std::int32_t>(i * i % 60 / 7);
  const auto plain = bytes_of(values);
  std::vector<std::uint8_t> shuffled(plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) shuffled[i % 4 * 200 + i / 4] = plain[i];
  CHECK(test::lzf_packed(shuffled).size() < 200);
  hdf5_writer{path}.write_raw({"x", H5T_STD_I32LE, {800}, {200}, {test::shuffle, test::lzf}},
                              {{{0}, test::lzf_packed(shuffled)},
                               {{200}, test::lzf_packed(plain), 1},
                               {{400}, shuffled, 2},
                               {{600}, plain, 3}});
  const ps::hdf5_dataset<number> data{path};
  std::vector<std::uint64_t> order(800);
  std::iota(order.begin(), order.end(), 0U);
  auto batch = read_batch(data, order);
  const auto found = test::values<"x">(batch);
  for (std::size_t i = 0; i < 800; ++i) CHECK(found[i] == values[i % 200]);
}

TEST_CASE("batches of an HDF5 file are the same for any workers, each chunk decoded once",
          "[hdf5]") {
  const test::temp_dir dir;
  const std::string path = write_numbers(dir.path("a.h5"), 1000, {64}, {test::deflate});
  std::vector<std::vector<std::int32_t>> orders;
  for (const std::size_t workers : {0U, 1U, 4U}) {
    const ps::hdf5_dataset<number> data{path, {.cache_bytes = 6 * 64 * 4}};
    CHECK(data.block() == 64);
    ps::loader loader{data,
                      ps::block_shuffled{.seed = 5, .block = data.block()},
                      {.batch_size = 10, .workers = workers, .prefetch = 2}};
    auto& order = orders.emplace_back();
    for (auto& batch : loader.epoch(0)) {
      for (std::size_t i = 0; i < batch.size(); ++i) order.push_back(ps::get<"x">(batch)(i));
    }
    CHECK(data.decoded() == 16);
    CHECK(data.held_bytes() <= 6 * 64 * 4);
  }
  CHECK(orders[0].size() == 1000);
  CHECK(orders[1] == orders[0]);
  CHECK(orders[2] == orders[0]);
  std::sort(orders[0].begin(), orders[0].end());
  CHECK(orders[0] == counted(1000));
}

TEST_CASE("several threads open HDF5 files at the same time", "[hdf5]") {
  const test::temp_dir dir;
  const std::string path = write_numbers(dir.path("a.h5"), 100, {10}, {test::deflate});
  std::atomic<int> opened{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 20; ++k) {
          const ps::hdf5_dataset<number> data{path, {.child_process = k % 4 != 0}};
          if (test::values<"x">(read_batch(data, {57})) == std::vector<std::int32_t>{57}) ++opened;
        }
      });
    }
  }
  CHECK(opened == 80);
}

TEST_CASE("a dataset without filters is read without a cache, and needs no libhdf5", "[hdf5]") {
  const test::temp_dir dir;
  const std::string path = write_numbers(dir.path("a.h5"), 100, {}, {});
  const ps::hdf5_dataset<number> data{path, {.cache_bytes = 0}};
  const auto copy = data;
  CHECK(data.block() == 1);
  CHECK(test::values<"x">(read_batch(copy, {99, 4, 5, 6, 0})) ==
        std::vector<std::int32_t>{99, 4, 5, 6, 0});
  CHECK(data.decoded() == 0);
  CHECK(error_of<ps::index_error>([&] { read_batch(data, {100}); }).size() == 100);
}

TEST_CASE("many chunks are listed in a time that does not grow with their square", "[hdf5]") {
  const test::temp_dir dir;
  const ps::hdf5_dataset<number> data{
      write_numbers(dir.path("a.h5"), 100000, {1}, {test::shuffle})};
  CHECK(test::values<"x">(read_batch(data, {99999, 12345})) ==
        std::vector<std::int32_t>{99999, 12345});
}

TEST_CASE("bool, enumerations, halves and datasets in groups are read", "[hdf5]") {
  using other = ps::record<ps::field<"flag", bool>, ps::field<"half", ps::half, 2>,
                           ps::field<"bits", std::uint16_t, 2>>;
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  {
    const hdf5_writer to{path};
    const hid_t flag = new_bool_type();
    const hid_t half = new_half_type(true);
    to.write_raw({"train/flag", flag, {3}, {3}, {test::lzf}}, {{{0}, {2, 0, 1, 2}}});
    to.write<float>({"train/half", half, {3, 2}}, H5T_NATIVE_FLOAT, {0, 1, 2, 3, 4, -5});
    H5Tclose(half);
    H5Tclose(flag);
  }
  const ps::hdf5_dataset<other> data{path,
                                     {.datasets = {"train/flag", "train/half", "/train/half"}}};
  auto batch = read_batch(data, {2, 0, 1});
  CHECK(test::values<"flag">(batch) == std::vector<bool>{true, false, true});
  CHECK(*static_cast<const std::uint8_t*>(static_cast<const void*>(batch.view()[0].address(0))) ==
        1);  // stored as 2
  CHECK(static_cast<float>(batch.get<"half">()(0, 1)) == -5.0F);
  CHECK(batch.get<"bits">()(2, 1) == 0x4200);
  CHECK(has(rejection<ps::option_error>(path, {.datasets = {"train/flag", "train/half"}}),
            "must name 1"));
}

TEST_CASE("errors of HDF5 files name the dataset, the expected and the found value",
          "[hdf5][fault:files-29]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  using row = ps::record<ps::field<"x", std::int32_t, 4>>;
  using any = ps::record<ps::field<"x", std::int32_t, ps::dyn>>;
  using two = ps::record<ps::field<"x", std::int32_t>, ps::field<"y", std::int32_t>>;
  const auto write = [&](const made_array& array) { H5Dclose(hdf5_writer{path}.create(array)); };

  CHECK(has(rejection<ps::file_unreadable>(dir.path("none.h5")), "none.h5"));
  CHECK(has(rejection<ps::file_format_error>(dir.write("b.h5", {1, 2, 3})),
            "expected an HDF5 file, found file signature not found"));
  CHECK(has(rejection<ps::file_format_error>(dir.write("b.npy", {0x93, 'N', 'U', 'M', 'P', 'Y'})),
            "an npy file"));
  write({"x", H5T_STD_I32LE, {100}});
  {
    const std::string whole = test::content_of(path);
    CHECK(
        has(rejection<ps::file_truncated>(dir.write("c.h5", {whole.begin(), whole.begin() + 1000})),
            "truncated file: eof = 1000"));
  }
  CHECK(has(rejection<ps::file_format_error>(path, {.datasets = {"z"}}),
            "expected values in dataset \"z\" for field \"x\", found object 'z' doesn't exist"));
  CHECK(has(rejection<ps::file_format_error>(path, {.datasets = {"/"}}), "not a dataset"));
  CHECK(
      has(rejection<ps::dimension_mismatch, row>(path), "expected 2 dimensions in dataset \"x\""));
  write({"x", H5T_STD_I32LE, {100, 3}});
  CHECK(has(rejection<ps::dimension_mismatch>(path), "found 2"));
  CHECK(has(rejection<ps::dimension_mismatch, row>(path), "expected 4 in dimension 1"));
  write({"x", H5T_STD_I32LE, {100, 0}});
  CHECK(has(rejection<ps::dimension_mismatch, any>(path), "expected 1 or more in dimension 1"));
  write({"x", H5T_STD_I32LE, {std::uint64_t{1} << 32, std::uint64_t{1} << 30}, {1, 1}});
  CHECK(has(rejection<ps::dimension_mismatch, any>(path), "2^28 chunks"));
  write({"x", H5T_IEEE_F32LE, {100}});
  CHECK(has(rejection<ps::element_type_mismatch>(path),
            "expected elements of type int32 in dataset \"x\" for field \"x\", found float32"));
  for (const auto& [type, name] : {std::pair{H5T_STD_U32LE, "uint32"},
                                   {H5T_STD_I16BE, "int16"},
                                   {H5T_C_S1, "strings"},
                                   {H5T_STD_REF_OBJ, "references"},
                                   {H5T_STD_B32LE, "bitfields"}}) {
    write({"x", type, {100}});
    CHECK(has(rejection<ps::element_type_mismatch>(path), std::string{"found "} + name));
  }
  {
    const hdf5_writer to{path};
    H5Dclose(to.create({"x", H5T_STD_I32LE, {100}}));
    H5Dclose(to.create({"y", H5T_STD_I32LE, {99}}));
  }
  CHECK(has(rejection<ps::length_mismatch, two>(path), "100 samples in dataset \"y\""));
  write({"x", H5T_STD_I32LE, {100}, {10}, {{H5Z_FILTER_FLETCHER32}}});
  CHECK(has(rejection<ps::file_format_error>(path), "found 3 (fletcher32)"));
  write({"x", H5T_STD_I32LE, {100}, {10}, {{32001}}});
  CHECK(has(rejection<ps::file_format_error>(path), "found 32001 ()"));
  write({"x", H5T_STD_I32LE, {100}, {10}, {test::deflate}});
  CHECK(has(rejection<ps::option_error>(path, {.cache_bytes = 39}), "must be at least 40"));

  // The storage layouts.
  const auto write_with = [&](const auto& set_up) {
    const hdf5_writer to{path};
    const hid_t made = done(H5Pcreate(H5P_DATASET_CREATE));
    set_up(made);
    const hsize_t length = 10;
    const hid_t space = done(H5Screate_simple(1, &length, nullptr));
    H5Dclose(
        done(H5Dcreate2(to.file(), "x", H5T_STD_I32LE, space, H5P_DEFAULT, made, H5P_DEFAULT)));
    H5Sclose(space);
    H5Pclose(made);
  };
  write_with([](hid_t made) { done(H5Pset_layout(made, H5D_COMPACT)); });
  CHECK(has(rejection<ps::file_format_error>(path), "found a compact one: use h5repack"));
  write_with([](hid_t made) { done(H5Pset_external(made, "values.bin", 0, 40)); });
  CHECK(has(rejection<ps::file_format_error>(path), "found values in other files"));
  write_with([](hid_t made) {
    const hsize_t length = 10;
    const hid_t space = done(H5Screate_simple(1, &length, nullptr));
    done(H5Pset_virtual(made, space, "other.h5", "x", space));
    H5Sclose(space);
  });
  CHECK(has(rejection<ps::file_format_error>(path), "found values in other files"));
  write_with([](hid_t made) {
    const hsize_t length = 4;
    done(H5Pset_chunk(made, 1, &length));
    done(H5Pset_chunk_opts(made, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS));
  });
  CHECK(has(rejection<ps::file_format_error>(path), "partial chunks"));
  {
    const hdf5_writer to{path};
    done(H5Lcreate_external("other.h5", "x", to.file(), "x", H5P_DEFAULT, H5P_DEFAULT));
  }
  CHECK(has(rejection<ps::file_format_error>(path), "an external link to "));
}

TEST_CASE("an HDF5 dataset without samples is empty", "[hdf5]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  H5Dclose(hdf5_writer{path}.create({"x", H5T_STD_I32LE, {0}, {4}, {test::deflate}, 1}));
  CHECK(ps::hdf5_dataset<number>{path}.size() == 0);
  H5Dclose(hdf5_writer{path}.create({"x", H5T_STD_I32LE, {0}}));
  CHECK(ps::hdf5_dataset<number>{path}.size() == 0);
}

TEST_CASE("a damaged deflate chunk of an HDF5 file is an error or has its values",
          "[hdf5][fault:files-29]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  const auto packed = deflated(path, squares(100));
  hdf5_writer{path}.write_raw({"x", H5T_STD_I32LE, {200}, {100}, {test::deflate}},
                              {{{0}, packed}, {{100}, packed}});
  const std::string whole = test::content_of(path);
  const std::size_t begin = whole.find(std::string{packed.begin(), packed.end()});
  REQUIRE(begin != std::string::npos);
  std::vector<std::uint64_t> first(100);
  std::iota(first.begin(), first.end(), 0U);
  std::vector<std::uint64_t> second(100);
  std::iota(second.begin(), second.end(), 100U);
  std::size_t errors = 0;
  for (std::size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    CAPTURE(bit);
    const std::uint8_t byte = packed[bit / 8];
    write_byte(path, begin + bit / 8, static_cast<std::uint8_t>(byte ^ 1U << bit % 8));
    const ps::hdf5_dataset<number> data{path, in_process};
    try {
      auto batch = read_batch(data, first);
      CHECK(test::values<"x">(batch) == squares(100));
    } catch (const ps::file_corrupt& problem) {
      CHECK(problem.offset() == begin);
      CHECK(has(problem.what(), "expected a deflate stream in dataset \"x\""));
      ++errors;
    }
    // The decompressor of the damaged stream decompresses the next chunk.
    auto batch = read_batch(data, second);
    CHECK(test::values<"x">(batch) == squares(100));
    write_byte(path, begin + bit / 8, byte);
  }
  CHECK(errors >= 8 * packed.size() - 7);  // the last byte before the checksum may have unused bits
  for (std::size_t size = 1; size < packed.size(); ++size) {
    CAPTURE(size);
    const auto end = packed.begin() + static_cast<std::ptrdiff_t>(size);
    CHECK(has(chunk_error(path, {packed.begin(), end}), "found a damaged stream"));
  }
}

TEST_CASE("a deflate stream in an HDF5 file has the size of its chunk, and bytes may follow",
          "[hdf5][fault:files-29]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  CHECK(has(chunk_error(path, deflated(path, squares(99))),
            "expected a chunk of 400 bytes in dataset \"x\", found 396"));
  CHECK(has(chunk_error(path, deflated(path, squares(101))), "or more than 400 bytes"));
  auto packed = deflated(path, squares(100));
  packed.insert(packed.end(), 100, 0xff);
  write_chunk(path, packed);
  std::vector<std::int32_t> expected(100);
  {
    const hid_t file = done(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    const hid_t set = done(H5Dopen2(file, "x", H5P_DEFAULT));
    done(H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, expected.data()));
    H5Dclose(set);
    H5Fclose(file);
  }
  CHECK(expected == squares(100));
  CHECK(test::values<"x">(read_batch(ps::hdf5_dataset<number>{path}, {0, 50, 99})) ==
        std::vector{expected[0], expected[50], expected[99]});
}

TEST_CASE("damaged LZF chunks of an HDF5 file are errors or other values",
          "[hdf5][fault:files-29]") {
  const test::temp_dir dir;
  const std::string path = dir.path("a.h5");
  std::vector<std::uint8_t> plain(400);
  for (std::size_t i = 0; i < 400; ++i) plain[i] = static_cast<std::uint8_t>(i * i / 50);
  const auto packed = test::lzf_packed(plain);
  hdf5_writer{path}.write_raw({"x", H5T_STD_I32LE, {100}, {100}, {test::lzf}}, {{{0}, packed}});
  const std::string whole = test::content_of(path);
  const std::size_t begin = whole.find(std::string{packed.begin(), packed.end()});
  REQUIRE(begin != std::string::npos);
  std::size_t errors = 0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    write_byte(path, begin + i, static_cast<std::uint8_t>(packed[i] ^ 1U << i % 8));
    const ps::hdf5_dataset<number> data{path, in_process};
    try {
      read_batch(data, {0, 99});
    } catch (const ps::file_corrupt& problem) {
      CHECK(problem.offset() == begin);
      CHECK(has(problem.what(), "expected LZF data in dataset \"x\""));
      ++errors;
    }
    write_byte(path, begin + i, packed[i]);
  }
  CHECK(errors > 10);
}

TEST_CASE("an HDF5 file that is cut or changed after it was opened is an error",
          "[hdf5][fault:files-29]") {
  const test::temp_dir dir;
  for (const bool is_packed : {false, true}) {
    const std::string path =
        write_numbers(dir.path("a.h5"), 1000, is_packed ? sizes{100} : sizes{},
                      is_packed ? std::vector{test::deflate} : std::vector<test::filter>{});
    const ps::hdf5_dataset<number> data{path};
    CHECK(test::values<"x">(read_batch(data, {7})) == std::vector<std::int32_t>{7});
    std::ofstream{path, std::ios::binary} << "other";
    (void)error_of<ps::file_changed>([&] { read_batch(data, {999}); });
  }
}
