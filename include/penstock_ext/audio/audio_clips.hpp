// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sndfile.h>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The types of audio values that `audio_clips` produces.
template <class T>
concept audio_value = std::same_as<T, float> || std::same_as<T, std::int16_t>;

/// A clip of an audio file: the values as frames x channels, interleaved; the number of the first
/// frame in the file; and the number of frames that are in the file, after which zeros follow.
template <audio_value T>
using audio_clip = record<field<"values", T, dyn, dyn>, field<"first_frame", std::int64_t>,
                          field<"frames", std::int64_t>>;

/// The options of `audio_clips`. Invalid values throw `option_error`.
struct audio_options {
  std::size_t frames = 0;    ///< length of a clip in frames, at least 1
  std::size_t channels = 1;  ///< number of channels of a clip, at least 1
  /// Averages the channels of each file, which may have any number. Requires one channel.
  bool mono = false;
  /// The sample rate that every file must have, in Hz. If 0, files of all rates are read as they
  /// are. Nothing is resampled.
  int sample_rate = 0;
  /// Distance in frames between the first frames of the clips of a file. If 0, each file is one
  /// sample, whose clip begins at a random frame. No clip begins after the last frame of a file.
  std::uint64_t hop = 0;
  /// Fills clips with zeros after the last frame of a file. Otherwise a file shorter than a clip is
  /// an error, and frames after the last whole clip are not read.
  bool pad = false;
  /// Number of threads that open the files at construction, including the calling thread. At least
  /// 1.
  std::size_t workers = 8;
};

namespace detail {

/// An open audio file. Not thread-safe.
class audio_file {
 public:
  /// Opens `path`. Throws `file_unreadable`, and `file_format_error` if libsndfile does not support
  /// the file.
  explicit audio_file(const std::string& path)
      : data_(path, "files are open while they are read: raise the limit (ulimit -n)"),
        // Read first, so that no thread usually reads from a disk while it holds the mutex.
        head_size_(data_.read_at(0, head_)) {
    static SF_VIRTUAL_IO calls{&audio_file::length, &audio_file::seek_to, &audio_file::read_bytes,
                               nullptr, &audio_file::tell};
    // The library keeps the error of the last failed sf_open in static memory.
    static std::mutex opening;
    const std::lock_guard lock{opening};
    file_.reset(::sf_open_virtual(&calls, SFM_READ, &info_, this));
    rethrow_problem();
    if (file_ == nullptr) reject(std::string{"libsndfile: "} + ::sf_strerror(nullptr));
    if (info_.seekable == 0 || info_.frames < 0 || info_.channels < 1 ||
        info_.frames > (std::numeric_limits<sf_count_t>::max)() / 2) {
      reject("a file without a length or without positions");
    }
  }
  audio_file(const audio_file&) = delete;
  audio_file& operator=(const audio_file&) = delete;

  [[nodiscard]] std::uint64_t frames() const noexcept {
    return static_cast<std::uint64_t>(info_.frames);
  }
  [[nodiscard]] std::size_t channels() const noexcept {
    return static_cast<std::size_t>(info_.channels);
  }
  [[nodiscard]] int sample_rate() const noexcept { return info_.samplerate; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return data_.size(); }

  /// Reads interleaved frames, starting at frame `first`, until `out` is full. Floats are in [-1,
  /// 1] if the file has integers. If the file has floats, `int16_of` makes integers of them. Throws
  /// `file_corrupt`.
  template <audio_value T>
  void read(std::uint64_t first, std::span<T> out) {
    const auto count = static_cast<sf_count_t>(out.size() / channels());
    sf_count_t found = -1;
    if (::sf_seek(file_.get(), static_cast<sf_count_t>(first), SEEK_SET) >= 0) {
      if constexpr (std::same_as<T, float>) {
        found = ::sf_readf_float(file_.get(), out.data(), count);
      } else if (const int kind = info_.format & SF_FORMAT_SUBMASK;
                 kind == SF_FORMAT_FLOAT || kind == SF_FORMAT_DOUBLE || kind == SF_FORMAT_VORBIS ||
                 kind == SF_FORMAT_OPUS) {
        // libsndfile would convert without a scale, or scale by the largest value of the file.
        // Values of Vorbis, which often exceed 1, would wrap around.
        std::vector<float> values(out.size());
        found = ::sf_readf_float(file_.get(), values.data(), count);
        std::ranges::transform(values, out.begin(), &audio_file::int16_of);
      } else {
        ::sf_command(file_.get(), SFC_SET_CLIPPING, nullptr, SF_TRUE);
        found = ::sf_readf_short(file_.get(), out.data(), count);
      }
    }
    rethrow_problem();
    if (found == count && ::sf_error(file_.get()) == SF_ERR_NO_ERROR) return;
    throw file_corrupt(data_.path(), at_, str_cat({count, " frames that start at frame ", first}),
                       std::string{"damaged data (libsndfile: "} + ::sf_strerror(file_.get()) +
                           "): restore the file, or leave it out");
  }

  /// Returns the integer that is nearest to 32768 * `value`, limited to the range of 16 bits.
  /// Returns 0 for NaN.
  [[nodiscard]] static std::int16_t int16_of(float value) noexcept {
    if (std::isnan(value)) return 0;
    return static_cast<std::int16_t>(std::lrint(std::clamp(value * 32768.0F, -32768.0F, 32767.0F)));
  }

  /// Throws `file_format_error` for this file.
  [[noreturn]] void reject(const std::string& found,
                           const std::string& expected = "audio in a format of libsndfile") const {
    throw file_format_error(data_.path(), 0, expected, found);
  }

 private:
  static sf_count_t length(void* self) noexcept {
    return static_cast<sf_count_t>(static_cast<audio_file*>(self)->bytes());
  }
  static sf_count_t tell(void* self) noexcept {
    return static_cast<sf_count_t>(static_cast<audio_file*>(self)->at_);
  }
  static sf_count_t seek_to(sf_count_t offset, int whence, void* self) noexcept {
    auto& file = *static_cast<audio_file*>(self);
    const sf_count_t base = whence == SEEK_CUR ? tell(self) : whence == SEEK_END ? length(self) : 0;
    sf_count_t to = 0;
    if (__builtin_add_overflow(base, offset, &to) || to < 0) return -1;
    file.at_ = static_cast<std::uint64_t>(to);
    return to;
  }
  static sf_count_t read_bytes(void* out, sf_count_t count, void* self) noexcept {
    auto& file = *static_cast<audio_file*>(self);
    const std::uint64_t left = file.bytes() - (std::min)(file.bytes(), file.at_);
    const auto size = static_cast<std::size_t>(
        (std::min)(left, static_cast<std::uint64_t>((std::max)(count, sf_count_t{0}))));
    if (size == 0) return 0;
    std::size_t found = size;
    if (file.at_ + size <= file.head_size_) {
      std::memcpy(out, file.head_.data() + file.at_, size);
    } else {
      try {
        found = file.data_.read_at(file.at_, {static_cast<std::byte*>(out), size});
      } catch (...) {
        file.problem_ = std::current_exception();
        return 0;
      }
    }
    file.at_ += found;
    return static_cast<sf_count_t>(found);
  }
  void rethrow_problem() const {
    if (problem_) std::rethrow_exception(problem_);
  }

  shard_file data_;
  std::array<std::byte, 4096> head_;  // the first bytes, which libsndfile reads in small pieces
  std::size_t head_size_;
  std::uint64_t at_ = 0;        // position of the next read in the file
  std::exception_ptr problem_;  // the exception of a read
  SF_INFO info_{};
  std::unique_ptr<SNDFILE, decltype(&::sf_close)> file_{nullptr, &::sf_close};
};

/// The clips of one file of `audio_clips`, which is opened by each read. Reading is thread-safe.
template <audio_value T>
class clips_of_file {
 public:
  using record_type = audio_clip<T>;

  /// Opens the file `path` to find its clips. Throws `file_unreadable`, and `file_format_error` if
  /// the file does not fit the options, which must be valid.
  clips_of_file(std::string path, const audio_options& options)
      : path_(std::move(path)), options_(options) {
    const audio_file file{path_};
    require(file);
    frames_ = file.frames();
    bytes_ = file.bytes();
    if (frames_ < options.frames && !options.pad) {
      file.reject(str_cat({frames_, " frames: set .pad, or leave the file out"}),
                  str_cat({"at least ", options.frames, " frames"}));
    }
    if (options.hop == 0) return;
    size_ = last_begin() / options.hop + 1;
    // A hop longer than a clip may lead beyond the end of the file.
    const bool has_rest = last_begin() % options.hop != 0 && size_ * options.hop < frames_;
    if (options.pad && has_rest) ++size_;
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] record_extents<record_type> extents() const noexcept {
    return {{options_.frames, options_.channels}, {}, {}};
  }
  void read(std::uint64_t index, sample<record_type> out, sample_generator& rng) const {
    audio_file file{path_};
    require(file);
    if (file.frames() != frames_ || file.bytes() != bytes_) {
      throw file_changed(path_, 0, str_cat({bytes_, " bytes with ", frames_, " frames"}),
                         str_cat({file.bytes(), " bytes with ", file.frames(),
                                  " frames: open the dataset again"}));
    }
    const std::uint64_t first =
        options_.hop == 0 ? uniform(rng, std::uint64_t{0}, last_begin()) : index * options_.hop;
    const auto count =
        static_cast<std::size_t>((std::min<std::uint64_t>)(frames_ - first, options_.frames));
    const std::span<T> values = get<"values">(out).flat();
    if (file.channels() == options_.channels) {
      file.read(first, values.first(count * options_.channels));
    } else {
      read_mono(file, first, values.first(count));
    }
    std::ranges::fill(values.subspan(count * options_.channels), T{});
    get<"first_frame">(out) = static_cast<std::int64_t>(first);
    get<"frames">(out) = static_cast<std::int64_t>(count);
  }

 private:
  // Returns the first frame of the last clip that ends within the file, or 0.
  [[nodiscard]] std::uint64_t last_begin() const noexcept {
    return frames_ - (std::min<std::uint64_t>)(frames_, options_.frames);
  }
  void require(const audio_file& file) const {
    if (!options_.mono && file.channels() != options_.channels) {
      file.reject(str_cat({file.channels(), ": set .channels, or .mono to average them"}),
                  str_cat({"channels: ", options_.channels}));
    }
    if (options_.sample_rate != 0 && file.sample_rate() != options_.sample_rate) {
      file.reject(str_cat({file.sample_rate(), " Hz: resample the file"}),
                  str_cat({"a sample rate of ", options_.sample_rate, " Hz"}));
    }
  }
  static void read_mono(audio_file& file, std::uint64_t first, std::span<T> out) {
    using sum_type = std::conditional_t<std::same_as<T, float>, float, std::int64_t>;
    const std::size_t channels = file.channels();
    std::vector<T> all(out.size() * channels);
    file.read(first, std::span<T>{all});
    for (std::size_t i = 0; i < out.size(); ++i) {
      sum_type sum = 0;
      for (std::size_t c = 0; c < channels; ++c) sum += all[i * channels + c];
      out[i] = static_cast<T>(sum / static_cast<sum_type>(channels));
    }
  }

  std::string path_;
  audio_options options_;
  std::uint64_t frames_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t size_ = 1;
};

/// Opens the files at `paths` in parallel. Throws the same errors as `audio_clips`.
template <audio_value T>
[[nodiscard]] part_list<clips_of_file<T>> opened_clips(const std::vector<std::string>& paths,
                                                       const audio_options& options) {
  const auto require = [](bool is_valid, const char* option, const char* problem) {
    if (!is_valid) throw_option_error(option, {problem});
  };
  require(!paths.empty(), "paths", "expected at least one file, found none");
  require(options.frames != 0, "frames", "must be at least 1, but is 0");
  require(options.channels != 0, "channels", "must be at least 1, but is 0");
  require(!options.mono || options.channels == 1, "mono", "requires .channels = 1");
  require(options.sample_rate >= 0, "sample_rate", "must not be negative");
  require(options.workers != 0, "workers", "must be at least 1, but is 0");
  return part_list<clips_of_file<T>>{
      open_in_parallel(paths.size(), options.workers,
                       [&](std::size_t i) { return clips_of_file<T>{paths[i], options}; })};
}

}  // namespace detail

/// A dataset of clips of equal length from audio files, read with libsndfile. `T` is `float` or
/// `std::int16_t`.
///
///     const ps::audio_clips<float> clips{ps::glob("speech/*.flac"), {.frames = 16000}};
///     ps::loader loader{clips, ps::shuffled{.seed = 1}, {.batch_size = 64, .workers = 8}};
///     for (auto& batch : loader.epoch(0)) use(ps::get<"values">(batch));  // 64 x 16000 x 1
///
/// Each file is one sample, and its clip begins at a random frame, which is drawn from (seed,
/// epoch, index). With `audio_options::hop`, a file has a clip every `hop` frames instead. The
/// construction opens all files once, with several threads. Each read opens its file, seeks and
/// decodes only the clip.
///
/// Tested with WAV and FLAC. Other formats are read as far as libsndfile can seek in them. A
/// damaged FLAC frame throws. WAV has no checksums, so damaged values are not detected.
///
/// The sample origin (`origin_of`) contains the file and the clip, counted from 0. Movable. Reading
/// is thread-safe.
/// Opening files is serialized by a mutex, because `sf_open` writes to static memory.
template <audio_value T>
class audio_clips : public detail::concat_dataset<detail::part_list<detail::clips_of_file<T>>> {
 public:
  /// Opens the files at `paths`. Throws
  ///
  /// - `file_unreadable`;
  /// - `file_format_error` if libsndfile does not support a file, if its channels or sample rate
  ///   differ from the options, or if it is shorter than a clip;
  /// - `option_error` for an empty list and invalid options.
  ///
  /// A read also throws `file_corrupt`, and `file_changed` if the length of a file has changed.
  explicit audio_clips(const std::vector<std::string>& paths, const audio_options& options)
      : audio_clips::concat_dataset(detail::opened_clips<T>(paths, options), "audio_clips") {}
};

static_assert(dataset<audio_clips<float>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
