// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/audio/audio_clips.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::has;

namespace {

using pcm = std::vector<std::int16_t>;

/// Interleaved noise around a tone.
pcm tone(std::size_t values, std::uint32_t seed) {
  std::mt19937 bits{seed};
  pcm all(values);
  for (std::size_t i = 0; i < values; ++i) {
    all[i] = static_cast<std::int16_t>(8000.0 * std::sin(0.01 * static_cast<double>(i)) +
                                       static_cast<double>(bits() % 1000));
  }
  return all;
}

struct audio_shape {
  int format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  int channels = 1;
  int rate = 16000;
};

/// Writes an audio file and returns its path.
std::string audio_path(const test::temp_dir& folder, const std::string& name, const pcm& values,
                       audio_shape shape = {}) {
  const std::string path = folder.path(name);
  SF_INFO info{};
  info.samplerate = shape.rate;
  info.channels = shape.channels;
  info.format = shape.format;
  SNDFILE* const file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file != nullptr);
  const auto count = static_cast<sf_count_t>(values.size());
  CHECK(sf_write_short(file, values.data(), count) == count);
  CHECK(sf_close(file) == 0);
  return path;
}

constexpr audio_shape flac{.format = SF_FORMAT_FLAC | SF_FORMAT_PCM_16};

/// A sample of a dataset of clips.
template <class T>
struct clip {
  std::vector<T> values;
  std::int64_t first_frame = 0;
  std::int64_t frames = 0;

  friend bool operator==(const clip&, const clip&) = default;
};

template <class T>
std::vector<clip<T>> clips_in(const ps::audio_clips<T>& data, std::size_t workers,
                              std::uint64_t epoch = 0, ps::batch_position from = {}) {
  ps::loader loader{data, ps::shuffled{.seed = 3}, {.batch_size = 3, .workers = workers}};
  from.epoch = epoch;
  std::vector<clip<T>> all;
  for (auto& batch : loader.batches(from, ps::until_epoch{epoch + 1})) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto values = ps::get<"values">(batch)[i].flat();
      all.push_back({{values.begin(), values.end()},
                     ps::get<"first_frame">(batch)(i),
                     ps::get<"frames">(batch)(i)});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("random clips are slices of their files, for any number of workers", "[audio]") {
  const test::temp_dir folder;
  std::vector<std::string> paths;
  std::vector<pcm> tones;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const int channels = 2;
    tones.push_back(tone(2 * (3000 + 777 * i), i));
    paths.push_back(
        audio_path(folder, std::to_string(i), tones.back(),
                   {.format = (i % 2 == 0 ? SF_FORMAT_FLAC : SF_FORMAT_WAV) | SF_FORMAT_PCM_16,
                    .channels = channels}));
  }
  const ps::audio_clips<std::int16_t> data{paths, {.frames = 2000, .channels = 2}};
  const ps::audio_clips<float> floats{paths, {.frames = 2000, .channels = 2}};
  CHECK(data.size() == paths.size());
  const auto clips = clips_in(data, 0);
  REQUIRE(clips.size() == paths.size());
  for (const auto& one : clips) {
    const auto starts_at = [&](const pcm& tone) {
      const auto begin = 2 * static_cast<std::size_t>(one.first_frame);
      return begin + one.values.size() <= tone.size() &&
             std::equal(one.values.begin(), one.values.end(),
                        tone.begin() + static_cast<std::ptrdiff_t>(begin));
    };
    CHECK(std::count_if(tones.begin(), tones.end(), starts_at) == 1);
    CHECK(one.values.size() == 4000);
    CHECK(one.frames == 2000);
  }
  CHECK(clips_in(data, 1) == clips);
  CHECK(clips_in(data, 4) == clips);
  CHECK(clips_in(data, 2, 1) != clips);
  // After a resume at batch 1, which begins with sample 3.
  const auto rest = clips_in(data, 2, 0, {.epoch = 0, .batch = 1});
  CHECK(rest == std::vector(clips.begin() + 3, clips.end()));
  // Both types have the same clips.
  const auto scaled = clips_in(floats, 2);
  for (std::size_t i = 0; i < clips.size(); ++i) {
    CHECK(scaled[i].first_frame == clips[i].first_frame);
    CHECK(std::equal(scaled[i].values.begin(), scaled[i].values.end(), clips[i].values.begin(),
                     [](float a, std::int16_t b) { return a == static_cast<float>(b) / 32768; }));
  }
}

TEST_CASE("a hop makes clips that cover a file, and the last may be padded", "[audio]") {
  const test::temp_dir folder;
  const pcm values = tone(1000, 1);
  const std::string path = audio_path(folder, "a", values, flac);
  for (const std::uint64_t hop : {1U, 100U, 333U, 900U, 5000U}) {
    for (const bool pad : {false, true}) {
      for (const std::size_t frames : {100U, 999U, 1000U}) {
        INFO("hop " << hop << ", frames " << frames << ", pad " << pad);
        const ps::audio_clips<std::int16_t> data{{path},
                                                 {.frames = frames, .hop = hop, .pad = pad}};
        std::uint64_t expected = 0;
        for (std::uint64_t first = 0; expected == 0 || first + frames <= 1000; first += hop) {
          ++expected;
          if (first + frames < 1000 && pad && first + hop + frames > 1000) ++expected;
        }
        CHECK(data.size() == expected);
      }
    }
  }
  const ps::audio_clips<std::int16_t> data{{path}, {.frames = 400, .hop = 400, .pad = true}};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 3, .workers = 0}};
  for (auto& batch : loader.epoch(0)) {
    REQUIRE(batch.size() == 3);
    const auto all = ps::get<"values">(batch).flat();
    CHECK(std::equal(values.begin(), values.end(), all.begin()));
    CHECK(std::all_of(all.begin() + 1000, all.end(), [](auto value) { return value == 0; }));
    CHECK(ps::get<"frames">(batch)(2) == 200);
    CHECK(ps::get<"first_frame">(batch)(2) == 800);
  }
  const ps::audio_clips<float> padded{{path}, {.frames = 1500, .pad = true}};
  CHECK(clips_in(padded, 0).front().frames == 1000);
}

TEST_CASE("mono clips have the mean of the channels", "[audio]") {
  const test::temp_dir folder;
  const std::string both =
      audio_path(folder, "a", {100, 300, -5, -8, 32767, 32767, -32768, -32768}, {.channels = 2});
  const std::string one = audio_path(folder, "b", {7, 8, 9, 10});
  const std::vector<std::string> paths{both, one};
  const ps::audio_clips<std::int16_t> data{paths, {.frames = 4, .mono = true}};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 2, .workers = 0}};
  for (auto& batch : loader.epoch(0)) {
    const auto all = ps::get<"values">(batch).flat();
    CHECK(pcm(all.begin(), all.end()) == pcm{200, -6, 32767, -32768, 7, 8, 9, 10});
  }
  const ps::audio_clips<float> floats{{both}, {.frames = 1, .mono = true, .hop = 1}};
  CHECK(clips_in(floats, 0).size() == 4);
}

TEST_CASE("files that do not fit the options are errors that name the file", "[audio]") {
  const test::temp_dir folder;
  const std::string good = audio_path(folder, "good", tone(100, 1));
  const std::string stereo = audio_path(folder, "stereo", tone(100, 1), {.channels = 2});
  const std::string text = folder.write("text", {'n', 'o', 't', ' ', 'a', 'u', 'd', 'i', 'o'});
  const std::string empty = folder.write("empty", {});
  using clips = ps::audio_clips<float>;
  const auto error = [](const std::vector<std::string>& paths, const ps::audio_options& options) {
    const auto problem = error_of<ps::file_format_error>([&] { clips{paths, options}; });
    return problem.path().back() + (": " + problem.expected()) + " | " + problem.found();
  };
  CHECK(error({good, stereo}, {.frames = 10}) ==
        "o: channels: 1 | 2: set .channels, or .mono to average them");
  CHECK(error({good}, {.frames = 10, .sample_rate = 8000}) ==
        "d: a sample rate of 8000 Hz | 16000 Hz: resample the file");
  CHECK(error({good}, {.frames = 101}) ==
        "d: at least 101 frames | 100 frames: set .pad, or leave the file out");
  CHECK(has(error({text}, {.frames = 10}), "t: audio in a format of libsndfile | libsndfile: "));
  CHECK(has(error({empty}, {.frames = 10}), "y: audio in a format of libsndfile | libsndfile: "));
  CHECK_THROWS_AS(clips({folder.path("none")}, {.frames = 10}), ps::file_unreadable);
  CHECK_THROWS_AS(clips({}, {.frames = 10}), ps::option_error);
  CHECK_THROWS_AS(clips({good}, {}), ps::option_error);
  CHECK_THROWS_AS(clips({good}, {.frames = 1, .channels = 0}), ps::option_error);
  CHECK_THROWS_AS(clips({good}, {.frames = 1, .channels = 2, .mono = true}), ps::option_error);
  CHECK_THROWS_AS(clips({good}, {.frames = 1, .sample_rate = -1}), ps::option_error);
  CHECK_THROWS_AS(clips({good}, {.frames = 1, .workers = 0}), ps::option_error);

  const clips data{{good}, {.frames = 10}};
  audio_path(folder, "good", tone(90, 1));
  CHECK_THROWS_AS(clips_in(data, 0), ps::file_changed);
}

TEST_CASE("damaged FLAC files give the right values or an error", "[audio]") {
  const test::temp_dir folder;
  const pcm values = tone(12'000, 5);
  const std::string path = audio_path(folder, "a", values, flac);
  std::ifstream in{path, std::ios::binary};
  const std::vector<char> whole{std::istreambuf_iterator<char>{in}, {}};
  std::size_t right = 0;
  std::size_t rejected = 0;
  const auto look = [&](const std::vector<char>& bytes) {
    std::ofstream{path, std::ios::binary}.write(bytes.data(),
                                                static_cast<std::streamsize>(bytes.size()));
    try {
      const ps::audio_clips<std::int16_t> data{{path}, {.frames = 3000, .hop = 3000}};
      ps::loader loader{data, ps::sequential{}, {.batch_size = 1, .workers = 0}};
      for (std::uint64_t i = 0; i < data.size(); ++i) {  // an error in one clip hides no other
        try {
          for (auto& batch : loader.batches({0, i}, ps::until_epoch{1})) {
            const auto clip = ps::get<"values">(batch).flat();
            REQUIRE(std::equal(clip.begin(), clip.end(),
                               values.begin() + static_cast<std::ptrdiff_t>(3000 * i)));
            ++right;
            break;
          }
        } catch (const ps::file_error&) {
          ++rejected;
        }
      }
    } catch (const ps::file_error&) {
      ++rejected;
    }
  };
  std::mt19937 bits{1};
  for (std::size_t i = 0; i < 400; ++i) {
    auto damaged = whole;
    damaged[bits() % damaged.size()] ^= static_cast<char>(1U << bits() % 8);
    look(damaged);
  }
  for (std::size_t i = 0; i < 50; ++i) {
    const auto kept = static_cast<std::ptrdiff_t>(bits() % whole.size());
    look({whole.begin(), whole.begin() + kept});
  }
  look(whole);
  CHECK(right >= 200);
  CHECK(rejected >= 400);
}
