// SPDX-License-Identifier: BSL-1.0
#include "rank_options.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

namespace mlp {

namespace {

constexpr std::array<std::string_view, 7> moments{"reading", "reduced", "learnt",  "half_written",
                                                  "written", "moved",   "throwing"};

/// Takes "RANK:STEP:MOMENT" apart; a message if it is none.
std::string parse_death(const std::string& text, std::optional<death>& dies) {
  death found;
  const char* const end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, found.rank);
  if (rank.ec == std::errc{} && rank.ptr != end && *rank.ptr == ':') {
    const auto step = std::from_chars(rank.ptr + 1, end, found.step);
    if (step.ec == std::errc{} && step.ptr != end && *step.ptr == ':') {
      const std::string_view word{step.ptr + 1, static_cast<std::size_t>(end - step.ptr - 1)};
      for (std::size_t i = 0; i < moments.size(); ++i) {
        if (word != moments[i]) continue;
        found.moment = static_cast<death_moment>(i);
        dies = found;
        return "";
      }
    }
  }
  return text +
         " is no RANK:STEP:MOMENT, of which the moment is one of reading, reduced, learnt, "
         "half_written, written, moved, throwing";
}

}  // namespace

rank_command_line parse_rank_options(int argc, const char* const* argv) {
  rank_command_line result;
  rank_options& o = result.chosen;
  std::string data;
  std::string checkpoint;
  std::string log;
  bool deterministic = false;
  std::int64_t patience = o.patience.count();

  CLI::App app{
      "Trains the perceptron of penstock_mlp on global batches that the ranks of a launcher "
      "share, on the CPU device or on a GPU each."};
  app.set_help_flag("--help,-h", "Print this list and exit");
  app.add_option("--device", o.device, "cpu, or cuda: a GPU a rank, with sums by NCCL")
      ->transform(CLI::CheckedTransformer(std::map<std::string, rank_device>{
          {"cpu", rank_device::cpu}, {"cuda", rank_device::cuda}}));
  app.add_option(
         "--patience", patience,
         "Seconds after which a sum by NCCL, or a call over TCP, that a rank does not come to "
         "is an error")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--data", data, "Folder with MNIST's four files. Default: digits are drawn")
      ->check(CLI::ExistingDirectory);
  app.add_option("--samples", o.samples, "Train on the first ones")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--epochs", o.epochs, "Passes through the samples")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--batch", o.global_batch, "Samples a step, over all ranks")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--workers", o.workers, "Threads of each rank that read samples")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Key of the order and of the first weights")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_flag("--deterministic", deterministic,
               "Add gradients up in one order: the same bits for 1, 2, 4 and 8 ranks");
  app.add_option("--checkpoint", checkpoint,
                 "Keep the training in this file, and go on with what it holds");
  app.add_option("--every", o.every, "Steps from one checkpoint to the next; one comes at the end")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--log", log,
                 "Append a line a step: epoch, batch, mean loss, and the samples of the global "
                 "batch");
  app.add_option_function<std::string>(
      "--die",
      [&](const std::string& text) {
        if (const auto problem = parse_death(text, o.dies); !problem.empty()) {
          throw CLI::ValidationError("--die", problem);
        }
      },
      "For tests: RANK:STEP:MOMENT at which a rank kills itself as kill -9 does, or throws");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    result.exit_status = app.exit(error);
    return result;
  }
  o.patience = std::chrono::seconds{patience};
  if (deterministic) o.how = reduction::ordered;
  if (!data.empty()) o.data = data;
  if (!checkpoint.empty()) o.checkpoint = checkpoint;
  if (!log.empty()) o.log = log;
  return result;
}

}  // namespace mlp
