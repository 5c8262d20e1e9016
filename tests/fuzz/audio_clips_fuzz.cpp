// SPDX-License-Identifier: BSL-1.0
// Reads arbitrary bytes as a WAV or FLAC file, with options that the first bytes of the input
// select. The result is an error, or clips whose values are those that libsndfile reads.
#include <penstock_ext/audio/audio_clips.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "data/read_batch.hpp"
#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

namespace {

// Returns the integer nearest to 32768 * `value`, in the range of 16 bits, or 0 for NaN. If two
// integers are equally near, returns the even integer. Computed without the library's code.
std::int16_t nearest_int16(float value) {
  if (value != value) return 0;
  const double scaled = 32768.0 * static_cast<double>(value);  // exact
  if (scaled <= -32768) return -32768;
  if (scaled >= 32767) return 32767;
  const int floor = static_cast<int>(scaled + 32768) - 32768;
  const double rest = scaled - floor;
  const bool is_up = rest > 0.5 || (rest == 0.5 && floor % 2 != 0);
  return static_cast<std::int16_t>(is_up ? floor + 1 : floor);
}

// Returns `count` frames that libsndfile reads, starting at frame `first`, or nothing if it fails.
// Takes the mean of the channels if `is_mono` is set.
template <class T>
std::optional<std::vector<T>> direct_frames(const std::string& path, std::size_t first,
                                            std::size_t count, bool is_mono) {
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, decltype(&::sf_close)> file{
      ::sf_open(path.c_str(), SFM_READ, &info), &::sf_close};
  if (file == nullptr) return std::nullopt;
  const auto channels = static_cast<std::size_t>(info.channels);
  const auto frames = static_cast<sf_count_t>(count);
  std::vector<T> values(count * channels);
  if (::sf_seek(file.get(), static_cast<sf_count_t>(first), SEEK_SET) < 0) return std::nullopt;
  if constexpr (std::is_same_v<T, float>) {
    if (::sf_readf_float(file.get(), values.data(), frames) != frames) return std::nullopt;
  } else if (const int kind = info.format & SF_FORMAT_SUBMASK;
             kind == SF_FORMAT_FLOAT || kind == SF_FORMAT_DOUBLE) {
    std::vector<float> floats(values.size());
    if (::sf_readf_float(file.get(), floats.data(), frames) != frames) return std::nullopt;
    std::ranges::transform(floats, values.begin(), &nearest_int16);
  } else {
    ::sf_command(file.get(), SFC_SET_CLIPPING, nullptr, SF_TRUE);
    if (::sf_readf_short(file.get(), values.data(), frames) != frames) return std::nullopt;
  }
  if (!is_mono || channels == 1) return values;
  for (std::size_t i = 0; i < count; ++i) {
    std::conditional_t<std::is_same_v<T, float>, float, long long> sum = 0;
    for (std::size_t c = 0; c < channels; ++c) sum += values[i * channels + c];
    values[i] = static_cast<T>(sum / static_cast<decltype(sum)>(channels));
  }
  values.resize(count);
  return values;
}

// Returns true if all values are equal. A NaN equals any NaN.
template <class T>
bool are_equal(std::span<const T> one, std::span<const T> other) {
  return std::ranges::equal(one, other, [](T a, T b) { return a == b || (a != a && b != b); });
}

template <class T>
void read_clips(const std::string& path, const ps::audio_options& options, std::uint64_t seed) {
  try {
    const ps::audio_clips<T> data{{path}, options};
    const std::uint64_t frames = ps::detail::audio_file{path}.frames();
    fuzz::require((data.size() - 1) * options.hop < (std::max)(frames, std::uint64_t{1}),
                  "each clip begins in the file");
    for (std::uint64_t i = 0; i < (std::min)(data.size(), std::uint64_t{4}); ++i) {
      try {
        auto batch = test::read_batch(data, {i}, {.seed = seed});
        const std::span<const T> values = ps::get<"values">(batch.view()).flat();
        const auto first = static_cast<std::size_t>(ps::get<"first_frame">(batch.view())(0));
        const auto count = static_cast<std::size_t>(ps::get<"frames">(batch.view())(0));
        fuzz::require(count <= options.frames, "a clip is not longer than the option");
        fuzz::require(options.hop == 0 || first == i * options.hop, "a clip begins at its hop");
        fuzz::require(options.pad || count == options.frames, "a clip is whole");
        const auto direct = direct_frames<T>(path, first, count, options.mono);
        fuzz::require(direct && are_equal(values.first(count * options.channels),
                                          std::span<const T>{*direct}),
                      "the values that libsndfile reads");
        fuzz::require(std::ranges::count(values.subspan(count * options.channels), T{}) ==
                          static_cast<std::ptrdiff_t>((options.frames - count) * options.channels),
                      "zeros after the end");
      } catch (const ps::file_error& problem) {
        fuzz::require(problem.path() == path, "an error names the file");
      }
    }
  } catch (const ps::file_error& problem) {
    fuzz::require(problem.path() == path, "an error names the file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::scratch_file file;
  if (size < 4) return 0;
  ps::audio_options options{.frames = 1U + data[1] % 64U,
                            .channels = 1U + data[2] % 4U,
                            .hop = data[2] / 4U,
                            .pad = data[0] / 2 % 2 != 0,
                            .workers = 1};
  options.mono = data[0] / 4 % 2 != 0;
  if (options.mono) options.channels = 1;
  // Other formats of libsndfile are not tested.
  std::string bytes{reinterpret_cast<const char*>(data + 4), size - 4};
  const bool is_flac = data[0] % 2 != 0;
  const auto place = [&](std::string_view magic, std::size_t at) {
    if (bytes.size() >= at + magic.size()) bytes.replace(at, magic.size(), magic);
  };
  place(is_flac ? "fLaC" : "RIFF", 0);
  if (!is_flac) place("WAVE", 8);
  file.write(std::as_bytes(std::span{bytes}));
  read_clips<std::int16_t>(file.path(), options, data[3]);
  read_clips<float>(file.path(), options, data[3]);
  return 0;
}
