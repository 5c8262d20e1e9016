// SPDX-License-Identifier: BSL-1.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

namespace mlp {

namespace {

/// Returns an error message if `text` is not a 64-bit number. CLI11 itself would accept -1 as 2^64
/// - 1.
std::string require_word(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size();
  return is_whole ? "" : text + " is not in the range of 0 to 2^64 - 1";
}

/// Returns an error message if the file cannot be written, so that the error is reported before
/// training.
std::string require_writable(const std::string& file) {
  const bool is_new = !std::filesystem::exists(file);
  const bool is_writable = std::ofstream{file, std::ios::app}.is_open();
  const std::string reason = std::strerror(errno);
  if (!is_writable) return file + " can't be written: " + reason;
  if (is_new) std::filesystem::remove(file);
  return "";
}

/// Adds an option that accepts one of several words.
template <class Choice>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Choice& choice,
                        const std::string& usual, const std::map<std::string, Choice>& words,
                        const std::string& description) {
  std::vector<std::string> names;
  for (const auto& [word, meaning] : words) names.push_back(word);
  return app
      .add_option_function<std::string>(
          name, [&choice, words](const std::string& word) { choice = words.at(word); }, description)
      ->check(CLI::IsMember(names))
      ->default_str(usual);
}

}  // namespace

command_line parse_command_line(int argc, const char* const* argv) {
  command_line result;
  options& o = result.chosen;
  std::string data;
  std::string json;
  std::string mode = "all";

  CLI::App app{
      "Trains a 784-128-64-10 perceptron on MNIST, fed in four ways, and compares their times."};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_help_flag("--help,-h", "Print this list and exit");
  app.add_option("--data", data,
                 "Folder with MNIST's four files, plain or .gz. Default: $MNIST_DIR, else "
                 "data/mnist, else random digits")
      ->check(CLI::ExistingDirectory);
  app.add_option("--epochs", o.epochs, "Passes through the training set")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  auto* batch = app.add_option("--batch", o.batch, "Samples a step; 4096 with --workload wide")
                    ->check(CLI::Range(1, 10'000))
                    ->capture_default_str();
  app.add_option("--samples", o.samples, "Train on the first ones alone; 0: on all")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--test-samples", o.test_samples, "Test on the first ones alone; 0: on all")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_flag("--costs,!--no-costs", o.costs,
               "Measure what a batch costs in each stage (default), or leave that out");
  app.add_option("--workers", o.workers, "Threads that read samples; 0: the training thread itself")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--depth", o.depth, "Device slots of the overlapped mode")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--augment", o.augment, "Warp every sample anew each time: rotation, shift, scale");
  add_choice<workload>(app, "--workload", o.fed, "mnist",
                       {{"mnist", workload::mnist}, {"wide", workload::wide}},
                       "wide: images travel as floats, in large batches, which loads the bus");
  add_choice<device_choice>(app, "--device", o.device, "auto",
                            {{"auto", device_choice::automatic},
                             {"host", device_choice::host},
                             {"cuda", device_choice::cuda}},
                            "What to train on; auto: a GPU where there is one");
  auto* kernels = add_choice<kernel_choice>(
      app, "--kernels", o.kernels, "fused",
      {{"cublas", kernel_choice::cublas}, {"fused", kernel_choice::fused}},
      "On CUDA: fused around cuBLAS (also what --workload wide has), or fused throughout");
  app.add_flag("--graph,!--no-graph", o.graph,
               "On CUDA: replay the step as a graph (default), or launch its kernels");
  app.add_option("--mode", mode, "Which of the four ways")
      ->check(CLI::IsMember({"all", "serial", "workers", "overlapped", "resident"}))
      ->capture_default_str();
  auto* seed =
      app.add_option("--seed", o.seed, "Key of the order, the augmentation and the first weights")
          ->check(require_word)
          ->capture_default_str();
  app.add_option("--repeat", o.repeat, "Runs of each mode, interleaved; times are medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", json, "Write the results to this file; its keys stand in the README")
      ->check(require_writable);

  app.add_option("--seeds", o.seeds, "A list such as 1,2,3: repeats the run with each seed")
      ->check(require_word)
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->excludes(seed);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    result.exit_status = app.exit(error);
    return result;
  }

  if (o.fed == workload::wide && o.augment) {
    std::cerr << "--augment: not with --workload wide\n";
    result.exit_status = 1;
    return result;
  }
  if (o.fed == workload::wide && batch->count() == 0) o.batch = 4096;
  // The fused kernels are designed for small batches. With large batches, they would be the
  // bottleneck instead of the bus.
  if (o.fed == workload::wide && kernels->count() == 0) o.kernels = kernel_choice::cublas;
  if (!data.empty()) o.data = data;
  if (!json.empty()) o.json = json;
  for (const technique t : all_techniques) {
    if (mode == "all" || mode == name_of(t)) o.modes.push_back(t);
  }
  return result;
}

std::vector<options> rows_of(const options& chosen) {
  if (chosen.seeds.empty()) return {chosen};
  std::vector<options> rows;
  for (const std::uint64_t seed : chosen.seeds) {
    rows.push_back(chosen);
    rows.back().seed = seed;
  }
  return rows;
}

}  // namespace mlp
