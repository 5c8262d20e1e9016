// SPDX-License-Identifier: BSL-1.0
// Tests errors while libsndfile reads a file through the callbacks of the library. The program
// replaces pread with a version that fails on request.
#include <penstock_ext/audio/audio_clips.hpp>

#include <sndfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock_ext/files/file_error.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/limits.hpp"
#include "support/temp_dir.hpp"

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
#include <malloc.h>
#define PENSTOCK_HAS_MALLINFO2 1
#endif

namespace ps = penstock;

namespace {

enum class read_failure { input_output, exception };

// The call of pread that fails, counted from 1, or 0 for none.
std::atomic<std::size_t> failing_read{0};
std::atomic<read_failure> failure{read_failure::input_output};

}  // namespace

extern "C" ::ssize_t pread(int file, void* out, std::size_t bytes, ::off_t offset) {
  if (failing_read != 0 && --failing_read == 0) {
    if (failure == read_failure::exception) throw std::bad_alloc();
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, file, out, bytes, offset);
}

namespace {

// Returns value `at` of a file. FLAC cannot compress the values to a few bytes.
std::int16_t value_at(std::size_t at) { return static_cast<std::int16_t>(at * 40'503U % 65'536U); }

// Writes a file that libsndfile cannot read with a single call, and returns its path.
std::string long_file(const test::temp_dir& folder, const std::string& name, int format) {
  const std::string path = folder.path(name);
  SF_INFO info{};
  info.samplerate = 16000;
  info.channels = 1;
  info.format = format;
  SNDFILE* const file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file != nullptr);
  std::vector<std::int16_t> values(30'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(i);
  CHECK(sf_write_short(file, values.data(), 30'000) == 30'000);
  // libsndfile writes this text after the values, so opening the file reads its end.
  if ((format & SF_FORMAT_TYPEMASK) == SF_FORMAT_WAV) {
    CHECK(sf_set_string(file, SF_STR_COMMENT, std::string(2000, 'c').c_str()) == 0);
  }
  CHECK(sf_close(file) == 0);
  return path;
}

// Returns the error of `call`, or "" if it succeeds.
template <class Call>
std::string problem_of(const Call& call) {
  try {
    call();
    return {};
  } catch (const ps::file_unreadable& problem) {
    return "unreadable: " + problem.found();
  } catch (const ps::file_error&) {
    return "damaged";
  } catch (const std::bad_alloc&) {
    return "no memory";
  }
}

// Returns the allocated bytes, including those of libsndfile, or 0 if the C library does not count
// them.
std::size_t bytes_in_use() {
#if defined(PENSTOCK_HAS_MALLINFO2)
  return ::mallinfo2().uordblks;
#else
  return 0;
#endif
}

// Lets each call of pread in `call` fail once, and returns the errors.
template <class Call>
std::vector<std::string> problems_of(read_failure how, const Call& call) {
  failure = how;
  std::vector<std::string> all;
  for (std::size_t number = 1; number < 1000; ++number) {
    failing_read = number;
    std::string problem = problem_of(call);
    const bool has_failed = failing_read.exchange(0) == 0;
    if (!has_failed) {
      CHECK(problem.empty());
      return all;
    }
    all.push_back(std::move(problem));
  }
  FAIL("too many calls of pread");
  return all;
}

// Checks all errors of opening and of reading `path`.
template <class T>
void check_failures(const std::string& path) {
  const auto options = ps::audio_options{.frames = 9000, .hop = 10'000, .workers = 1};
  const ps::audio_clips<T> data{{path}, options};
  const auto open = [&] { const ps::audio_clips<T> other{{path}, options}; };
  const auto read = [&] { (void)test::read_batch(data, {2}); };
  const auto expected = test::values<"values">(test::read_batch(data, {2}));
  REQUIRE(expected.size() == 9000);
  CHECK(expected[1] == static_cast<T>(value_at(20'001)) / (std::is_same_v<T, float> ? 32'768 : 1));
  for (const auto& [how, text] :
       {std::pair{read_failure::input_output, "unreadable: " + std::system_category().message(EIO)},
        std::pair{read_failure::exception, std::string{"no memory"}}}) {
    INFO(path << ": " << text);
    const auto opened = problems_of(how, open);
    CHECK(opened.size() >= 2);  // the first call of pread is not made by libsndfile
    CHECK(opened == std::vector<std::string>(opened.size(), text));
    const auto found = problems_of(how, read);
    CHECK(found.size() > opened.size());
    CHECK(found == std::vector<std::string>(found.size(), text));
    CHECK(test::values<"values">(test::read_batch(data, {2})) == expected);
  }
}

}  // namespace

TEST_CASE("an error while libsndfile reads a file has its type, and the dataset remains usable",
          "[audio][fault:files-33]") {
  const test::temp_dir folder;
  const std::string wav = long_file(folder, "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  const std::string flac = long_file(folder, "b.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  for (const std::string& path : {wav, flac}) {
    check_failures<std::int16_t>(path);
    check_failures<float>(path);
  }
}

TEST_CASE("errors while libsndfile reads a file leak neither memory nor descriptors",
          "[audio][fault:files-33]") {
  const test::temp_dir folder;
  const std::string path = long_file(folder, "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  const ps::audio_clips<float> data{{path}, {.frames = 9000, .hop = 10'000, .workers = 1}};
  const auto fail_all = [&] {
    for (const auto how : {read_failure::input_output, read_failure::exception}) {
      CHECK(problems_of(how, [&] { (void)test::read_batch(data, {2}); }).size() > 3);
    }
  };
  fail_all();
  const std::size_t descriptors = test::open_descriptors();
  const std::size_t bytes = bytes_in_use();
  for (int i = 0; i < 20; ++i) fail_all();
  CHECK(test::open_descriptors() == descriptors);
  // An open file of libsndfile needs more than 10,000 bytes.
  CHECK(bytes_in_use() < bytes + 100'000);
}
