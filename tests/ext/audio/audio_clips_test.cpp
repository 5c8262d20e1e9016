// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/audio/audio_clips.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>

#include "data/read_batch.hpp"
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

/// Writes an audio file of these values and returns its path.
template <class T>
std::string audio_path(const test::temp_dir& folder, const std::string& name,
                       const std::vector<T>& values, audio_shape shape = {}) {
  const std::string path = folder.path(name);
  SF_INFO info{};
  info.samplerate = shape.rate;
  info.channels = shape.channels;
  info.format = shape.format;
  SNDFILE* const file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file != nullptr);
  const auto count = static_cast<sf_count_t>(values.size());
  if constexpr (std::is_same_v<T, std::int16_t>) {
    CHECK(sf_write_short(file, values.data(), count) == count);
  } else if constexpr (std::is_same_v<T, float>) {
    CHECK(sf_write_float(file, values.data(), count) == count);
  } else {
    CHECK(sf_write_int(file, values.data(), count) == count);
  }
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

/// The interleaved frames of a file that libsndfile reads at once.
template <class T>
struct whole_audio {
  bool is_there = false;  // false if libsndfile fails
  std::size_t frames = 0;
  std::size_t channels = 0;
  std::vector<T> values = {};
};

template <class T>
whole_audio<T> audio_by_libsndfile(const std::string& path) {
  SF_INFO info{};
  SNDFILE* const file = sf_open(path.c_str(), SFM_READ, &info);
  if (file == nullptr) return {};
  whole_audio<T> whole{true, static_cast<std::size_t>(info.frames),
                       static_cast<std::size_t>(info.channels)};
  // A damaged header may promise any number of frames.
  const auto room = (std::min)(static_cast<std::uint64_t>(info.frames), std::uint64_t{1} << 16);
  whole.values.resize(room * whole.channels);
  // A damaged FLAC file may be readable only after a seek.
  sf_seek(file, 0, SEEK_SET);
  sf_count_t found = 0;
  if constexpr (std::is_same_v<T, float>) {
    found = sf_readf_float(file, whole.values.data(), static_cast<sf_count_t>(room));
  } else if ((info.format & SF_FORMAT_SUBMASK) == SF_FORMAT_FLOAT ||
             (info.format & SF_FORMAT_SUBMASK) == SF_FORMAT_DOUBLE) {
    std::vector<double> values(whole.values.size());
    found = sf_readf_double(file, values.data(), static_cast<sf_count_t>(room));
    std::ranges::transform(values, whole.values.begin(), [](double value) {
      // The library reads doubles as floats.
      const double scaled = std::nearbyint(static_cast<double>(static_cast<float>(value)) * 32768);
      return static_cast<T>(std::isnan(scaled) ? 0
                                               : (std::max)(-32768.0, (std::min)(scaled, 32767.0)));
    });
  } else {
    sf_command(file, SFC_SET_CLIPPING, nullptr, SF_TRUE);
    found = sf_readf_short(file, whole.values.data(), static_cast<sf_count_t>(room));
  }
  whole.values.resize(static_cast<std::size_t>(found) * whole.channels);
  sf_close(file);
  return whole;
}

/// Returns the value of a clip at frame `at` of the file and channel `channel`.
template <class T>
T value_at(const whole_audio<T>& whole, std::size_t at, std::size_t channel, bool is_mono) {
  const T* const frame = &whole.values.at(at * whole.channels);
  if (!is_mono || whole.channels == 1) return frame[channel];
  if constexpr (std::is_same_v<T, float>) {
    return std::accumulate(frame, frame + whole.channels, 0.0F) /
           static_cast<float>(whole.channels);
  } else {
    return static_cast<T>(std::accumulate(frame, frame + whole.channels, 0) /
                          static_cast<int>(whole.channels));
  }
}

/// Returns the number of clips of a file.
std::uint64_t clips_of(std::uint64_t frames, const ps::audio_options& options) {
  std::uint64_t clips = 1;
  if (options.hop == 0) return clips;
  for (std::uint64_t first = options.hop;; first += options.hop, ++clips) {
    const bool is_whole = first + options.frames <= frames;
    const bool is_last = first < frames && first - options.hop + options.frames < frames;
    if (!is_whole && !(options.pad && is_last)) return clips;
  }
}

/// Checks the first clips of a file with `frames` frames, which have values of `whole`. Returns the
/// number of errors.
template <class T>
std::size_t errors_in_clips(const std::string& path, const ps::audio_options& options,
                            const whole_audio<T>& whole, std::size_t frames, std::uint64_t seed) {
  try {
    const ps::audio_clips<T> data{{path}, options};
    if (frames < 1 << 16) CHECK(data.size() == clips_of(frames, options));
    std::size_t errors = 0;
    for (std::uint64_t i = 0; i < (std::min)(data.size(), std::uint64_t{8}); ++i) {
      try {
        auto batch = test::read_batch(data, {i}, {.seed = seed});
        const auto first = static_cast<std::size_t>(batch.template get<"first_frame">()(0));
        const std::size_t count = (std::min)(frames - first, options.frames);
        CHECK(batch.template get<"frames">()(0) == static_cast<std::int64_t>(count));
        CHECK((options.hop == 0 ? first + options.frames <= (std::max)(frames, options.frames)
                                : first == i * options.hop));
        const auto found = batch.template get<"values">().flat();
        REQUIRE(found.size() == options.frames * options.channels);
        bool is_right = true;
        for (std::size_t k = 0; k < found.size(); ++k) {
          const std::size_t at = k / options.channels;
          const T expected =
              at < count ? value_at(whole, first + at, k % options.channels, options.mono) : T{};
          is_right =
              is_right && (found[k] == expected || (std::isnan(static_cast<double>(found[k])) &&
                                                    std::isnan(static_cast<double>(expected))));
        }
        CHECK(is_right);
      } catch (const ps::file_error&) {
        ++errors;
      }
    }
    return errors;
  } catch (const ps::file_error&) {
    return 1;
  }
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream{path, std::ios::binary} << bytes;
}

/// Writes a random file and checks its clips, first whole, then with flipped bits, then cut.
/// Returns the number of errors of damaged files.
template <class T>
std::size_t check_random_audio(const test::temp_dir& folder, std::uint32_t seed) {
  CAPTURE(seed);
  std::mt19937 random{seed};
  const bool is_flac = random() % 2 == 0;
  constexpr int wav_kinds[] = {SF_FORMAT_PCM_U8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24,
                               SF_FORMAT_PCM_32, SF_FORMAT_FLOAT,  SF_FORMAT_DOUBLE};
  constexpr int flac_kinds[] = {SF_FORMAT_PCM_S8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24};
  const int wav = random() % 4 == 0 ? SF_FORMAT_WAVEX : SF_FORMAT_WAV;
  const audio_shape shape{
      .format = is_flac ? SF_FORMAT_FLAC | flac_kinds[random() % 3] : wav | wav_kinds[random() % 6],
      .channels = 1 + static_cast<int>(random() % 8)};
  const std::size_t frames = random() % 4 == 0 ? random() % 3 : random() % 700;
  std::vector<int> values(frames * static_cast<std::size_t>(shape.channels));
  const std::uint32_t quiet = random() % 8;
  for (int& one : values) one = static_cast<int>(static_cast<std::int32_t>(random()) >> quiet);
  const std::string path = audio_path(folder, "a", values, shape);
  ps::audio_options options{.frames = 1 + random() % (random() % 2 == 0 ? 40 : 900),
                            .mono = random() % 3 == 0,
                            .hop = random() % 2 == 0 ? 0 : 1 + random() % 300,
                            .pad = random() % 2 == 0,
                            .workers = 1};
  if (!options.mono) options.channels = static_cast<std::size_t>(shape.channels);

  const auto whole = audio_by_libsndfile<T>(path);
  REQUIRE(whole.values.size() == values.size());
  // libsndfile writes no header of a FLAC file without frames.
  CHECK(whole.is_there == (frames != 0 || !is_flac));
  const bool is_error = !whole.is_there || (frames < options.frames && !options.pad);
  CHECK(errors_in_clips(path, options, whole, frames, seed) == (is_error ? 1 : 0));
  if (is_error || frames == 0) return 0;

  const std::string bytes = test::content_of(path);
  std::string damaged = bytes;
  // The header of FLAC has no checksum, so its damage is compared with libsndfile, like all of WAV.
  constexpr std::size_t flac_header = 42;
  const bool is_in_header = is_flac && random() % 4 == 0;
  const std::size_t begin = is_flac && !is_in_header ? flac_header : 0;
  const std::size_t end = is_in_header ? flac_header : bytes.size();
  for (std::size_t flips = 1 + random() % 3; flips != 0; --flips) {
    char& one = damaged[begin + random() % (end - begin)];
    one = static_cast<char>(one ^ static_cast<char>(1U << random() % 8));
  }
  std::size_t errors = 0;
  for (const std::string& other : {damaged, bytes.substr(0, random() % bytes.size())}) {
    write_bytes(path, other);
    const auto direct = audio_by_libsndfile<T>(path);
    const bool has_checksum = is_flac && !is_in_header;
    errors += errors_in_clips(path, options, has_checksum ? whole : direct, direct.frames, seed);
  }
  return errors;
}

}  // namespace

TEST_CASE("a file that is truncated after it was opened is an error", "[audio][fault:files-33]") {
  const test::temp_dir folder;
  const std::string path = audio_path(folder, "a.wav", tone(8000, 1));
  ps::detail::audio_file file{path};
  std::filesystem::resize_file(path, 9000);
  pcm values(4000);
  file.read(0, std::span{values});
  const pcm all = tone(8000, 1);
  CHECK(values == pcm(all.begin(), all.begin() + 4000));
  CHECK_THROWS_AS(file.read(2000, std::span{values}), ps::file_corrupt);
}

TEST_CASE("floats of a file become the nearest 16-bit integers", "[audio]") {
  const test::temp_dir folder;
  const std::string path = audio_path(
      folder, "a.wav", std::vector<float>{0.25F, -1, 1, -0.5F, 2, -3, 1.4F / 32768, 1.6F / 32768},
      {.format = SF_FORMAT_WAV | SF_FORMAT_FLOAT});
  const ps::audio_clips<std::int16_t> data{{path}, {.frames = 8}};
  CHECK(clips_in(data, 0)[0].values == pcm{8192, -32768, 32767, -16384, 32767, -32768, 1, 2});
  CHECK(ps::detail::audio_file::int16_of(std::numeric_limits<float>::quiet_NaN()) == 0);
}

TEST_CASE("loud values of a Vorbis file are clipped and do not wrap around", "[audio]") {
  constexpr int format = SF_FORMAT_OGG | SF_FORMAT_VORBIS;
  SF_INFO info{};
  info.samplerate = 16000;
  info.channels = 1;
  info.format = format;
  if (sf_format_check(&info) == 0) return;  // libsndfile is built without Vorbis
  const test::temp_dir folder;
  std::vector<float> wave(8000);
  for (std::size_t i = 0; i < wave.size(); ++i) wave[i] = i / 20 % 2 == 0 ? 1.0F : -1.0F;
  const std::string path = audio_path(folder, "a.ogg", wave, {.format = format});
  const auto floats = clips_in(ps::audio_clips<float>{{path}, {.frames = 8000}}, 0)[0].values;
  const auto found = clips_in(ps::audio_clips<std::int16_t>{{path}, {.frames = 8000}}, 0)[0].values;
  std::size_t loud = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (std::abs(floats[i]) <= 1) continue;
    ++loud;
    REQUIRE(found[i] == (floats[i] > 0 ? 32767 : -32768));
  }
  CHECK(loud > 0);
}

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
        CHECK(data.size() == clips_of(1000, {.frames = frames, .hop = hop, .pad = pad}));
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
      audio_path(folder, "a", pcm{100, 300, -5, -8, 32767, 32767, -32768, -32768}, {.channels = 2});
  const std::string one = audio_path(folder, "b", pcm{7, 8, 9, 10});
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

TEST_CASE("files that do not fit the options are errors that name the file",
          "[audio][fault:files-33]") {
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

TEST_CASE("damaged FLAC files give the right values or an error", "[audio][fault:files-33]") {
  const test::temp_dir folder;
  const pcm values = tone(12'000, 5);
  const std::string path = audio_path(folder, "a", values, flac);
  const std::string whole = test::content_of(path);
  std::size_t right = 0;
  std::size_t rejected = 0;
  const auto look = [&](const std::string& bytes) {
    write_bytes(path, bytes);
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
    look(whole.substr(0, bits() % whole.size()));
  }
  look(whole);
  CHECK(right >= 200);
  CHECK(rejected >= 400);
}

TEST_CASE("thousands of WAV and FLAC files have the values of libsndfile, whole and damaged",
          "[audio][large][fault:files-33]") {
  const test::temp_dir folder;
  std::size_t errors = 0;
  for (std::uint32_t seed = 0; seed < 2000; seed += 2) {
    errors += check_random_audio<std::int16_t>(folder, seed);
    errors += check_random_audio<float>(folder, seed + 1);
  }
  CHECK(errors > 2000);
}
