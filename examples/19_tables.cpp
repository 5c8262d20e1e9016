// SPDX-License-Identifier: BSL-1.0
// Reads columns as samples: "x", lists of floats of equal length, and "label", 64-bit integers. The
// arguments are Parquet files if CMake found penstock::parquet. Without arguments, the program
// reads a table from the Arrow C stream interface, which needs no library. --digest reads in order
// and prints the SHA-256 of each field over all samples.
#include <penstock/penstock.hpp>
#include <penstock_ext/table/arrow_dataset.hpp>
#ifdef EXAMPLE_HAS_PARQUET
#include <penstock_ext/table/parquet/parquet_dataset.hpp>
#endif
#include <penstock_ext/samplers/block_shuffled.hpp>

#include <cstdint>
#include <exception>
#include <iostream>

#include "data/made_table.hpp"
#include "data/read_all.hpp"

namespace ps = penstock;

using point = ps::record<ps::field<"x", float, ps::dyn>, ps::field<"label", std::int64_t>>;

int main(int argc, char** argv) try {
  const auto [files, digest] = data::arguments_of(argc, argv);
  if (files.empty()) {
    ArrowArrayStream stream = data::made_table::stream(5, 60);  // or a stream from another library
    const ps::arrow_dataset<point> rows{ps::arrow_stream{&stream}};
    data::read_all(rows, ps::shuffled{.seed = 1}, digest);
    return 0;
  }
#ifdef EXAMPLE_HAS_PARQUET
  const ps::parquet_dataset<point> rows{files};
  for (const auto& warning : rows.warnings()) std::cerr << warning << '\n';
  std::cout << rows.row_groups() << " row groups\n";
  data::read_all(rows, ps::block_shuffled{.seed = 1, .block = rows.block()}, digest);
#else
  std::cerr << "19_tables: Parquet files need Arrow C++ with Parquet (pip: pyarrow)\n";
  return 1;
#endif
} catch (const std::exception& problem) {
  std::cerr << "19_tables: " << problem.what() << '\n';
  return 1;
}
