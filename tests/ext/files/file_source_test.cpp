// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/file_source.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <penstock_ext/files/support/system_file.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

// Returns 1.5 MB of content, more than one read.
test::file_bytes long_content() {
  test::file_bytes bytes(3U << 19U);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i >> 3U);
  return bytes;
}

bool same(const std::vector<std::byte>& found, const test::file_bytes& expected) {
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::to_integer<std::uint8_t>(found[i]) != expected[i]) return false;
  }
  return true;
}

// A source of endless content and unknown size.
struct endless {
  std::string name = "endless";
  std::uint64_t requested = 0;
  std::size_t read(std::span<std::byte> out) {
    requested += out.size();
    return out.size();
  }
  std::uint64_t available() const { return 0; }
  const std::string& path() const { return name; }
};

}  // namespace

TEST_CASE("a file is read from start to end", "[files]") {
  const test::temp_dir dir;
  const std::string path = dir.write("five", {1, 2, 3, 4, 5});
  ps::file_source source{path};
  CHECK(source.path() == path);
  CHECK(source.available() == 5);
  std::array<std::byte, 3> out{};
  CHECK(source.read(out) == 3);
  CHECK(out[2] == std::byte{3});
  CHECK(source.available() == 2);
  CHECK(source.read(out) == 2);
  CHECK(out[1] == std::byte{5});
  CHECK(source.read(out) == 0);
  CHECK(source.available() == 0);
}

TEST_CASE("read_file returns the whole content", "[files]") {
  const test::temp_dir dir;
  CHECK(ps::detail::read_file(dir.write("empty", {})).empty());
  const test::file_bytes content = long_content();
  CHECK(same(ps::detail::read_file(dir.write("long", content)), content));
}

TEST_CASE("read_file rejects a file above its limit", "[files]") {
  const test::temp_dir dir;
  const std::string path = dir.write("five", {1, 2, 3, 4, 5});
  CHECK(ps::detail::read_file(path, 5).size() == 5);
  const auto problem =
      test::error_of<ps::file_format_error>([&] { (void)ps::detail::read_file(path, 4); });
  CHECK(problem.path() == path);
  CHECK(problem.offset() == 4);
  CHECK(problem.expected() == "at most 4 bytes");
}

TEST_CASE("no request to a source exceeds its limit", "[files]") {
  endless source;
  std::vector<std::byte> bytes;
  CHECK(ps::detail::append_bytes(source, bytes, 5'000'000) == 5'000'000);
  CHECK(bytes.size() == 5'000'000);
  CHECK(source.requested == 5'000'000);
}

TEST_CASE("memory grows with the file and not with the requested size",
          "[files][promise:bounded-9]") {
  const test::temp_dir dir;
  ps::file_source source{dir.write("five", {1, 2, 3, 4, 5})};
  std::vector<std::byte> bytes;
  CHECK(ps::detail::append_bytes(source, bytes, std::uint64_t{1} << 60U) == 5);
  CHECK(bytes.size() == 5);
  CHECK(bytes.capacity() < (std::size_t{4} << 20U));
}

TEST_CASE("opening a file continues after a signal", "[files]") {
  const test::temp_dir dir;
  const std::string pipe = dir.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  static std::atomic<int> signals;
  signals = 0;
  struct ::sigaction counting {};  // without SA_RESTART, so that system calls fail with EINTR
  counting.sa_handler = [](int) { ++signals; };
  struct ::sigaction before {};
  REQUIRE(::sigaction(SIGUSR1, &counting, &before) == 0);
  // Opens a pipe and waits for its other end while signals arrive.
  const auto waits = [&](const auto& open) {
    std::atomic<bool> is_over{false};
    std::string problem;
    std::thread opening{[&] {
      try {
        open();
      } catch (const std::exception& thrown) {
        problem = thrown.what();
      }
      is_over = true;
    }};
    const int first = signals;
    for (int seen = first; seen < first + 200 && !is_over; ++seen) {
      ::pthread_kill(opening.native_handle(), SIGUSR1);
      while (signals == seen && !is_over) std::this_thread::yield();
    }
    const int end = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
    opening.join();
    ::close(end);
    return problem;
  };
  CHECK(waits([&] { const ps::file_source source{pipe}; }) == "");
  CHECK(waits([&] {
          const int wrong = ps::detail::write_whole_file(pipe, "x");
          if (wrong != 0) throw std::system_error(wrong, std::generic_category());
        }) == "");
  REQUIRE(::sigaction(SIGUSR1, &before, nullptr) == 0);
}

TEST_CASE("a missing file and a directory are unreadable, with the system's reason",
          "[files][fault:files-1]") {
  const test::temp_dir dir;
  const auto problem =
      test::error_of<ps::file_unreadable>([&] { ps::file_source source{dir.path("missing")}; });
  CHECK(problem.path() == dir.path("missing"));
  CHECK(problem.offset() == 0);
  CHECK(problem.found() == "No such file or directory");
  CHECK_THROWS_AS(ps::detail::read_file(dir.path("")), ps::file_unreadable);
}
