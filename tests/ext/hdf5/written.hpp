// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace test {

using sizes = std::vector<hsize_t>;

/// Returns `result`, the result of a call to libhdf5. Throws if the call failed.
template <class Result>
Result done(Result result) {
  if (result < 0) throw std::runtime_error("libhdf5 failed");
  return result;
}

inline const std::vector<unsigned> no_settings;

/// A filter with its settings.
struct filter {
  H5Z_filter_t id;
  std::vector<unsigned> settings = no_settings;
};
inline const filter deflate{H5Z_FILTER_DEFLATE, {1}};
inline const filter shuffle{H5Z_FILTER_SHUFFLE};
inline const filter lzf{32000};

/// Describes a dataset to be written.
struct made_array {
  std::string name;
  hid_t type;  // in the file
  sizes lengths;
  sizes chunk = {};  // contiguous if empty
  std::vector<filter> filters = {};
  std::size_t unlimited = 0;   // number of dimensions without a limit, outermost first
  const void* fill = nullptr;  // an element of the type in the file
};

/// An HDF5 file that is being written. The destructor closes it.
class hdf5_writer {
 public:
  explicit hdf5_writer(const std::string& path, bool is_latest = false, hsize_t user_block = 0) {
    const hid_t access = done(H5Pcreate(H5P_FILE_ACCESS));
    if (is_latest) done(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    const hid_t made = done(H5Pcreate(H5P_FILE_CREATE));
    done(H5Pset_userblock(made, user_block));
    file_ = done(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, made, access));
    H5Pclose(made);
    H5Pclose(access);
  }
  hdf5_writer(const hdf5_writer&) = delete;
  hdf5_writer& operator=(const hdf5_writer&) = delete;
  ~hdf5_writer() { H5Fclose(file_); }

  [[nodiscard]] hid_t file() const { return file_; }

  /// Creates a dataset. The caller must close the returned identifier.
  [[nodiscard]] hid_t create(const made_array& array) const {
    const hid_t made = done(H5Pcreate(H5P_DATASET_CREATE));
    const int rank = static_cast<int>(array.lengths.size());
    if (!array.chunk.empty()) done(H5Pset_chunk(made, rank, array.chunk.data()));
    for (const filter& one : array.filters) {
      done(
          H5Pset_filter(made, one.id, H5Z_FLAG_OPTIONAL, one.settings.size(), one.settings.data()));
    }
    if (array.fill != nullptr) done(H5Pset_fill_value(made, array.type, array.fill));
    sizes limits = array.lengths;
    for (std::size_t d = 0; d < array.unlimited; ++d) limits[d] = H5S_UNLIMITED;
    const hid_t space = done(H5Screate_simple(rank, array.lengths.data(), limits.data()));
    const hid_t links = done(H5Pcreate(H5P_LINK_CREATE));
    done(H5Pset_create_intermediate_group(links, 1));
    const hid_t set =
        done(H5Dcreate2(file_, array.name.c_str(), array.type, space, links, made, H5P_DEFAULT));
    H5Pclose(links);
    H5Sclose(space);
    H5Pclose(made);
    return set;
  }

  /// Creates a dataset and writes all elements.
  template <class T>
  void write(const made_array& array, hid_t type, const std::vector<T>& values) const {
    const hid_t set = create(array);
    done(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    H5Dclose(set);
  }

  /// Creates a dataset and writes the given chunks as they are.
  struct raw_chunk {
    sizes at;
    std::vector<std::uint8_t> bytes;
    std::uint32_t skipped = 0;
  };
  void write_raw(const made_array& array, const std::vector<raw_chunk>& chunks) const {
    const hid_t set = create(array);
    for (const raw_chunk& one : chunks) {
      done(H5Dwrite_chunk(set, H5P_DEFAULT, one.skipped, one.at.data(), one.bytes.size(),
                          one.bytes.data()));
    }
    H5Dclose(set);
  }

 private:
  hid_t file_;
};

/// Compresses bytes as LZF does, with literal runs and references to earlier bytes. A reference
/// reaches back by at most `max_distance` bytes, and the time grows with this number.
inline std::vector<std::uint8_t> lzf_packed(const std::vector<std::uint8_t>& in,
                                            std::size_t max_distance = 8192) {
  std::vector<std::uint8_t> out;
  std::vector<std::uint8_t> literal;
  const auto flush = [&] {
    if (literal.empty()) return;
    out.push_back(static_cast<std::uint8_t>(literal.size() - 1));
    out.insert(out.end(), literal.begin(), literal.end());
    literal.clear();
  };
  for (std::size_t i = 0; i < in.size();) {
    std::size_t best = 0;
    std::size_t distance = 0;
    for (std::size_t back = 1; back <= std::min<std::size_t>(i, max_distance); ++back) {
      std::size_t length = 0;
      while (i + length < in.size() && length < 264 && in[i + length] == in[i + length - back]) {
        ++length;
      }
      if (length > best) {
        best = length;
        distance = back - 1;
      }
    }
    if (best < 3) {
      literal.push_back(in[i++]);
      if (literal.size() == 32) flush();
      continue;
    }
    flush();
    const std::size_t coded = best - 2;
    out.push_back(static_cast<std::uint8_t>(std::min<std::size_t>(coded, 7) << 5 | distance >> 8));
    if (coded >= 7) out.push_back(static_cast<std::uint8_t>(coded - 7));
    out.push_back(static_cast<std::uint8_t>(distance & 255));
    i += best;
  }
  flush();
  return out;
}

/// Decompresses LZF data. Throws std::out_of_range if the data are damaged.
inline std::vector<std::uint8_t> lzf_unpacked(const std::vector<std::uint8_t>& in) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < in.size();) {
    const std::size_t control = in[i++];
    if (control < 32) {
      for (std::size_t k = 0; k <= control; ++k) out.push_back(in.at(i++));
      continue;
    }
    std::size_t length = control / 32 + 2;
    if (length == 9) length += in.at(i++);
    std::size_t from = out.size() - 1 - control % 32 * 256 - in.at(i++);
    for (; length != 0; --length) out.push_back(out.at(from++));
  }
  return out;
}

/// Registers the filter LZF in libhdf5. The setting of a dataset is the number of bytes of a chunk.
/// The destructor removes the filter.
class lzf_in_libhdf5 {
 public:
  lzf_in_libhdf5() {
    const H5Z_class2_t functions{H5Z_CLASS_T_VERS, lzf.id, 1, 1, "lzf", nullptr, nullptr, &apply};
    done(H5Zregister(&functions));
  }
  lzf_in_libhdf5(const lzf_in_libhdf5&) = delete;
  lzf_in_libhdf5& operator=(const lzf_in_libhdf5&) = delete;
  ~lzf_in_libhdf5() { H5Zunregister(lzf.id); }

 private:
  // Replaces the content of a buffer. Returns its size, or 0 if the filter fails.
  static std::size_t apply(unsigned flags, std::size_t, const unsigned* settings, std::size_t size,
                           std::size_t* room, void** buffer) {
    try {
      const auto* const begin = static_cast<const std::uint8_t*>(*buffer);
      const std::vector<std::uint8_t> in(begin, begin + size);
      const bool is_reading = (flags & H5Z_FLAG_REVERSE) != 0;
      const std::vector<std::uint8_t> out = is_reading ? lzf_unpacked(in) : lzf_packed(in, 64);
      if (is_reading ? out.size() != settings[0] : out.size() >= size) return 0;
      void* const memory = std::malloc(out.size());
      if (memory == nullptr) return 0;
      std::copy(out.begin(), out.end(), static_cast<std::uint8_t*>(memory));
      std::free(*buffer);
      *buffer = memory;
      *room = out.size();
      return out.size();
    } catch (const std::out_of_range&) {
      return 0;
    }
  }
};

}  // namespace test
