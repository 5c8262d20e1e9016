// SPDX-License-Identifier: BSL-1.0
// In what order a writer of MDS shards has the disk take files and names: the system's fsync and
// rename are replaced in this program by ones that write down that they were called.
#include <penstock_ext/blob/mds/mds_writer.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace {

// What a test asks to be written down. Tests run one after the other, their threads may call.
struct disk_log {
  std::mutex mutex;
  bool is_on = false;
  int fails_at = -1;  // the call that fails, from 0
  std::vector<std::string> calls = {};

  // Whether this call fails.
  bool note(const std::string& what, const std::filesystem::path& path) {
    const std::lock_guard lock{mutex};
    if (!is_on) return false;
    const std::string name = path.filename().string();
    calls.push_back(what + ' ' + name.substr(0, name.find(".part-")));
    return static_cast<int>(calls.size()) - 1 == fails_at;
  }
};

disk_log& disk_calls() {
  static disk_log log;
  return log;
}

}  // namespace

extern "C" int fsync(int file) noexcept(noexcept(::fsync(0))) {
  std::error_code problem;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), problem);
  if (disk_calls().note("fsync", path)) {
    errno = EIO;
    return -1;
  }
  return 0;  // no test of this program is there after the machine stops
}

extern "C" int rename(const char* from, const char* to) noexcept(noexcept(std::rename("", ""))) {
  static_cast<void>(disk_calls().note("rename", to));
  return static_cast<int>(::syscall(SYS_renameat2, -100, from, -100, to, 0));
}

namespace {

// The calls of a writer of two shards, of which one fails.
std::vector<std::string> calls_of_writing(const std::string& folder, int fails_at = -1) {
  disk_log& log = disk_calls();
  log.calls.clear();
  log.fails_at = fails_at;
  log.is_on = true;
  try {
    penstock::mds_writer out{folder, {{"a", "str"}}, 1};
    const std::string text = "text";
    for (int i = 0; i < 2; ++i) out.add({std::as_bytes(std::span{text})});
    out.finish();
  } catch (...) {
    log.is_on = false;
    throw;
  }
  log.is_on = false;
  return log.calls;
}

}  // namespace

TEST_CASE("the disk has all shards and their names before index.json has its name",
          "[blob][fault:files-8]") {
  const test::folder dir;
  CHECK(calls_of_writing(dir.path()) ==
        std::vector<std::string>{"fsync shard.00000.mds", "rename shard.00000.mds",
                                 "fsync shard.00001.mds", "rename shard.00001.mds", "fsync photos",
                                 "fsync index.json", "rename index.json", "fsync photos"});
}

TEST_CASE("a disk that does not take a shard or its name leaves no data set",
          "[blob][fault:files-8]") {
  for (const int fails_at : {0, 2, 4, 5}) {
    const test::folder dir;
    const auto problem = test::error_of<penstock::report_error>(
        [&] { (void)calls_of_writing(dir.path(), fails_at); });
    CHECK(problem.number() == EIO);
    CHECK(!std::filesystem::exists(dir.path("index.json")));
    for (const auto& one : std::filesystem::directory_iterator{dir.path()}) {
      CHECK(one.path().extension() == ".mds");  // and no part of one
    }
  }
}
