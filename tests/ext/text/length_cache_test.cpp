// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/length_cache.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/samplers/bucketed.hpp>
#include <penstock_ext/samplers/by_tokens.hpp>

#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/no_more_threads.hpp"
#include "support/sanitized.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

std::uint64_t length_of(std::uint64_t index) { return index * index % 1009; }

std::uint64_t not_requested(std::uint64_t) { throw std::logic_error("asked for a kept length"); }

test::file_bytes bytes_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Returns the message of the exception that opening the file throws.
template <class Error>
std::string rejection(const std::string& path) {
  try {
    const ps::length_cache lengths{path};
  } catch (const Error& error) {
    return std::string{error.what()}.substr(path.size());
  }
  return "";
}

}  // namespace

TEST_CASE("lengths are computed once by any number of workers and cached", "[text]") {
  const test::temp_dir folder;
  for (const std::uint64_t count : {0U, 1U, 64U, 1000U}) {
    for (const std::size_t workers : {1U, 3U}) {
      const std::string path = folder.path(std::to_string(count) + "-" + std::to_string(workers));
      std::vector<std::atomic<int>> requested(count);
      const ps::keep_lengths_options options{.fingerprint = 7, .workers = workers};
      const auto made = ps::keep_lengths(
          path, count,
          [&](std::uint64_t i) {
            ++requested[i];
            return length_of(i);
          },
          options);
      CHECK(std::all_of(requested.begin(), requested.end(),
                        [](const auto& one) { return one == 1; }));
      CHECK(std::filesystem::file_size(path) == 32 + 4 * count);
      const auto kept = ps::keep_lengths(path, count, not_requested, options);
      REQUIRE(kept.size() == count);
      for (std::uint64_t i = 0; i < count; ++i) REQUIRE(kept[i] == length_of(i));
      CHECK(std::equal(kept.begin(), kept.end(), made.begin(), made.end()));
      CHECK(kept.fingerprint() == 7);
    }
  }
}

TEST_CASE("samplers accept cached lengths", "[text]") {
  const test::temp_dir folder;
  const auto lengths = ps::keep_lengths(folder.path("l"), 500, length_of);
  const ps::by_tokens order{lengths, {.seed = 1, .max_tokens = 2000}};
  const ps::by_tokens same{500, length_of, {.seed = 1, .max_tokens = 2000}};
  CHECK(order.fingerprint() == same.fingerprint());
  const ps::bucketed buckets{lengths, {.seed = 1, .batch_size = 8}};
  CHECK(buckets.size(500) == 500);
}

TEST_CASE("a pass that fails leaves no file", "[text][fault:files-19]") {
  const test::temp_dir folder;
  const std::string path = folder.path("lengths");
  const auto fails = [](std::uint64_t i) -> std::uint64_t {
    if (i == 77) throw std::runtime_error("sample 77");
    return 1;
  };
  CHECK_THROWS_MATCHES(ps::keep_lengths(path, 1000, fails, {.workers = 3}), std::runtime_error,
                       Catch::Matchers::Message("sample 77"));
  const auto long_one = [](std::uint64_t i) { return i == 3 ? std::uint64_t{1} << 32 : 0; };
  CHECK_THROWS_MATCHES(
      ps::keep_lengths(path, 1000, long_one), ps::option_error,
      Catch::Matchers::Message("length: expected at most 2^32 - 1, found 4294967296 of sample 3"));
  CHECK(std::filesystem::is_empty(folder.path("")));
  CHECK_THROWS_AS(ps::keep_lengths(path, 3, length_of, {.workers = 0}), ps::option_error);
  for (const std::uint64_t count :
       {(std::uint64_t{1} << 60) + 1, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    CHECK_THROWS_MATCHES(
        ps::keep_lengths(path, count, not_requested), ps::option_error,
        Catch::Matchers::Message("count: expected at most 2^60, found " + std::to_string(count)));
  }
}

TEST_CASE("no length is computed if the file cannot be created", "[text][fault:files-19]") {
  const test::temp_dir folder;
  const std::string file = folder.write("file", {1});
  for (const std::string& path :
       {folder.path("no/lengths"), file + "/lengths", folder.path(std::string(300, 'x'))}) {
    CAPTURE(path);
    CHECK_THROWS_AS(ps::keep_lengths(path, 3, not_requested), ps::file_unwritable);
  }
  CHECK_THROWS_MATCHES(
      ps::keep_lengths(folder.path("no/lengths"), 3, not_requested), ps::file_unwritable,
      Catch::Matchers::Message(folder.path("no/lengths") +
                               ": at byte 0: expected a file that can be written, found " +
                               std::system_category().message(ENOENT)));
}

// Runs as the user nobody, because permissions do not apply to root.
TEST_CASE("a read-only folder or a rejected thread does not lose a pass",
          "[text][fault:files-19]") {
  enum outcome {
    made = 0,
    not_reported = 1,
    not_made = 2,
    requested_in_vain = 3,
    cannot_lower = 4
  };
  const test::temp_dir folder;
  std::filesystem::permissions(folder.path(""), std::filesystem::perms::all);
  const std::string closed = folder.path("closed");
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms{0555});
  const int end = test::in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return cannot_lower;
    try {
      static_cast<void>(ps::keep_lengths(closed + "/lengths", 3, not_requested));
      return not_reported;
    } catch (const ps::file_unwritable&) {
    } catch (...) {
      return requested_in_vain;
    }
    if (!test::sanitized && !test::allow_no_more_threads()) return cannot_lower;
    try {
      if (!test::sanitized) std::jthread{[] {}};
      if (!test::sanitized) return cannot_lower;
    } catch (const std::system_error&) {
    }
    try {
      static_cast<void>(ps::keep_lengths(folder.path("l"), 1000, length_of, {.workers = 8}));
      return made;
    } catch (...) {
      return not_made;
    }
  });
  if (end == cannot_lower) {
    WARN("not tested: the process may not give up its rights, or address space is not limited");
    return;
  }
  CHECK(end == made);
  const ps::length_cache kept{folder.path("l")};
  REQUIRE(kept.size() == 1000);
  for (std::uint64_t i = 0; i < 1000; ++i) REQUIRE(kept[i] == length_of(i));
}

TEST_CASE("the lengths of another dataset are rejected", "[text][fault:files-19]") {
  const test::temp_dir folder;
  const std::string path = folder.path("lengths");
  static_cast<void>(ps::keep_lengths(path, 10, length_of, {.fingerprint = 7}));
  CHECK_THROWS_MATCHES(
      ps::keep_lengths(path, 11, length_of, {.fingerprint = 7}), ps::length_mismatch,
      Catch::Matchers::Message(path + ": at byte 16: expected the lengths of 11 samples, found 10: "
                                      "remove the file, so that it is made again"));
  CHECK_THROWS_MATCHES(
      ps::keep_lengths(path, 10, length_of, {.fingerprint = 8}), ps::file_format_error,
      Catch::Matchers::Message(path + ": at byte 24: expected the lengths of dataset 8, found "
                                      "those of 7: remove the file, so that it is made again"));
}

TEST_CASE("any damaged byte of cached lengths is detected", "[text][fault:files-19]") {
  const test::temp_dir folder;
  const std::string path = folder.path("lengths");
  static_cast<void>(ps::keep_lengths(path, 50, length_of, {.fingerprint = 7}));
  const test::file_bytes whole = bytes_of(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    auto damaged = whole;
    damaged[at] ^= 0x10U;
    const std::string other = folder.write("damaged", damaged);
    CAPTURE(at);
    REQUIRE(!rejection<ps::file_error>(other).empty());
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut =
        folder.write("cut", {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
    CAPTURE(size);
    REQUIRE(!rejection<ps::file_truncated>(cut).empty());
  }
  auto longer = whole;
  longer.push_back(0);
  const std::string damage =
      ": at byte 8: expected the checksum of the file's lengths, found a different checksum: the "
      "file is damaged: remove it";
  CHECK(rejection<ps::file_corrupt>(folder.write("longer", longer)) == damage);
  auto damaged = whole;
  damaged[64] ^= 1U;
  CHECK(rejection<ps::file_corrupt>(folder.write("damaged", damaged)) == damage);
  CHECK(rejection<ps::file_truncated>(folder.write("cut", {whole.begin(), whole.end() - 1})) ==
        ": at byte 231: expected a header of 32 bytes and 50 lengths of 4 bytes, found the end of "
        "the file");
}
