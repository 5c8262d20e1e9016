// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/bulk/open_file_sink.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <penstock_ext/bulk/bulk_file.hpp>

#include "ext/bulk/bulk_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/limits.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::page;

namespace {

ps::detail::descriptor opened(const std::string& path, int flags) {
  ps::detail::descriptor file{::open(path.c_str(), flags | O_CLOEXEC)};
  REQUIRE(file.get() >= 0);
  return file;
}
std::string name_of(const ps::detail::descriptor& file) {
  return "file descriptor " + std::to_string(file.get());
}
void save(ps::open_file_sink sink, const std::string& text) {
  ps::download(test::device, test::device.inline_stream(), std::move(sink),
               std::as_bytes(std::span{text}), {.workers = 2, .piece_bytes = page})
      .wait();
}

}  // namespace

TEST_CASE("parts of an open file are written and read back at their offsets", "[files][bulk]") {
  const test::temp_dir dir;
  const std::string path = dir.path("checkpoint");
  test::put(path, "head");
  std::string second(3 * page + 5, 'b');
  second.back() = 'e';
  {
    auto file = opened(path, O_RDWR);
    ::lseek(file.get(), 2, SEEK_SET);
    ps::open_file_sink sink{file.get(), 10, second.size()};
    save(ps::open_file_sink{file.get(), 4, 6}, "first!");
    CHECK(::lseek(file.get(), 0, SEEK_CUR) == 2);
    file = ps::detail::descriptor{-1};  // the sink has its own descriptor
    save(std::move(sink), second);
  }
  CHECK(test::content_of(path) == "headfirst!" + second);
  auto file = opened(path, O_RDONLY);
  ps::bulk_file_source source{file.get(), 10, second.size()};
  file = ps::detail::descriptor{-1};
  CHECK(test::load(std::move(source)) == second);
  CHECK(error_of<ps::bulk_error>([&] {
          save(ps::open_file_sink{opened(path, O_WRONLY).get(), 0, 3}, "four");
        }).what() != nullptr);
}

TEST_CASE("errors of open files name the descriptor, the offset, the expected and the found state",
          "[files][bulk][fault:files-18]") {
  const test::temp_dir dir;
  const std::string path = dir.path("checkpoint");
  test::put(path, "0123456789");
  const auto sink_error = [](int file, std::uint64_t offset, std::uint64_t bytes) {
    return error_of<ps::file_unwritable>([&] { ps::open_file_sink{file, offset, bytes}; });
  };
  const auto reading = opened(path, O_RDONLY);
  const auto rejected = sink_error(reading.get(), 3, 4);
  CHECK(rejected.path() == name_of(reading));
  CHECK(rejected.offset() == 3);
  CHECK(rejected.expected() == "a file that is open for writing");
  CHECK(rejected.found() == "O_RDONLY");
  CHECK(sink_error(opened(path, O_WRONLY | O_APPEND).get(), 0, 4).found() == "O_APPEND");
  CHECK(sink_error(opened("/dev/null", O_WRONLY).get(), 0, 4).expected() == "a regular file");
  CHECK(test::has(sink_error(-1, 0, 4).found(), "Bad file descriptor"));
  const auto writing = opened(path, O_WRONLY);
  CHECK(sink_error(writing.get(), 1, ~std::uint64_t{0} / 2).offset() == 1);

  const auto beyond =
      error_of<ps::file_truncated>([&] { ps::bulk_file_source{reading.get(), 8, 4}; });
  CHECK(beyond.path() == name_of(reading));
  CHECK(beyond.offset() == 10);
  CHECK(beyond.expected() == "4 bytes starting at byte 8");
  const auto unreadable =
      error_of<ps::file_unreadable>([&] { test::load(ps::bulk_file_source{writing.get(), 0, 4}); });
  CHECK(unreadable.path() == name_of(writing));
  CHECK(test::has(error_of<ps::file_unreadable>([&] { ps::bulk_file_source{-1, 0, 4}; }).found(),
                  "Bad file descriptor"));

  const test::file_limit limit{3 * page};
  const auto full = error_of<ps::file_unwritable>(
      [&] { save(ps::open_file_sink{writing.get(), page, 4 * page}, std::string(4 * page, 'x')); });
  CHECK(full.path() == name_of(writing));
  CHECK(full.offset() >= 3 * page);
  CHECK(test::has(full.expected(), "room for 4096 bytes"));
  CHECK(test::has(full.found(), "File too large"));
}
