// SPDX-License-Identifier: BSL-1.0
// Reads any bytes as a TFRecord file, and as a tf.Example in a right record. A file is rejected
// with an error that points into it, or its records cover it. An example gives values within its
// lengths, or is an error, and the same in both readings.
#include <penstock_ext/indexed/tf_examples.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

namespace {

using format = ps::detail::tf_record_format;
using example =
    ps::record<ps::field<"a", std::uint8_t, ps::ragged>, ps::field<"b", float, ps::ragged>,
               ps::field<"c", std::int64_t, ps::ragged>, ps::field<"d", std::int16_t>>;

const auto no_report = [](std::uint64_t) {};

void scan(const ps::mapped_file& file) {
  const std::size_t size = file.bytes().size();
  try {
    const auto found = format::scan(file, 1, no_report);
    fuzz::require(found.marks.size() == found.count, "a position for each record");
    fuzz::require(found.longest + (size == 0 ? 0 : format::around) <= size, "records in the file");
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the file");
  }
}

std::vector<std::byte> record_of(std::span<const std::byte> data) {
  std::vector<std::byte> all(data.size() + format::around);
  const std::uint64_t size = data.size();
  std::memcpy(all.data(), &size, sizeof size);
  const std::uint32_t of_size = ps::detail::masked_crc(std::span{all}.first(8));
  std::memcpy(&all[8], &of_size, sizeof of_size);
  std::copy(data.begin(), data.end(), all.begin() + 12);
  const std::uint32_t of_data = ps::detail::masked_crc(data);
  std::memcpy(&all[12 + data.size()], &of_data, sizeof of_data);
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::scratch_file any;
  static const fuzz::scratch_file right;
  static const fuzz::scratch_file index;
  const auto bytes = std::as_bytes(std::span{data, size});
  any.write(bytes);
  scan(ps::mapped_file{any.path()});

  right.write(record_of(bytes));
  ps::mapped_file file{right.path()};
  const std::uint64_t first = 0;
  fuzz::require(format::scan(file, 1, no_report).longest == size, "a right record");
  ps::detail::index_header head{.count = 1, .longest = size};
  std::array<std::byte, sizeof head + sizeof first> kept{};
  std::memcpy(kept.data(), &head, sizeof head);
  head.checksum = ps::detail::checksum_of_index(kept);
  std::memcpy(kept.data(), &head, sizeof head);
  index.write(kept);
  const ps::detail::tf_examples_file<example> part{
      std::move(file), ps::detail::sample_index{ps::mapped_file{index.path()}, format::step, head},
      std::nullopt, true};
  try {
    const auto lengths = part.lengths(0);
    fuzz::require(lengths[0] <= size && lengths[1] <= size / 4 && lengths[2] <= size,
                  "as many values as have room");
    std::vector<std::uint8_t> a(lengths[0]);
    std::vector<float> b(lengths[1]);
    std::vector<std::int64_t> c(lengths[2]);
    std::int16_t d = 0;
    const std::array<std::byte*, 4> fields{
        reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data()),
        reinterpret_cast<std::byte*>(c.data()), reinterpret_cast<std::byte*>(&d)};
    part.read(0, {fields, part.extents(), lengths});
  } catch (const ps::file_corrupt&) {
    fuzz::require(false, "a right checksum");
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= size + format::around, "an error points into the file");
  }
  return 0;
}
