// SPDX-License-Identifier: BSL-1.0
#include "experiment.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include <penstock/core/error.hpp>

#include "cuda_experiment.hpp"
#include "data.hpp"
#include "digits.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

/// A small set of drawn digits, read from files as the program does.
mlp::digit_data small_data(const test::temp_dir& directory) {
  mlp::write_digits(directory.path("digits"), 300, 50);
  return mlp::read_data(directory.path("digits"));
}

mlp::options small() {
  mlp::options chosen;
  chosen.epochs = 1;
  chosen.device = mlp::device_choice::host;
  chosen.modes.assign(mlp::all_techniques.begin(), mlp::all_techniques.end());
  return chosen;
}

}  // namespace

TEST_CASE("the experiment runs on the first samples alone when asked to", "[mlp]") {
  const test::temp_dir directory;
  const auto data = small_data(directory);
  auto chosen = small();
  chosen.samples = 200;
  const auto found = mlp::run_experiment(chosen, data);
  CHECK(found.train_samples == 200);
  CHECK(found.test_samples == 50);
  CHECK(found.batches_per_epoch == 4);
  REQUIRE(found.modes.size() == 4);
  CHECK(found.modes[0].first_losses.size() == 3);  // of full batches
  CHECK(found.recorded.empty());                   // not asked for
  CHECK(found.one_batch.size() == 1);
  chosen.samples = 10'000;
  CHECK(mlp::run_experiment(chosen, data).train_samples == 300);
}

TEST_CASE("the experiment is tested on fewer samples, and without the stages' costs, when asked to",
          "[mlp]") {
  const test::temp_dir directory;
  auto chosen = small();
  chosen.test_samples = 20;
  chosen.costs = false;
  chosen.modes = {mlp::technique::overlapped};
  const auto found = mlp::run_experiment(chosen, small_data(directory));
  CHECK(found.test_samples == 20);
  CHECK(found.costs.compute == 0.0);
  CHECK(found.one_batch.empty());  // there is no resident set
}

TEST_CASE("with --svg both loops are recorded in each run, whichever modes were asked for",
          "[mlp]") {
  const test::temp_dir directory;
  auto chosen = small();
  chosen.svg = "not written here";
  chosen.modes = {mlp::technique::resident};
  chosen.repeat = 2;
  const auto found = mlp::run_experiment(chosen, small_data(directory));
  REQUIRE(found.recorded.size() == 4);
  CHECK(found.recorded[2].fed_by == mlp::technique::serial);
  CHECK(found.recorded[3].fed_by == mlp::technique::overlapped);
}

TEST_CASE("the overlapped loop alone has statistics, of its steps and no others", "[mlp]") {
  const test::temp_dir directory;
  auto chosen = small();
  chosen.epochs = 2;
  chosen.costs = false;
  chosen.modes = {mlp::technique::serial, mlp::technique::overlapped};
  const auto found = mlp::run_experiment(chosen, small_data(directory));
  CHECK(found.modes[0].stats.empty());
  CHECK(found.modes[0].explained.empty());
  const std::string& stats = found.modes[1].stats;
  CAPTURE(stats);
  CHECK(stats.rfind("{\"penstock_transfer_stats\": 1", 0) == 0);
  CHECK(stats.find("\"copies\": 10") != std::string::npos);  // 300 samples in batches of 64, twice
  CHECK(stats.find("\"penstock_loader_stats\": 1") != std::string::npos);
  CHECK(found.modes[1].explained.find("processor:") != std::string::npos);
  CHECK(found.modes[1].explained.ends_with(found.modes[1].limit + '\n'));
}

TEST_CASE("the wide workload learns what the plain one does", "[mlp]") {
  const test::temp_dir directory;
  const auto data = small_data(directory);
  const auto plain = mlp::run_experiment(small(), data);
  auto chosen = small();
  chosen.fed = mlp::workload::wide;
  const auto wide = mlp::run_experiment(chosen, data);
  CHECK(wide.modes[0].epoch_losses == plain.modes[0].epoch_losses);
  CHECK(wide.modes[0].accuracy == plain.modes[0].accuracy);
}

TEST_CASE("images that travel as half, bfloat16 or int8 teach the network the same to rounding",
          "[mlp]") {
  const test::temp_dir directory;
  const auto data = small_data(directory);
  auto chosen = small();
  chosen.epochs = 2;
  chosen.costs = false;
  chosen.fed = mlp::workload::wide;
  chosen.modes = {mlp::technique::overlapped};
  const auto plain = mlp::run_experiment(chosen, data).modes[0];
  for (const auto& [travel, copied, distance] :
       {std::tuple{mlp::travel_choice::as_they_are, 3136 + 1, 0.0},
        std::tuple{mlp::travel_choice::half, 1568 + 1, 1e-2},
        std::tuple{mlp::travel_choice::bfloat16, 1568 + 1, 1e-2},
        std::tuple{mlp::travel_choice::int8, 784 + 1 + 8, 1e-2}}) {
    chosen.travel = travel;
    const auto found = mlp::run_experiment(chosen, data).modes[0];
    CAPTURE(name_of(travel), found.stats);
    CHECK(std::abs(found.epoch_losses[1] - plain.epoch_losses[1]) <= distance);
    CHECK((found.epoch_losses == plain.epoch_losses) == (distance == 0.0));
    // Two epochs of 300 samples, each field of a batch at an aligned address.
    const auto bytes = nlohmann::json::parse(found.stats)["bytes"].get<double>();
    CHECK(bytes >= 600.0 * copied);
    CHECK(bytes < 610.0 * copied);
  }
}

TEST_CASE("without a GPU the CPU device is used, with the reason", "[mlp]") {
  const auto reason = mlp::why_no_cuda();
  if (!reason) return;  // there is one: the tests on GPUs say more
  CHECK_FALSE(reason->empty());
  const test::temp_dir directory;
  const auto data = small_data(directory);
  auto chosen = small();
  chosen.device = mlp::device_choice::automatic;
  const auto found = mlp::run_experiment(chosen, data);
  CHECK(found.device.kind == "host");
  CHECK(found.device.why == *reason);
  chosen.device = mlp::device_choice::cuda;
  CHECK_THROWS_AS(mlp::run_experiment(chosen, data), std::runtime_error);
}
