// SPDX-License-Identifier: BSL-1.0
// An existing program that reads a list of files, computes a score for each file with a model, and
// writes the scores in file order. `before` uses std::async to read the next batch and write the
// last scores while the model runs. `after` uses a loader and results. Both versions write the same
// text.
#include <penstock/penstock.hpp>
#include <penstock_ext/results/results.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ps = penstock;

constexpr std::size_t row_values = 48, batch_rows = 16;
using file_list = std::vector<std::string>;

void read_values(const std::string& path, float* to) {
  std::ifstream file{path, std::ios::binary};
  file.read(reinterpret_cast<char*>(to), row_values * sizeof(float));
  if (!file) throw std::runtime_error("can't read " + path);
}

// Stands in for a network.
void model(const float* inputs, std::size_t count, float* scores) {
  for (std::size_t i = 0; i != count; ++i) {
    scores[i] = 0;
    for (std::size_t v = 0; v != row_values; ++v) {
      scores[i] = 0.9F * scores[i] + inputs[i * row_values + v];
    }
  }
}

void write_scores(std::ostream& to, const float* scores, std::size_t count) {
  for (std::size_t i = 0; i != count; ++i) to << std::hexfloat << scores[i] << '\n';
}

void straightforward(const file_list& files, std::ostream& out) {
  for (const std::string& path : files) {
    float input[row_values], score = 0;
    read_values(path, input);
    model(input, 1, &score);
    write_scores(out, &score, 1);
  }
}

namespace before {

std::vector<float> read_batch(const file_list& files, std::size_t first) {
  const std::size_t count = first < files.size() ? std::min(batch_rows, files.size() - first) : 0;
  std::vector<float> inputs(count * row_values);
  for (std::size_t i = 0; i != count; ++i) read_values(files[first + i], &inputs[i * row_values]);
  return inputs;
}

void run(const file_list& files, std::ostream& out) {
  std::vector<float> inputs = read_batch(files, 0);
  std::future<void> written;
  for (std::size_t first = 0; !inputs.empty(); first += batch_rows) {
    auto next = std::async(std::launch::async, read_batch, std::cref(files), first + batch_rows);
    std::vector<float> scores(inputs.size() / row_values);
    model(inputs.data(), scores.size(), scores.data());
    if (written.valid()) written.get();
    written = std::async(std::launch::async, [&out, scores = std::move(scores)] {
      write_scores(out, scores.data(), scores.size());
    });
    inputs = next.get();
  }
  if (written.valid()) written.get();
}

}  // namespace before

namespace after {

using scored = ps::record<ps::field<"score", float>>;

struct value_files {
  using record_type = ps::record<ps::field<"values", float, row_values>>;
  const file_list& paths;
  std::uint64_t size() const { return paths.size(); }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    read_values(paths[i], ps::get<"values">(out).data());
  }
};

void run(const file_list& files, std::ostream& out) {
  ps::loader loader{value_files{files}, ps::sequential{}, {.batch_size = batch_rows, .workers = 2}};
  ps::transfer feed{loader};
  ps::results<scored> scores{ps::cpu_device{}, batch_rows, [&](const auto& done) {
                               write_scores(out, ps::get<"score">(done).data(), done.size());
                             }};
  for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), scores)) {
    model(ps::get<"values">(batch).data(), batch.size(), ps::get<"score">(slot).data());
  }
  scores.close();
}

}  // namespace after

int main() {
  const auto folder = std::filesystem::temp_directory_path() / "penstock_existing_inference";
  std::filesystem::create_directories(folder);
  file_list files;
  for (std::size_t i = 0; i != 150; ++i) {
    std::vector<char> bytes(row_values * sizeof(float), static_cast<char>(i % 60 + 1));
    files.push_back(folder / std::to_string(i));
    std::ofstream{files.back(), std::ios::binary}.write(bytes.data(), std::ssize(bytes));
  }
  std::ostringstream by_loop, by_hand, by_penstock;
  straightforward(files, by_loop);
  before::run(files, by_hand);
  after::run(files, by_penstock);
  std::filesystem::remove_all(folder);
  const bool is_same = by_hand.str() == by_loop.str() && by_penstock.str() == by_loop.str();
  std::cout << files.size() << " scores, " << (is_same ? "the same text" : "another text") << '\n';
  return is_same ? 0 : 1;
}
