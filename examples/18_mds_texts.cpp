// SPDX-License-Identifier: BSL-1.0
// Reads texts of different lengths from MDS shards, as Mosaic's MDSWriter writes them, into a
// ragged field. Batches have no padding and contain texts of similar length. The arguments are the
// folder and the text column ("" if only one column has values of variable size). Compressed shards
// also need a folder for the decompressed shards. Without arguments, the program creates a shard.
// --digest reads in order and prints the SHA-256 of all texts and of their lengths.
#include <penstock_ext/blob/mds/mds_shards.hpp>
#ifdef EXAMPLE_HAS_ZSTD
#include <penstock_ext/files/zstd/zstd.hpp>
#endif
#include <penstock/penstock.hpp>
#include <penstock_ext/samplers/bucketed.hpp>

#include <cstddef>
#include <exception>
#include <iostream>
#include <string>

#include "data/made_folder.hpp"
#include "data/read_all.hpp"
#include "text/ragged_blobs.hpp"

namespace ps = penstock;

// Writes one shard of 500 texts and its index.json, as Mosaic's package does.
void make_shard(const data::made_folder& made) {
  const auto append = [](std::string& bytes, std::size_t number) {
    for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift);
  };
  constexpr std::size_t count = 500;
  std::string offsets;
  std::string samples;
  append(offsets, count);
  const auto add_offset = [&] { append(offsets, 4 * (count + 2) + samples.size()); };
  add_offset();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string text(i * 37 % 211, static_cast<char>('a' + i % 26));
    append(samples, text.size());
    samples += text;
    add_offset();
  }
  made.write("texts/shard.00000.mds", offsets + samples);
  made.write("texts/index.json",
             R"({"shards": [{"column_encodings": ["str"], "column_names": ["text"], )"
             R"("column_sizes": [null], "compression": null, "format": "mds", "hashes": [], )"
             R"("raw_data": {"basename": "shard.00000.mds", "bytes": )" +
                 std::to_string(offsets.size() + samples.size()) +
                 R"(, "hashes": {}}, "samples": 500, "size_limit": 67108864, "version": 2, )"
                 R"("zip_data": null}], "version": 2})");
}

int main(int argc, char** argv) try {
  auto [where, digest] = data::arguments_of(argc, argv);
  const data::made_folder made;
  if (where.empty()) {
    make_shard(made);
    where.push_back(made.path("texts"));
  }

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
