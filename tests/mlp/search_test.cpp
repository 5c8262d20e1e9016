// SPDX-License-Identifier: BSL-1.0
#include "search.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/tune/trial_error.hpp>
#include <penstock/tune/tuned_text.hpp>

#include "digits.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

std::string text_of(const std::string& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

mlp::options small(const test::temp_dir& directory) {
  mlp::options chosen;
  chosen.epochs = 1;
  chosen.device = mlp::device_choice::host;
  chosen.search = 1e6;
  chosen.trials = directory.path("trials.json");
  return chosen;
}

}  // namespace

TEST_CASE("a search has no workers, workers for each core, and whole batches as runs", "[mlp]") {
  const auto space = mlp::space_for(4, 64);
  CHECK(space.workers == std::vector<std::size_t>{0, 1, 2, 3, 4, 6});
  CHECK(space.run == std::vector<std::size_t>{64, 16, 4, 1, 0});
  CHECK(mlp::space_for(1, 1).run == std::vector<std::size_t>{1, 0});
}

TEST_CASE("a search trains, keeps its trials, and continues with them", "[mlp]") {
  const test::temp_dir directory;
  mlp::write_digits(directory.path("digits"), 200, 10);
  const auto data = mlp::read_data(directory.path("digits"));
  const auto chosen = small(directory);
  std::ostringstream first;
  mlp::search_options_for(chosen, data, first, 3);
  CHECK_THAT(first.str(), Catch::Matchers::Contains("best of ") &&
                              Catch::Matchers::Contains("}  // loader_options\n") &&
                              Catch::Matchers::Contains("}  // transfer_options\n"));
  const auto trials = penstock::read_trials(text_of(chosen.trials->string()));
  REQUIRE(trials.size() == 3);

  std::ostringstream second;
  mlp::search_options_for(chosen, data, second, 4);
  CHECK_THAT(second.str(), Catch::Matchers::StartsWith("3 trials of ") &&
                               Catch::Matchers::Contains("best of 4 trials"));
  const auto more = penstock::read_trials(text_of(chosen.trials->string()));
  REQUIRE(more.size() == 4);
  CHECK(std::equal(trials.begin(), trials.end(), more.begin()));
}

TEST_CASE("a damaged file of trials, and one of another search, are refused", "[mlp]") {
  const test::temp_dir directory;
  mlp::write_digits(directory.path("digits"), 100, 10);
  const auto data = mlp::read_data(directory.path("digits"));
  const auto chosen = small(directory);
  std::ostringstream out;
  std::ofstream{*chosen.trials} << "[{\"workers\": 4, ";
  CHECK_THROWS_AS(mlp::search_options_for(chosen, data, out), penstock::trial_error);
  std::ofstream{*chosen.trials} << "[{\"workers\": 4, \"cost\": 1}]";
  CHECK_THROWS_AS(mlp::search_options_for(chosen, data, out), penstock::option_error);
}

TEST_CASE("a search without the time for a trial says so", "[mlp]") {
  const test::temp_dir directory;
  mlp::write_digits(directory.path("digits"), 100, 10);
  auto chosen = small(directory);
  chosen.search = 1e-9;
  std::ostringstream out;
  CHECK_THROWS_AS(mlp::search_options_for(chosen, mlp::read_data(directory.path("digits")), out),
                  std::runtime_error);
}
