// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/unpack_files.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/files/zstd/zstd.hpp>
#include <penstock_ext/indexed/text_lines.hpp>

#include "ext/files/zstd_packed.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/folder.hpp"
#include "support/has.hpp"
#include "support/limits.hpp"

namespace ps = penstock;

namespace {

// zstd that counts the files it opens.
struct counting_zstd {
  std::shared_ptr<std::atomic<int>> opened = std::make_shared<std::atomic<int>>(0);
  [[nodiscard]] ps::zstd_source operator()(const std::string& path) const {
    ++*opened;
    return ps::zstd_source{path};
  }
};

// A codec whose content has no end.
struct endless_codec {
  struct source {
    std::string name;
    std::size_t read(std::span<std::byte> out) const { return out.size(); }
    [[nodiscard]] std::uint64_t available() const { return 0; }
    [[nodiscard]] const std::string& path() const { return name; }
  };
  [[nodiscard]] source operator()(const std::string& path) const { return {path}; }
};

// A folder with compressed files, and the options for unpacking them.
struct compressed_folder {
  explicit compressed_folder(std::vector<std::string> contents) : texts(std::move(contents)) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string name = "part-" + std::to_string(i) + ".txt.zst";
      dir.add(name, test::zstd_packed(texts[i]));
      paths.push_back(dir.path(name));
      age(paths.back());
    }
  }
  // Makes a file older, so that its time differs from that of later writes.
  static void age(const std::string& path) {
    const auto before = std::filesystem::last_write_time(path);
    std::filesystem::last_write_time(path, before - std::chrono::hours{1});
  }
  [[nodiscard]] std::vector<std::string> unpack(ps::unpack_options options = {}) const {
    options.folder = folder;
    return ps::unpack_files(paths, codec, options);
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{folder}, {}));
  }
  void check(const std::vector<std::string>& unpacked) const {
    REQUIRE(unpacked.size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) CHECK(test::content_of(unpacked[i]) == texts[i]);
  }

  test::folder dir;
  std::string folder = dir.beside("unpacked/deep");
  std::vector<std::string> texts;
  std::vector<std::string> paths;
  counting_zstd codec;
};

}  // namespace

TEST_CASE("unpack_files unpacks each file once, and returns the paths in order",
          "[files][fault:files-32]") {
  const compressed_folder data{{"one\ntwo\n", "", std::string(3'000'000, 'x'), "three\n"}};
  const auto paths = data.unpack();
  data.check(paths);
  CHECK(std::filesystem::path{paths[0]}.filename().string().starts_with("part-0.txt-"));
  CHECK(data.unpack({.workers = 1}) == paths);
  CHECK(*data.codec.opened == 4);
  CHECK(data.files() == 4);
  CHECK(ps::unpack_files({}, data.codec, {.folder = data.folder}).empty());
}

TEST_CASE("indexed datasets read unpacked files", "[files][fault:files-32]") {
  const compressed_folder data{{"one\ntwo\n", "three"}};
  const ps::text_lines lines{data.unpack()};
  REQUIRE(lines.size() == 3);
  CHECK(lines.line(1) == "two");
  CHECK(lines.line(2) == "three");
}

TEST_CASE("a compressed file that was replaced is unpacked again", "[files][fault:files-32]") {
  compressed_folder data{{"old", "other"}};
  const auto before = data.unpack();
  data.texts[0] = "new";
  data.dir.add("part-0.txt.zst", test::zstd_packed("new"));  // the same size
  const auto after = data.unpack();
  data.check(after);
  CHECK(after[0] != before[0]);
  CHECK(after[1] == before[1]);
  CHECK(*data.codec.opened == 3);
}

TEST_CASE("a compressed file with other bytes, but the same size and time, is unpacked again",
          "[files][fault:files-32]") {
  compressed_folder data{{"old"}};
  const auto time = std::filesystem::last_write_time(data.paths[0]);
  (void)data.unpack();
  data.texts[0] = "new";
  data.dir.add("part-0.txt.zst", test::zstd_packed("new"));
  std::filesystem::last_write_time(data.paths[0], time);
  data.check(data.unpack());
}

TEST_CASE("names of unpacked files differ if the paths differ", "[files]") {
  using penstock::detail::derived_name;
  CHECK(derived_name("log.1", ".1", "2 5") != derived_name("log.12", ".12", " 5"));
  CHECK(derived_name("log.1", ".1", "2345 0") != derived_name("log.12", ".12", "345 0"));
  const compressed_folder data{{"text"}};
  for (const std::string& name : {std::string(".zst"), std::string(240, 'x') + ".zst"}) {
    data.dir.add(name, test::zstd_packed(name));
    const auto found = ps::unpack_files({data.dir.path(name)}, data.codec, {.folder = data.folder});
    CHECK(test::content_of(found[0]) == name);
  }
}

TEST_CASE("a partial file of a killed process is removed", "[files]") {
  const compressed_folder data{{"text"}};
  const std::string target = data.unpack()[0];
  std::filesystem::remove(target);
  std::ofstream{target + ".part-1-2"} << "te";
  data.check(data.unpack());
  CHECK(data.files() == 1);
}

TEST_CASE("an unpacked file that was written to is unpacked again", "[files][fault:files-32]") {
  const compressed_folder data{{"one\ntwo\n", "other"}};
  const auto paths = data.unpack();
  std::ofstream{paths[0]} << "one\nTWO\n";
  std::filesystem::resize_file(paths[1], 2);
  CHECK(data.unpack() == paths);
  data.check(paths);
  CHECK(data.files() == 2);
}

TEST_CASE("a damaged compressed file is an error that leaves no unpacked file",
          "[files][fault:files-32]") {
  const compressed_folder data{{std::string(3'000'000, 'x') + "end"}};
  const std::string whole = test::content_of(data.paths[0]);
  std::size_t harmless = 0;
  for (std::size_t at = 4; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    data.dir.add("part-0.txt.zst", changed);
    try {
      data.check(data.unpack());
      ++harmless;
    } catch (const ps::file_error& problem) {
      CHECK(problem.path() == data.paths[0]);
    }
    data.dir.add("part-0.txt.zst", whole.substr(0, at));
    CHECK_THROWS_AS(data.unpack(), ps::file_error);
  }
  CHECK(data.files() == harmless);
}

TEST_CASE("a failed write leaves no unpacked file", "[files][fault:files-32]") {
  const compressed_folder data{{std::string(5'000, 'x')}};
  const auto problem = [&] {
    const test::file_limit limit{100};
    return test::error_of<ps::file_unwritable>([&] { (void)data.unpack(); });
  }();
  CHECK(problem.path().starts_with(data.folder));
  CHECK(test::has(problem.found(), std::system_category().message(EFBIG)));
  CHECK(data.files() == 0);
  data.check(data.unpack());
}

TEST_CASE("unpack_files rejects impossible options and a total size above the limit",
          "[files][fault:files-32]") {
  const compressed_folder data{{std::string(4'000, 'x'), std::string(4'000, 'y')}};
  CHECK(test::has(test::error_of<ps::option_error>([&] {
                    (void)data.unpack({.max_bytes = 7'999, .workers = 1});
                  }).what(),
                  "is 7999, which is exceeded at " + data.dir.path("part-")));
  data.check(data.unpack({.max_bytes = 8'000}));
  CHECK_THROWS_AS(data.unpack({.max_bytes = 7'999}), ps::option_error);  // also for files found
  CHECK_THROWS_AS(data.unpack({.workers = 0}), ps::option_error);
  CHECK_THROWS_AS(ps::unpack_files(data.paths, data.codec, {}), ps::option_error);
  CHECK_THROWS_AS(
      ps::unpack_files({data.dir.path("missing.zst")}, data.codec, {.folder = data.folder}),
      ps::file_unreadable);
  CHECK_THROWS_AS(ps::unpack_files(data.paths, data.codec, {.folder = data.paths[0] + "/under"}),
                  ps::folder_error);
}

TEST_CASE("a compressed file that changes while it is unpacked is an error",
          "[files][fault:files-32]") {
  const compressed_folder data{{std::string(100, 'x')}};
  const auto change = [&](const ps::unpack_progress&) {
    std::ofstream{data.paths[0], std::ios::app} << "more";
  };
  CHECK_THROWS_AS(data.unpack({.progress = change}), ps::file_changed);
  CHECK(data.files() == 0);
}

TEST_CASE("progress reports each MiB, and its exceptions end the call", "[files][fault:files-32]") {
  const compressed_folder data{{std::string(2'500'000, 'x')}};
  std::vector<std::uint64_t> seen;
  (void)data.unpack({.progress = [&](const ps::unpack_progress& one) {
    CHECK(one.path == data.paths[0]);
    seen.push_back(one.done_bytes);
  }});
  CHECK(seen == std::vector<std::uint64_t>{1 << 20, 2 << 20, 2'500'000});
  std::filesystem::remove_all(data.folder);
  CHECK_THROWS_AS(data.unpack({.progress = [](const auto&) { throw std::domain_error("stop"); }}),
                  std::domain_error);
  CHECK(data.files() == 0);
}

TEST_CASE("concurrent calls unpack into one folder", "[files][fault:files-32]") {
  const compressed_folder data{{"a", "b", "c", "d", "e", "f"}};
  std::vector<std::vector<std::string>> results(4);
  {
    std::vector<std::jthread> callers;
    for (auto& one : results) callers.emplace_back([&] { one = data.unpack({.workers = 2}); });
  }
  for (const auto& one : results) data.check(one);
  CHECK(data.files() == 6);
}

TEST_CASE("after an error, all threads end with that error", "[files]") {
  const test::folder dir;
  for (const char* name : {"a", "b"}) dir.add(name, name);
  std::set<std::string> seen;
  std::size_t calls = 0;
  const auto stop = [&](const ps::unpack_progress& one) {
    ++calls;
    if (seen.insert(std::string{one.path}).second && seen.size() == 2) {
      throw std::domain_error("stop");  // while the other file is unpacked
    }
  };
  constexpr std::size_t max = 256;  // MiB, which bounds a thread that does not end
  CHECK_THROWS_AS(ps::unpack_files({dir.path("a"), dir.path("b")}, endless_codec{},
                                   {.folder = dir.beside("unpacked"),
                                    .max_bytes = max << 20,
                                    .workers = 2,
                                    .progress = stop}),
                  std::domain_error);
  CHECK(calls < max - 1);
}

TEST_CASE("progress is reported by one thread at a time", "[files]") {
  const compressed_folder data{std::vector<std::string>(16, "text")};
  std::uint64_t bytes = 0;  // ThreadSanitizer reports concurrent calls
  (void)data.unpack({.workers = 4, .progress = [&](const auto& one) { bytes += one.done_bytes; }});
  CHECK(bytes == 16 * 4);
}
