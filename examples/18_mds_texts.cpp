// SPDX-License-Identifier: BSL-1.0
// Texts of different lengths out of MDS shards, as Mosaic's MDSWriter writes them, in a ragged
// field: nothing is padded, and a batch has texts of similar length. Arguments: the folder, the
// column of the texts where more than one has values of any size ("" where there is but one), and a
// folder for the unpacked shards of compressed ones; without one, shards are made.
// --digest reads in order, and prints the SHA-256 of all texts and of their lengths.
#include <penstock_ext/blob/mds/mds_shards.hpp>
#include <penstock_ext/blob/mds/mds_writer.hpp>
#ifdef EXAMPLE_HAS_ZSTD
#include <penstock_ext/files/zstd/zstd.hpp>
#endif
#include <penstock/order/bucketed.hpp>
#include <penstock/penstock.hpp>

#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <string>

#include "data/made_folder.hpp"
#include "data/read_all.hpp"
#include "text/ragged_blobs.hpp"

namespace ps = penstock;

void make_shards(const std::string& folder) {
  ps::mds_writer out{folder, {{"text", "str"}}, 1 << 14};
  for (std::size_t i = 0; i < 500; ++i) {
    const std::string text(i * 37 % 211, static_cast<char>('a' + i % 26));
    out.add({std::as_bytes(std::span{text})});
  }
  out.finish();
}

int main(int argc, char** argv) try {
  auto [where, digest] = data::arguments_of(argc, argv);
  const data::made_folder made;
  if (where.empty()) make_shards(where.emplace_back(made.path("texts")));

  ps::mds_shards_options reading{.blob = where.size() > 1 ? where[1] : ""};
#ifdef EXAMPLE_HAS_ZSTD
  reading.compression = ps::zstd{};
#endif
  if (where.size() > 2) reading.unpacked = where[2];
  const ps::mds_shards shards{where[0], reading};
  const text::ragged_blobs texts{shards};
  const ps::bucketed order{texts.lengths(), {.seed = 1, .batch_size = 64}};
  data::read_all(texts, order, digest);
} catch (const std::exception& problem) {
  std::cerr << "18_mds_texts: " << problem.what() << '\n';
  return 1;
}
