// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/report/stats_prometheus.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "ext/report/prometheus_reader.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/limits.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
namespace fs = std::filesystem;
using test::prometheus_reader;

namespace {

ps::loader_stats some_stats(std::uint64_t loader) {
  ps::loader_stats stats;
  stats.loader = loader;
  return stats;
}

/// Returns the exception that writing to `path` throws.
ps::report_error error_of_writing(const std::string& path) {
  return test::error_of<ps::report_error>([&] { ps::write_prometheus(some_stats(2), path); });
}

}  // namespace

TEST_CASE("a file for Prometheus is written whole, and replaced", "[report]") {
  const test::temp_dir folder;
  const std::string path = folder.path("train.prom");
  ps::write_prometheus(some_stats(1), path);
  CHECK(test::content_of(path) == to_prometheus(some_stats(1)));
  ps::transfer_stats feed;
  feed.loader = some_stats(3);
  ps::write_prometheus(feed, path);
  CHECK(test::content_of(path) == to_prometheus(feed));
  CHECK(test::files_in(folder) == 1);
  struct ::stat as {};
  REQUIRE(::stat(path.c_str(), &as) == 0);
  // The file has the usual permissions of new files, so that a collector that runs as another user
  // can read it.
  struct ::stat usual {};
  std::ofstream{folder.path("usual")} << "usual";
  REQUIRE(::stat(folder.path("usual").c_str(), &usual) == 0);
  CHECK((as.st_mode & 0777U) == (usual.st_mode & 0777U));
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  ps::write_prometheus(feed, path);
  REQUIRE(::stat(path.c_str(), &as) == 0);
  CHECK((as.st_mode & 0777U) == 0640U);  // permissions of an existing file do not change
}

TEST_CASE(
    "a Prometheus file that cannot be written reports path and reason, and the old file "
    "stays",
    "[report][fault:files-17]") {
  const test::temp_dir folder;
  const std::string nowhere = folder.path("none/train.prom");
  const auto missing = error_of_writing(nowhere);
  CHECK(missing.path() == nowhere);
  CHECK(missing.number() == ENOENT);
  CHECK(std::string{missing.what()} ==
        nowhere + ": the statistics cannot be written: No such file or directory");

  const std::string a_folder = folder.path("folder");
  fs::create_directories(a_folder + "/in_it");
  CHECK(error_of_writing(a_folder).number() == EISDIR);
  CHECK(test::files_in(folder) == 1);  // no temporary file remains

  const std::string path = folder.path("train.prom");
  ps::write_prometheus(some_stats(1), path);
  const auto full = [&] {
    const test::file_limit limit{100};
    return error_of_writing(path);
  }();
  CHECK(full.number() == EFBIG);
  CHECK(test::has(full.what(), "written: File too large"));
  CHECK(test::content_of(path) == to_prometheus(some_stats(1)));
  CHECK(test::files_in(folder) == 2);  // only the folder and the old file
}

TEST_CASE("the leftover file of a process with the same id is replaced", "[report]") {
  const test::temp_dir folder;
  const std::string path = folder.path("train.prom");
  // Includes the next temporary names, and names that other tests of this program have used.
  constexpr int left = 900;
  for (int number = 0; number < left; ++number) {
    std::ofstream{path + ".part-" + std::to_string(::getpid()) + '-' + std::to_string(number)}
        << "left";
  }
  ps::write_prometheus(some_stats(1), path);
  CHECK(test::content_of(path) == to_prometheus(some_stats(1)));
  CHECK(test::files_in(folder) == left + 1);
}

TEST_CASE("a reader sees one file for Prometheus or the next, whoever writes",
          "[report][fault:files-17]") {
  const test::temp_dir folder;
  const std::string path = folder.path("train.prom");
  const std::string odd = to_prometheus(some_stats(1));
  const std::string even = to_prometheus(some_stats(2));
  ps::write_prometheus(some_stats(1), path);
  // Relaxed ordering would suffice, because only the final value matters.
  std::atomic<int> writing{2};
  std::atomic<int> failed{0};
  const auto write = [&](std::uint64_t which) {
    for (int turn = 0; turn < 100; ++turn) {
      try {
        ps::write_prometheus(some_stats(which), path);
      } catch (const ps::report_error&) {
        ++failed;
      }
    }
    --writing;
  };
  std::thread first{write, 1};
  std::thread second{write, 2};
  int torn = 0;
  while (writing != 0) {
    const std::string seen = test::content_of(path);
    if (seen != odd && seen != even) ++torn;
  }
  first.join();
  second.join();
  CHECK(torn == 0);
  CHECK(failed == 0);
  CHECK(test::files_in(folder) == 1);
}
