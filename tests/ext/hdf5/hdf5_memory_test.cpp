// SPDX-License-Identifier: BSL-1.0
#include "support/counting_new.hpp"

#include <penstock_ext/indexed/hdf5/hdf5_dataset.hpp>

#include <hdf5.h>
#include <libdeflate.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "data/read_batch.hpp"
#include "ext/hdf5/written.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/limits.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::read_batch;

namespace {

using number = ps::record<ps::field<"x", std::int32_t>>;

/// Writes a file whose dataset x contains 100 numbers in chunks with filters.
std::string write_packed(const std::string& path) {
  std::vector<std::int32_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 0);
  test::hdf5_writer{path}.write({"x", H5T_STD_I32LE, {100}, {10}, {test::shuffle, test::deflate}},
                                H5T_NATIVE_INT32, numbers);
  return path;
}

/// Makes each allocation of libdeflate fail for the current scope. No decompressor may exist.
class libdeflate_without_memory {
 public:
  libdeflate_without_memory() {
    ::libdeflate_set_memory_allocator([](std::size_t) -> void* { return nullptr; }, std::free);
  }
  libdeflate_without_memory(libdeflate_without_memory&&) = delete;
  ~libdeflate_without_memory() { ::libdeflate_set_memory_allocator(std::malloc, std::free); }
};

}  // namespace

TEST_CASE("an HDF5 dataset without memory for a decompressor throws std::bad_alloc, then works",
          "[hdf5]") {
  const test::temp_dir dir;
  const ps::hdf5_dataset<number> data{write_packed(dir.path("a.h5"))};
  {
    const libdeflate_without_memory none;
    CHECK_THROWS_AS(read_batch(data, {5}), std::bad_alloc);
    CHECK(data.held_bytes() == 0);
  }
  CHECK(test::values<"x">(read_batch(data, {5, 99})) == std::vector<std::int32_t>{5, 99});
  CHECK(data.decoded() == 2);
}

TEST_CASE("an allocation that fails while an HDF5 file is opened is std::bad_alloc", "[hdf5]") {
  const test::temp_dir dir;
  const std::string path = write_packed(dir.path("a.h5"));
  const std::size_t before = test::open_descriptors();
  for (const bool child_process : {false, true}) {
    CAPTURE(child_process);
    std::size_t failures = 0;
    bool has_failed = true;
    while (has_failed) {
      has_failed = false;
      const ps::hdf5_options options{.child_process = child_process};
      test::failing_allocation = failures + 1;
      try {
        const ps::hdf5_dataset<number> data{path, options};
        test::failing_allocation = 0;
        CHECK(data.size() == 100);
      } catch (const std::bad_alloc&) {
        test::failing_allocation = 0;
        has_failed = true;
        ++failures;
      }
    }
    CHECK(failures > 20);
  }
  CHECK(test::open_descriptors() == before);
}
