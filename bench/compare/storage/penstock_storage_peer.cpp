// SPDX-License-Identifier: BSL-1.0
// One row of storage.py by penstock: batches for an accelerator that is a sleep.
//
//   penstock_storage_peer SAMPLE_BYTES BATCH STEP_SECONDS EPOCHS WORKERS FILE.npy...
//
// Prints {"utilisation": ..., "samples": ..., "seconds": ...}; the first step is not counted.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/data/chunk_context.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/files/npy_dataset.hpp>

namespace {

namespace ps = penstock;

using bytes_of_file = ps::record<ps::field<"bytes", std::uint8_t, ps::dyn>>;

// Files of equally many samples, one after the other.
class arrays {
 public:
  using record_type = bytes_of_file;

  explicit arrays(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) files_.emplace_back(path);
  }

  [[nodiscard]] std::uint64_t size() const { return files_.size() * files_.front().size(); }
  [[nodiscard]] ps::record_extents<record_type> extents() const { return files_.front().extents(); }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out,
                  const ps::chunk_context& context) const {
    const std::uint64_t lines = files_.front().size();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::uint64_t line = indices[i] % lines;
      files_[static_cast<std::size_t>(indices[i] / lines)].read_chunk({&line, 1}, out.subrun(i, 1),
                                                                      context.subrun(i, 1));
    }
  }

 private:
  std::vector<ps::npy_dataset<bytes_of_file>> files_;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(const std::vector<std::string>& words) {
  const std::size_t batch_size = std::stoul(words[1]);
  const std::chrono::duration<double> step{std::stod(words[2])};
  ps::loader loader{arrays{{words.begin() + 5, words.end()}},
                    ps::shuffled{.seed = 1},
                    {.batch_size = batch_size,
                     .workers = std::stoul(words[4]),
                     .last_batch = ps::partial_batch::drop}};
  std::size_t samples = 0;
  double busy = 0;
  bool is_first = true;
  std::chrono::steady_clock::time_point begin;
  for (auto& batch : loader.epochs(0, std::stoul(words[3]))) {
    if (ps::get<"bytes">(batch)[0].size() != std::stoul(words[0])) std::terminate();
    const auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(step);
    if (is_first) {
      is_first = false;
      begin = std::chrono::steady_clock::now();
      continue;
    }
    busy += seconds_since(start);
    samples += batch.size();
  }
  const double seconds = seconds_since(begin);
  std::printf("{\"utilisation\": %.6f, \"samples\": %zu, \"seconds\": %.6f}\n", busy / seconds,
              samples, seconds);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 6) {
    std::fprintf(stderr, "usage: %s SAMPLE_BYTES BATCH STEP_SECONDS EPOCHS WORKERS FILE.npy...\n",
                 argv[0]);
    return 2;
  }
  run(words);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}
