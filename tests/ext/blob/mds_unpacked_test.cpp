// SPDX-License-Identifier: BSL-1.0
// Tests compressed MDS shards that are decompressed into a folder of the caller's choice. The codec
// of these tests stores each byte twice.
#include <penstock_ext/blob/mds/mds_shards.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/files/support/system_file.hpp>

#include "ext/blob/folders.hpp"
#include "ext/blob/mds_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/limits.hpp"

namespace ps = penstock;
using test::error_of;
using test::mds_sample;

namespace {

// A source for a file in which each byte occurs twice.
class twice_source {
 public:
  explicit twice_source(const std::string& path)
      : path_(path), bytes_(ps::detail::read_file(path)) {}
  std::size_t read(std::span<std::byte> out) {
    std::size_t filled = 0;
    for (; filled < out.size() && at_ + 1 < bytes_.size(); at_ += 2) {
      if (bytes_[at_] != bytes_[at_ + 1]) throw ps::file_corrupt(path_, at_, "a pair", "none");
      out[filled++] = bytes_[at_];
    }
    return filled;
  }
  [[nodiscard]] std::uint64_t available() const noexcept { return 0; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

struct twice_codec {
  std::shared_ptr<std::atomic<int>> opened = std::make_shared<std::atomic<int>>(0);

  twice_source operator()(const std::string& path) const {
    opened->fetch_add(1);
    return twice_source{path};
  }
  std::string family() const { return "zstd"; }
};

// Returns thirty samples. Different values of `first` give different contents of equal lengths.
std::vector<std::string> thirty_samples(std::size_t first = 0) {
  std::vector<std::string> samples;
  for (std::size_t i = 0; i < 30; ++i) {
    samples.push_back(mds_sample(std::string(i * 13 % 50, static_cast<char>(first + i)),
                                 static_cast<std::int64_t>(first + i)));
  }
  return samples;
}

// A folder of 30 samples in compressed shards, and a folder for the decompressed shards.
struct zipped_folder : test::folder {
  explicit zipped_folder(std::vector<std::string> hashes = {}, std::size_t first = 0) {
    const auto packed = [](const std::string& bytes) {
      std::string twice;
      for (const char one : bytes) twice.append(2, one);
      return twice;
    };
    test::write_mds(
        *this, thirty_samples(first),
        {.per_shard = 5, .hashes = std::move(hashes), .compression = "zstd:2", .packed = packed});
  }

  [[nodiscard]] ps::mds_shards_options options() const {
    return {.label = "label", .compression = codec, .unpacked = beside("unpacked")};
  }
  [[nodiscard]] ps::mds_shards open() const { return ps::mds_shards{path(), options()}; }

  [[nodiscard]] std::vector<std::string> unpacked() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(beside("unpacked"))) return names;
    for (const auto& entry : std::filesystem::directory_iterator{beside("unpacked")}) {
      names.push_back(entry.path().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  twice_codec codec;
};

void check_samples(const ps::mds_shards& shards, std::uint64_t first = 0) {
  REQUIRE(shards.size() == 30);
  for (std::uint64_t i = 0; i < 30; ++i) {
    CHECK(shards.label(i) == static_cast<std::int64_t>(first + i));
    CHECK(test::content_of(shards, i) == std::string(i * 13 % 50, static_cast<char>(first + i)));
  }
}

}  // namespace

TEST_CASE("compressed MDS shards are unpacked once, into the folder that was named",
          "[blob][promise:exact-14]") {
  const zipped_folder dir;
  const std::size_t files = test::files_in(dir.path());
  const ps::mds_shards shards = dir.open();
  const auto count = static_cast<int>(shards.shards());
  REQUIRE(count > 3);
  check_samples(shards);
  CHECK(*dir.codec.opened == count);
  CHECK(dir.unpacked().size() == shards.shards());
  // The dataset folder remains unchanged, and keys refer to its shards.
  CHECK(test::files_in(dir.path()) == files);
  CHECK(shards.key(0) == dir.path("shard.00000.mds") + ":0");
  check_samples(dir.open());
  CHECK(*dir.codec.opened == count);
  // A decompressed shard is decompressed again if it is missing or has another length.
  std::filesystem::remove(dir.unpacked().at(0));
  std::filesystem::resize_file(dir.unpacked().at(1), 3);
  check_samples(dir.open());
  CHECK(*dir.codec.opened == count + 2);
  for (const std::size_t max_open : {std::size_t{0}, std::size_t{2}}) {
    auto options = dir.options();
    options.max_open = max_open;
    options.threads = 1;
    check_samples(ps::mds_shards{dir.path(), options});
  }
}

TEST_CASE("a compressed MDS shard that was replaced is not taken for the old one",
          "[blob][promise:exact-14]") {
  const zipped_folder dir;
  check_samples(dir.open());
  // Decompresses another dataset with an equal index into the same folder.
  const zipped_folder other{{}, 60};
  REQUIRE(test::folder::read(other.path("index.json")) ==
          test::folder::read(dir.path("index.json")));
  auto options = other.options();
  options.unpacked = dir.beside("unpacked");
  const auto earlier = std::filesystem::file_time_type::clock::now() - std::chrono::hours{1};
  for (const auto& entry : std::filesystem::directory_iterator{other.path()}) {
    std::filesystem::last_write_time(entry.path(), earlier);
  }
  check_samples(ps::mds_shards{other.path(), options}, 60);
  CHECK(*other.codec.opened > 0);
  check_samples(dir.open());
  const std::size_t before = dir.unpacked().size();
  std::string bytes = test::folder::read(dir.path("shard.00001.mds.zstd"));
  std::filesystem::remove(dir.path("shard.00001.mds.zstd"));
  dir.add("shard.00001.mds.zstd", bytes);
  const int opened = *dir.codec.opened;
  check_samples(dir.open());
  CHECK(*dir.codec.opened == opened + 1);
  CHECK(dir.unpacked().size() == before + 1);
}

TEST_CASE("several processes that unpack the same MDS shards at the same time all read them",
          "[blob][promise:exact-14]") {
  const zipped_folder dir;
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        auto options = dir.options();
        options.max_open = 0;  // an already open file would hide the replacement
        const ps::mds_shards shards{dir.path(), options};
        std::uint64_t sum = 0;
        for (std::uint64_t k = 0; k < shards.size(); ++k) {
          sum += static_cast<std::uint64_t>(shards.label(k));
        }
        if (sum == 29 * 30 / 2) ++right;
      } catch (const ps::error&) {
        // If a read throws, `right` is not incremented.
      }
    });
  }
  for (std::thread& one : threads) one.join();
  CHECK(right == 4);
  CHECK(dir.unpacked().size() == dir.open().shards());  // no partial files remain
}

TEST_CASE("a file that another process unpacked is kept, and any other file is replaced",
          "[blob][promise:exact-14]") {
  const test::folder dir;
  dir.add("target", "same length");
  struct ::stat before {};
  REQUIRE(::stat(dir.path("target").c_str(), &before) == 0);
  for (const std::string text : {"other bytes", "longer than it was"}) {
    ps::detail::part_file part{dir.path("target"), "a file"};
    const auto read = [&](std::span<std::byte> out) {
      return text.copy(reinterpret_cast<char*>(out.data()), out.size());
    };
    CHECK(part.add_all(read, [](std::uint64_t) {}) == text.size());
    part.finish();
    struct ::stat after {};
    REQUIRE(::stat(dir.path("target").c_str(), &after) == 0);
    CHECK((before.st_ino == after.st_ino) == (text.size() == 11));
  }
  CHECK(test::folder::read(dir.path("target")) == "longer than it was");
  CHECK(test::files_in(dir.path()) == 1);
}

TEST_CASE("compressed MDS shards are unpacked only into a given folder and within a limit",
          "[blob][promise:exact-14]") {
  const zipped_folder dir;
  auto options = dir.options();
  options.unpacked = "";
  CHECK(error_of<ps::option_error>([&] { ps::mds_shards(dir.path(), options); }).option() ==
        "unpacked");
  options = dir.options();
  options.max_unpacked = 1000;
  const auto bound = error_of<ps::option_error>([&] { ps::mds_shards(dir.path(), options); });
  CHECK(bound.option() == "max_unpacked");
  CHECK(test::has(bound.what(), "bytes unpacked, which is more than 1000"));
  CHECK(dir.unpacked().empty());
  std::uint64_t bytes = 0;
  (void)dir.open();
  for (const std::string& one : dir.unpacked()) bytes += std::filesystem::file_size(one);
  options.max_unpacked = bytes;
  check_samples(ps::mds_shards{dir.path(), options});
  --options.max_unpacked;
  (void)error_of<ps::option_error>([&] { ps::mds_shards(dir.path(), options); });
  dir.add("a file");
  options = dir.options();
  options.unpacked = dir.path("a file");
  CHECK(error_of<ps::folder_error>([&] { ps::mds_shards(dir.path(), options); }).path() ==
        dir.path("a file"));
}

TEST_CASE("a compressed MDS shard that is damaged is rejected, and leaves nothing",
          "[blob][fault:files-7]") {
  const zipped_folder dir;
  const std::string name = "shard.00001.mds.zstd";
  const std::string bytes = test::folder::read(dir.path(name));
  const auto options = [&] {
    auto all = dir.options();
    all.threads = 1;
    return all;
  }();
  const auto left = [&] {
    for (const std::string& one : dir.unpacked()) CHECK(one.find("00001") == one.npos);
  };
  SECTION("its length differs from the index") {
    dir.add(name, bytes.substr(0, bytes.size() - 2));
    const auto problem =
        error_of<ps::length_mismatch>([&] { ps::mds_shards(dir.path(), options); });
    CHECK(problem.path() == dir.path(name));
    CHECK(problem.expected() == std::to_string(bytes.size()) + " bytes, as in index.json");
    left();
  }
  SECTION("its stream is damaged") {
    std::string damaged = bytes;
    damaged[101] ^= 1;
    dir.add(name, damaged);
    const auto problem = error_of<ps::file_corrupt>([&] { ps::mds_shards(dir.path(), options); });
    CHECK(problem.path() == dir.path(name));
    CHECK(problem.offset() == 100);
    left();
  }
  SECTION("its unpacked length differs from the index") {
    const std::string index = test::folder::read(dir.path("index.json"));
    const std::string is = "\"shard.00001.mds\", \"bytes\": ";
    const std::size_t at = index.find(is) + is.size();
    const std::uint64_t size = bytes.size() / 2;
    REQUIRE(index.substr(at).starts_with(std::to_string(size)));
    for (const std::uint64_t says : {size - 1, size + 1}) {
      std::string other = index;
      dir.add("index.json", other.replace(at, std::to_string(size).size(), std::to_string(says)));
      const auto problem =
          error_of<ps::length_mismatch>([&] { ps::mds_shards(dir.path(), options); });
      CHECK(problem.path() == dir.path(name));
      CHECK(problem.found() == (says < size ? "more" : std::to_string(size)));
      left();
    }
  }
  SECTION("it is missing") {
    std::filesystem::remove(dir.path(name));
    (void)error_of<ps::file_unreadable>([&] { ps::mds_shards(dir.path(), options); });
  }
}

TEST_CASE("a full disk is an error that leaves no part of an unpacked MDS shard",
          "[blob][fault:files-7]") {
  const zipped_folder dir;
  const auto problem = [&] {
    const test::file_limit limit{100};
    return error_of<ps::file_unwritable>([&] { (void)dir.open(); });
  }();
  CHECK(test::has(problem.found(), std::system_category().message(EFBIG)));
  CHECK(dir.unpacked().empty());
  check_samples(dir.open());
}

TEST_CASE("unsupported compressions are rejected by name with a remedy", "[blob][fault:files-7]") {
  const test::folder dir;
  const auto rejected = [&](const std::string& compression, const ps::mds_compression& given) {
    std::string index = test::mds_index(
        {{.bytes = 20, .samples = 1, .zipped = R"({"basename": "shard.z", "bytes": 9})"}});
    const std::string was = "\"zstd:7\"";
    dir.add("index.json", index.replace(index.find(was), was.size(), '"' + compression + '"'));
    const auto problem = error_of<ps::file_format_error>([&] {
      ps::mds_shards(dir.path(), {.compression = given, .unpacked = dir.beside("unpacked")});
    });
    CHECK(problem.path() == dir.path("shard.z"));
    CHECK(problem.found().starts_with(compression + ": "));
    return problem.found();
  };
  const std::string to = dir.path("shard.00000.mds");
  CHECK(test::has(rejected("zstd:7", {}),
                  "give compression = zstd{} (penstock_ext/files/zstd/zstd.hpp"));
  CHECK(test::has(rejected("zstd", {}), "zstd -d " + dir.path("shard.z") + " -o " + to));
  CHECK(test::has(rejected("gz:9", twice_codec{}), "gzip -dc " + dir.path("shard.z") + " > " + to));
  CHECK(test::has(rejected("br", twice_codec{}), "brotli -d "));
  CHECK(test::has(rejected("bz2:1", twice_codec{}), "bzip2 -dc "));
  CHECK(test::has(rejected("snappy", {}), "snappy -d "));
  CHECK(test::has(rejected("zstdx", twice_codec{}), "the tool that packed it"));
  CHECK(!std::filesystem::exists(dir.beside("unpacked")));
}

TEST_CASE("checksums of MDS shards are compared if requested", "[blob][fault:files-7]") {
  for (const std::string hash : {"xxh64", "sha1", "sha256"}) {
    CAPTURE(hash);
    const zipped_folder dir{{hash}};
    auto options = dir.options();
    options.verify = true;
    check_samples(ps::mds_shards{dir.path(), options});
    check_samples(ps::mds_shards{dir.path(), options});  // uses the existing files
    // Flips a bit of a decompressed shard. Only the checksum can detect this change.
    std::string bytes = test::folder::read(dir.unpacked().at(2));
    bytes.back() ^= 4;
    test::folder::write(dir.unpacked().at(2), bytes);
    (void)dir.open();
    const auto raw = error_of<ps::file_corrupt>([&] { ps::mds_shards(dir.path(), options); });
    CHECK(raw.path() == dir.unpacked().at(2));
    CHECK(test::has(raw.expected(), hash + ' '));
    CHECK(test::has(raw.found(), "remove it"));
    // Corrupts a compressed shard.
    std::string zipped = test::folder::read(dir.path("shard.00000.mds.zstd"));
    zipped[zipped.size() - 1] ^= 4;
    zipped[zipped.size() - 2] ^= 4;
    dir.add("shard.00000.mds.zstd", zipped);
    const auto packed = error_of<ps::file_corrupt>([&] { ps::mds_shards(dir.path(), options); });
    CHECK(packed.path() == dir.path("shard.00000.mds.zstd"));
  }
  const zipped_folder none;
  auto options = none.options();
  options.verify = true;
  const auto problem =
      error_of<ps::file_format_error>([&] { ps::mds_shards(none.path(), options); });
  CHECK(test::has(problem.expected(), "an xxh64, sha1 or sha256 checksum in index.json"));
  CHECK(problem.found() == "none");
}

TEST_CASE("sums of MDS shards that are not compressed are compared too", "[blob][fault:files-7]") {
  const test::folder dir;
  test::write_mds(dir, thirty_samples(), {.hashes = {"sha1", "xxh64"}});
  const ps::mds_shards_options verifying{.label = "label", .verify = true};
  check_samples(ps::mds_shards{dir.path(), verifying});
  std::string bytes = test::folder::read(dir.path("shard.00000.mds"));
  bytes.back() ^= 4;
  dir.add("shard.00000.mds", bytes);
  (void)ps::mds_shards(dir.path(), {.label = "label"});
  const auto problem = error_of<ps::file_corrupt>([&] { ps::mds_shards(dir.path(), verifying); });
  CHECK(test::has(problem.expected(), "xxh64 "));
  // Renames the checksums in the index, so that all their names are unknown.
  std::string index = test::folder::read(dir.path("index.json"));
  for (const std::string name : {"sha1\": \"", "xxh64\": \""}) {
    index.replace(index.find(name), 1, "z");
  }
  dir.add("index.json", index);
  CHECK(error_of<ps::file_format_error>([&] { ps::mds_shards(dir.path(), verifying); }).found() ==
        "zha1, zxh64");
}

TEST_CASE("an index specifies the compression and the checksums of shards",
          "[blob][promise:exact-14]") {
  const zipped_folder dir{{"sha1", "xxh64"}};
  const std::string index = test::folder::read(dir.path("index.json"));
  const auto read = ps::detail::mds_index_reader{index, "index.json"}.read();
  const ps::detail::mds_shard_entry& first = read.shards.at(0);
  CHECK(first.compression == "zstd:2");
  CHECK(first.zipped == "shard.00000.mds.zstd");
  CHECK(first.zipped_bytes == 2 * first.bytes);
  REQUIRE(first.checksums.size() == 2);
  CHECK(first.checksums[0].name == "sha1");
  CHECK(first.checksums[0].digits.size() == 40);
  REQUIRE(first.zipped_checksums.size() == 2);
  CHECK(first.zipped_checksums[1].digits.size() == 16);
  CHECK(!(first.checksums == first.zipped_checksums));
}
