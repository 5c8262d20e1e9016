// SPDX-License-Identifier: BSL-1.0
// The common parts of the C++ programs that are compared, equivalent to peer.py: the data, the
// clock, and the command line. Uses only the standard library, so that the header compiles together
// with any peer.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace compare {

inline constexpr std::size_t batch_size = 64;
inline constexpr std::size_t pixels = 28 * 28;
// (x / 255 - mean) / deviation, as a multiplication and an addition. All programs that are compared
// compute the same expression.
inline constexpr float scale = 1.0F / (255.0F * 0.3081F);
inline constexpr float shift = -0.1307F / 0.3081F;
inline constexpr double min_seconds = 0.5;
inline constexpr std::size_t min_epochs = 2;

// ---- the data

struct digit_files {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;
};

inline std::vector<std::uint8_t> bytes_behind(const std::string& path, std::streamoff header) {
  std::ifstream file{path, std::ios::binary | std::ios::ate};
  if (!file) throw std::runtime_error(path + " can't be read");
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.tellg() - header));
  file.seekg(header);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// Reads the images and labels of a part. `part` is "train" or "t10k".
inline digit_files read_digits(const std::string& folder, const std::string& part) {
  return {bytes_behind(folder + "/" + part + "-images-idx3-ubyte", 16),
          bytes_behind(folder + "/" + part + "-labels-idx1-ubyte", 8)};
}

/// Converts the bytes of a sample to floats.
inline void normalise(const std::uint8_t* in, float* out) noexcept {
  for (std::size_t i = 0; i < pixels; ++i) out[i] = static_cast<float>(in[i]) * scale + shift;
}

/// Calls `put(index, place)` for each index of a batch, in a plain loop. Rows of `images` are
/// prefetched four ahead, as in the library's dataset.
template <class Index, class Put>
void gather(std::span<const Index> indices, const std::uint8_t* images, Put put) {
  constexpr std::size_t ahead = 4;
  const auto prefetch = [&](std::size_t i) {
    const std::uint8_t* row = images + indices[i] * pixels;
    for (std::size_t byte = 0; byte < pixels; byte += 64) __builtin_prefetch(row + byte);
  };
  for (std::size_t i = 0; i < std::min(ahead, indices.size()); ++i) prefetch(i);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + ahead < indices.size()) prefetch(i + ahead);
    put(indices[i], i);
  }
}

/// Gathers a batch of floats and labels in a plain loop.
template <class Index, class LabelIn, class LabelOut>
void gather(std::span<const Index> indices, const std::uint8_t* images, const LabelIn* labels,
            float* images_out, LabelOut* labels_out) {
  gather(indices, images, [=](std::size_t index, std::size_t at) {
    normalise(images + index * pixels, images_out + at * pixels);
    labels_out[at] = labels[index];
  });
}

// ---- the clock and the process

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// Returns the proportional set size of the process in MiB, like peer.py. Unlike there, child
/// processes are not added, because this process has only threads.
inline double memory_mib() {
  std::ifstream file{"/proc/self/smaps_rollup"};
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == "Pss:" && file >> kib) return kib / 1024;
  }
  return 0;
}

// ---- the consumer

/// Sums all values. Uses 16 partial sums, so that the additions need not wait for each other.
inline double sum_of(std::span<const float> values) {
  std::array<float, 16> sums{};
  std::size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (std::size_t j = 0; j < 16; ++j) sums[j] += values[i + j];
  }
  double total = 0;
  for (const float sum : sums) total += static_cast<double>(sum);
  for (; i < values.size(); ++i) total += static_cast<double>(values[i]);
  return total;
}

/// A summary of the values read, to check that all programs have read the same values.
struct seen {
  double values = 0;
  std::int64_t labels = 0;
  std::size_t samples = 0;

  void add(std::span<const float> images, auto labels_of_batch) {
    values += sum_of(images);
    for (const auto label : labels_of_batch) labels += label;
    samples += labels_of_batch.size();
  }
};

// ---- a row

inline std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

/// Measures a loader over whole epochs, for at least half a second and two epochs.
///
/// make() returns a loader. run(loader, epoch, each) iterates over the epoch with this number and
/// calls each(add) for every batch. add(seen&) reads the whole batch.
template <class Make, class Run>
std::string load(Make make, Run run) {
  double max = memory_mib();
  double cold = 0;
  std::size_t number_of = 0;
  seen checked;
  const double made_at = now();
  auto loader = make();
  run(loader, 0, [&](auto&& add) {  // the warm-up epoch, which is also the checked epoch
    add(checked);
    if (number_of == 0) cold = now() - made_at;
    if (number_of == 1 || number_of == 450) max = std::max(max, memory_mib());
    ++number_of;
  });

  seen timed;
  std::size_t epochs = 0;
  const double cpu_before = cpu_seconds();
  const double start = now();
  while (epochs < min_epochs || now() - start < min_seconds) {
    run(loader, ++epochs, [&](auto&& add) { add(timed); });
  }
  const double seconds = now() - start;
  const double cpu = cpu_seconds() - cpu_before;
  max = std::max(max, memory_mib());
  const auto e = static_cast<double>(epochs);
  return R"("group": "load", "items_per_second": )" +
         number(static_cast<double>(timed.samples) / seconds) + R"(, "nanoseconds": )" +
         number(seconds / e * 1e9) + R"(, "cpu_seconds": )" + number(cpu / e) +
         R"(, "peak_mib": )" + number(max) + R"(, "first_batch_cold_ms": )" + number(cold * 1e3) +
         R"(, "epochs": )" + std::to_string(epochs) + R"(, "checked": {"samples": )" +
         std::to_string(checked.samples) + R"(, "values": )" + number(checked.values) +
         R"(, "labels": )" + std::to_string(checked.labels) + "}";
}

/// The name of a row and the function that measures it. The function receives the folder.
using row = std::pair<std::string, std::function<std::string(const std::string& folder)>>;

/// The main function of a program that is compared. The arguments are `--list`, or `--data FOLDER
/// --row NAME`.
inline int main_of(int argc, char** argv, const std::vector<row>& rows, const std::string& library,
                   const std::string& version) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"--list"}) {
    for (const auto& [name, measure] : rows) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (words.size() != 4 || words[0] != "--data" || words[2] != "--row") {
    std::fprintf(stderr, "usage: %s --list | --data FOLDER --row NAME\n", argv[0]);
    return 2;
  }
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const row& one) { return one.first == words[3]; });
  if (found == rows.end()) {
    std::fprintf(stderr, "%s: no row %s\n", argv[0], words[3].c_str());
    return 2;
  }
  std::printf(R"({"versions": {"%s": "%s"}, "rows": [{"name": "%s", %s}]})"
              "\n",
              library.c_str(), version.c_str(), words[3].c_str(), found->second(words[1]).c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}

}  // namespace compare
