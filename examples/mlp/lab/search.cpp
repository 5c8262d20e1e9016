// SPDX-License-Identifier: BSL-1.0
#include "search.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>

#include <penstock/core/error.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/tune/tuned_text.hpp>

#include "experiment.hpp"

namespace mlp {

namespace {

namespace ps = penstock;

void read_trials(const std::filesystem::path& file, ps::option_search& search, std::ostream& out) {
  std::ifstream in{file, std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  if (text.empty()) return;
  for (const ps::trial& one : ps::read_trials(text)) search.note(one.options, one.cost);
  out << search.trials().size() << " trials of " << file.string() << '\n';
}

/// All of the file is replaced at once: a search that is interrupted leaves the last whole one.
void write_trials(const std::filesystem::path& file, const ps::option_search& search) {
  const std::filesystem::path next{file.string() + ".new"};
  std::ofstream out{next, std::ios::binary};
  out << ps::to_json(search.trials());
  out.close();
  if (!out) throw std::runtime_error(next.string() + ": can't be written");
  std::filesystem::rename(next, file);
}

std::string line_of(const ps::tuned_options& options) {
  std::string line = ps::to_json(options);
  std::erase(line, '"');
  return line;
}

/// The seconds of the overlapped loop with these options.
double seconds_with(const ps::tuned_options& tried, options chosen, const digit_data& data) {
  chosen.workers = tried.workers.value_or(chosen.workers);
  chosen.prefetch = tried.prefetch.value_or(chosen.prefetch);
  chosen.run = tried.run.value_or(chosen.run);
  chosen.depth = tried.depth.value_or(chosen.depth);
  chosen.modes = {technique::overlapped};
  chosen.costs = false;
  chosen.repeat = 1;
  return run_experiment(chosen, data).modes.front().seconds.front();
}

}  // namespace

ps::search_space space_for(std::size_t cores, std::size_t batch) {
  ps::search_space space{.prefetch = {2, 4, 8, 16}, .depth = {1, 2, 3, 4}};
  for (std::size_t workers = 0; workers <= 2 * cores;
       workers += std::max<std::size_t>(1, workers / 2)) {
    space.workers.push_back(workers);
  }
  for (std::size_t run = batch; run > 0 && space.run.size() < 4; run /= 4) space.run.push_back(run);
  space.run.push_back(0);
  return space;
}

void search_options_for(const options& chosen, const digit_data& data, std::ostream& out,
                        std::size_t most) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  ps::option_search search{space_for(cores, chosen.batch),
                           {.seed = chosen.seed,
                            .trials = most,
                            .budget = std::chrono::duration<double>{chosen.search}}};
  if (chosen.trials) read_trials(*chosen.trials, search, out);
  while (const auto tried = search.next()) {
    try {
      search.note(*tried, seconds_with(*tried, chosen, data));
    } catch (const ps::pinned_budget_exceeded& error) {
      out << line_of(*tried) << ": " << error.what() << '\n';
      search.exclude(*tried);
      continue;
    }
    out << std::setw(4) << search.trials().size() << "  " << std::fixed << std::setprecision(4)
        << search.trials().back().cost << " s  " << line_of(*tried) << std::endl;
    if (chosen.trials) write_trials(*chosen.trials, search);
  }
  if (search.trials().empty()) {
    throw std::runtime_error("--search: no trial: the time was too short, or nothing fits");
  }
  out << "\nbest of " << search.trials().size() << " trials\n" << ps::to_text(search.best());
}

}  // namespace mlp
