// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <ios>
#include <iterator>
#include <memory>
#include <string>

#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"

namespace test {

/// Writes a table to a Parquet file with row groups of `group` rows, using Arrow's own writer. The
/// file has page checksums only if `properties` request them.
inline std::string written(const std::string& path, const made_column& table, std::int64_t group,
                           const std::shared_ptr<parquet::WriterProperties>& properties =
                               parquet::default_writer_properties()) {
  ArrowSchema schema = schema_of(table).release();
  ArrowArray array = array_of(table).release();
  const auto batch = ::arrow::ImportRecordBatch(&array, &schema).ValueOrDie();
  const auto whole = ::arrow::Table::FromRecordBatches({batch}).ValueOrDie();
  const auto file = ::arrow::io::FileOutputStream::Open(path).ValueOrDie();
  const auto how = parquet::ArrowWriterProperties::Builder{}.store_schema()->build();
  REQUIRE(parquet::arrow::WriteTable(*whole, ::arrow::default_memory_pool(), file, group,
                                     properties, how)
              .ok());
  REQUIRE(file->Close().ok());
  return path;
}

/// Returns the footer encoding of a number, preceded by the byte that marks a 64-bit field with the
/// next field ID.
inline std::string footer_number(std::int64_t number) {
  auto bits = static_cast<std::uint64_t>(number) << 1U;
  if (number < 0) bits = ~bits;
  std::string bytes = "\x16";
  for (; bits > 0x7f; bits >>= 7U) bytes += static_cast<char>((bits & 0x7fU) | 0x80U);
  return bytes + static_cast<char>(bits);
}

/// Rewrites a Parquet file, replacing `before` by `after` in the footer. The first `skipped`
/// occurrences remain unchanged. Returns the number of replacements.
inline std::size_t with_footer(const std::string& path, std::int64_t before, std::int64_t after,
                               std::size_t skipped = 0) {
  std::string bytes;
  {
    std::ifstream in{path, std::ios::binary};
    bytes.assign(std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{});
  }
  const std::string magic = bytes.substr(bytes.size() - 4);
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data() + bytes.size() - 8, sizeof length);
  const std::size_t begin = bytes.size() - 8 - length;
  bytes.resize(bytes.size() - 8);
  const std::string from = footer_number(before);
  const std::string to = footer_number(after);
  std::size_t places = 0;
  std::size_t at = bytes.find(from, begin);
  while (at != std::string::npos) {
    const bool is_left = skipped > 0;
    if (is_left) --skipped;
    if (!is_left) bytes.replace(at, from.size(), to);
    if (!is_left) ++places;
    at = bytes.find(from, at + (is_left ? from : to).size());
  }
  length = static_cast<std::uint32_t>(bytes.size() - begin);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>(static_cast<unsigned char>(length >> shift & 0xffU));
  }
  std::ofstream{path, std::ios::binary} << bytes << magic;
  return places;
}

/// Flips a bit in the byte at offset `at` of a file.
inline void flip_bit(const std::string& path, std::uint64_t at, unsigned bit) {
  std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
  file.seekg(static_cast<std::streamoff>(at));
  const auto byte = static_cast<unsigned char>(file.get());
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ (1U << bit)));
  REQUIRE(file.good());
}

}  // namespace test
