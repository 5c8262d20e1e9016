// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <parquet/arrow/writer.h>

#include <cstdint>
#include <string>

#include "support/catch.hpp"
#include "table/arrow_producer.hpp"

namespace test {

/// A Parquet file of a table, in row groups of `group` rows, by Arrow's own writer.
inline std::string written(const std::string& path, const made_column& table, std::int64_t group) {
  ArrowSchema schema = schema_of(table).release();
  ArrowArray array = array_of(table).release();
  const auto batch = ::arrow::ImportRecordBatch(&array, &schema).ValueOrDie();
  const auto whole = ::arrow::Table::FromRecordBatches({batch}).ValueOrDie();
  const auto file = ::arrow::io::FileOutputStream::Open(path).ValueOrDie();
  const auto how = parquet::ArrowWriterProperties::Builder{}.store_schema()->build();
  REQUIRE(parquet::arrow::WriteTable(*whole, ::arrow::default_memory_pool(), file, group,
                                     parquet::default_writer_properties(), how)
              .ok());
  REQUIRE(file->Close().ok());
  return path;
}

}  // namespace test
