// SPDX-License-Identifier: BSL-1.0
// A tool: packs files into a folder of MDS shards, which mds_shards and Mosaic's StreamingDataset
// read, as the columns "blob", "label" and "key".
//
//   penstock_20_pack_mds FOLDER OUT [NAME=VALUE...]          FOLDER/class/file, pictures
//   penstock_20_pack_mds SHARD.tar... OUT [NAME=VALUE...]    WebDataset's, or patterns of them
//
//   blob=txt          which file of a sample of a tar archive is the blob; by default the picture
//   label=            which one has the label, by default cls; nothing for labels that are all 0
//   encoding=jpeg     what the blobs are, by default bytes
//   megabytes=16      the most of a shard, in 2^20 bytes; by default 64
//   zstd=3            compresses the shards at that level; by default they are not
//   hash=xxh64        the sum of each file in index.json: xxh64, sha1 or sha256; by default none
#include "data/made_folder.hpp"
#include "data/named_values.hpp"

#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/blob/mds/pack_mds.hpp>
#include <penstock_ext/blob/tar/tar_shards.hpp>
#ifdef EXAMPLE_HAS_ZSTD
#include <penstock_ext/files/zstd/zstd.hpp>
#endif

#include <exception>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ps = penstock;

int main(int argc, char** argv) try {
  std::vector<std::string> words{argv + 1, argv + argc};
  auto named = data::take_named(words, {"blob", "label", "encoding", "megabytes", "zstd", "hash"});
  ps::pack_mds_options packing{.key = "key"};
  if (named.contains("encoding")) packing.encoding = named["encoding"];
  if (named.contains("megabytes")) packing.shard_bytes = std::stoull(named["megabytes"]) << 20U;
  if (named.contains("hash")) packing.hashes = {named["hash"]};
#ifdef EXAMPLE_HAS_ZSTD
  if (named.contains("zstd")) packing.compression = ps::zstd{std::stoi(named["zstd"])};
#else
  if (named.contains("zstd")) throw std::invalid_argument("zstd: built without penstock::zstd");
#endif
  ps::tar_shards_options reading;
  if (named.contains("blob")) reading.blob = {named["blob"]};
  if (named.contains("label")) reading.label = named["label"];

  const data::made_folder made;
  if (words.empty()) words = {made.path("files"), made.path("shards")};
  if (words.size() < 2) throw std::invalid_argument("expected FOLDER OUT, or SHARD.tar... OUT");
  if (argc == 1) made.write("files/class0/a.ppm", "P6 1 1 255 abc");
  const std::string out = words.back();
  words.pop_back();
  if (std::filesystem::is_directory(words[0])) {
    std::cout << ps::pack_mds(ps::image_folder{words[0]}, out, packing) << " samples packed\n";
    return 0;
  }
  std::vector<std::string> paths;
  for (const std::string& one : words) {
    for (const std::string& path : ps::shard_paths(one)) paths.push_back(path);
  }
  std::cout << ps::pack_mds(ps::tar_shards{paths, reading}, out, packing) << " samples packed\n";
} catch (const std::exception& problem) {
  std::cerr << "20_pack_mds: " << problem.what() << '\n';
  return 1;
}
