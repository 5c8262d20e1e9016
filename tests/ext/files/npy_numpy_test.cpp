// SPDX-License-Identifier: BSL-1.0
// Writes the data that npy_numpy.py compares. The test is hidden, because it needs the files that
// the script writes.
#include <penstock_ext/files/npy_dataset.hpp>
#include <penstock_ext/narrow/half.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

template <class T>
using array_record = ps::record<ps::field<"x", T, ps::dyn>>;

template <class T>
void write_elements(const ps::npy_dataset<array_record<T>>& data, const std::string& path) {
  std::vector<std::uint64_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  auto batch = test::read_batch(data, indices);
  const auto all = batch.template get<"x">().flat();
  std::ofstream file{path, std::ios::binary};
  file.write(reinterpret_cast<const char*>(all.data()),
             static_cast<std::streamsize>(all.size_bytes()));
}

template <class T>
void read_both(const std::string& folder, const std::string& name) {
  const std::string path = folder + '/' + name;
  write_elements<T>(ps::npy_dataset<array_record<T>>{path + ".npy"}, path + ".npy-bytes");
  write_elements<T>(
      ps::npy_dataset<array_record<T>>{ps::npz{.path = folder + "/all.npz", .verify = true}, name},
      path + ".npz-bytes");
}

}  // namespace

TEST_CASE("arrays are read for a comparison with numpy", "[.][numpy]") {
  const char* const variable = std::getenv("PENSTOCK_ARRAYS");
  REQUIRE(variable != nullptr);
  const std::string folder = variable;
  std::ifstream cases{folder + "/cases"};
  std::string name;
  std::string type;
  while (cases >> name >> type) {
    if (type == "b1") read_both<bool>(folder, name);
    if (type == "u1") read_both<std::uint8_t>(folder, name);
    if (type == "i1") read_both<std::int8_t>(folder, name);
    if (type == "u2") read_both<std::uint16_t>(folder, name);
    if (type == "i2") read_both<std::int16_t>(folder, name);
    if (type == "u4") read_both<std::uint32_t>(folder, name);
    if (type == "i4") read_both<std::int32_t>(folder, name);
    if (type == "u8") read_both<std::uint64_t>(folder, name);
    if (type == "i8") read_both<std::int64_t>(folder, name);
    if (type == "M8") read_both<std::int64_t>(folder, name);
    if (type == "f2") read_both<ps::half>(folder, name);
    if (type == "f4") read_both<float>(folder, name);
    if (type == "f8") read_both<double>(folder, name);
  }
}
