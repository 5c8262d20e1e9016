// SPDX-License-Identifier: BSL-1.0
#include "report.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

mlp::results reported_results() {
  mlp::results found;
  found.data_name = "random digits";
  found.train_samples = 640;
  found.test_samples = 100;
  found.device.why = "--device host";
  found.build = "g++ -O3";
  found.cores = 2;
  found.batches_per_epoch = 10;
  found.modes = {{mlp::technique::serial, {0.004, 0.008, 0.005}, {2.0, 0.25}, 0.975},
                 {mlp::technique::overlapped, {0.0022}, {2.0, 0.25}, 0.975},
                 {mlp::technique::resident, {0.002}, {2.0, 0.25}, 0.975}};
  found.costs = mlp::stage_costs{40.0, 10.0, 100.0};
  return found;
}

mlp::options reported_options() {
  mlp::options o;
  o.epochs = 2;
  o.modes = {mlp::technique::serial, mlp::technique::overlapped, mlp::technique::resident};
  return o;
}

}  // namespace

TEST_CASE("the median is the middle value, or the mean of the two", "[mlp]") {
  CHECK(mlp::median({5.0}) == 5.0);
  CHECK(mlp::median({9.0, 1.0, 5.0}) == 5.0);
  CHECK(mlp::median({9.0, 1.0, 5.0, 6.0}) == 5.5);
}

TEST_CASE("the bound is the slowest stage, or all work over the cores", "[mlp]") {
  CHECK(mlp::bound_of({40, 10, 100}, 1, 4).microseconds == 100);
  CHECK(mlp::bound_of({40, 10, 100}, 1, 4).limit == "compute");
  CHECK(mlp::bound_of({500, 10, 100}, 2, 4).microseconds == 250);
  CHECK(mlp::bound_of({500, 10, 100}, 2, 4).limit == "load");
  CHECK(mlp::bound_of({40, 200, 100}, 1, 4).limit == "copy");
  CHECK(mlp::bound_of({90, 80, 100}, 1, 2).microseconds == 135);
  CHECK(mlp::bound_of({90, 80, 100}, 1, 2).limit == "cores");
  // A step on a GPU does not use cores, so all cores can read.
  CHECK(mlp::bound_of({90, 80, 100}, 1, 2, false).microseconds == 100);
  CHECK(mlp::bound_of({90, 80, 100}, 1, 2, false).limit == "compute");
  // Without workers, one thread reads. More workers than cores count as the number of cores.
  CHECK(mlp::bound_of({500, 10, 100}, 0, 4).microseconds == 500);
  CHECK(mlp::bound_of({500, 10, 100}, 8, 2).microseconds == 305);
}

TEST_CASE("the report shows medians, ratios and the distance from the bound", "[mlp]") {
  std::ostringstream out;
  mlp::print_report(out, reported_options(), reported_results());
  const std::string text = out.str();
  CAPTURE(text);
  CHECK(text.find("random digits, 640 + 100") != std::string::npos);
  CHECK(text.find("0.005") != std::string::npos);    // the median of the serial runs
  CHECK(text.find("2.27x") != std::string::npos);    // 5 ms over 2.2 ms
  CHECK(text.find("1.100") != std::string::npos);    // ratio of fed to resident
  CHECK(text.find("0.25000") != std::string::npos);  // loss of the last epoch
  CHECK(text.find("97.50 %") != std::string::npos);
  CHECK(text.find("load 40.0 us, copy 10.0 us, compute 100.0 us") != std::string::npos);
  CHECK(text.find("overlapped takes 110.0 us, 10.0 % above") != std::string::npos);
}

TEST_CASE("the report names the bottleneck of a diagnosed loop", "[mlp]") {
  auto found = reported_results();
  std::ostringstream plain;
  mlp::print_report(plain, reported_options(), found);
  CHECK(plain.str().find(" is ") == plain.str().find(" is faster than "));
  for (auto& mode : found.modes) {
    if (mode.fed_by == mlp::technique::overlapped) mode.limit = "step-bound: it never waits.";
  }
  std::ostringstream out;
  mlp::print_report(out, reported_options(), found);
  CHECK(out.str().ends_with("\noverlapped is step-bound: it never waits.\n"));
}

TEST_CASE("a GPU is reported with its driver, its runtime and the parts of a step", "[mlp]") {
  auto found = reported_results();
  found.device = {.kind = "cuda",
                  .name = "Some GPU",
                  .driver = "13.1",
                  .runtime = "13.0",
                  .capability = "9.0",
                  .multiprocessors = 132,
                  .kernels = "fused",
                  .graph = true,
                  .why = "there is a GPU"};
  std::ostringstream out;
  mlp::print_report(out, reported_options(), found);
  CAPTURE(out.str());
  CHECK(out.str().find("Some GPU (compute capability 9.0, 132 multiprocessors, driver for CUDA "
                       "13.1, runtime 13.0), fused kernels, as graphs") != std::string::npos);
  CHECK(out.str().find("because there is a GPU") != std::string::npos);

  const test::temp_dir directory;
  auto o = reported_options();
  o.json = directory.path("out.json");
  mlp::write_json({{o, found}});
  const auto object = nlohmann::json::parse(std::ifstream{*o.json});
  CHECK(object["device"]["kind"] == "cuda");
  CHECK(object["device"]["name"] == "Some GPU");
  CHECK(object["device"]["driver"] == "13.1");
  CHECK(object["device"]["runtime"] == "13.0");
  CHECK(object["device"]["kernels"] == "fused");
  CHECK(object["device"]["graph"] == true);
}

TEST_CASE("several experiments are an array in the JSON file", "[mlp]") {
  std::vector<mlp::measured_row> rows{{reported_options(), reported_results()},
                                      {reported_options(), reported_results()}};
  const test::temp_dir directory;
  rows[0].chosen.json = directory.path("seeds.json");
  rows[0].chosen.seeds = {1, 2};
  rows[1].chosen.seed = 2;
  rows[1].found.modes[2].seconds = {0.0005};
  mlp::write_json(rows);
  const auto all = nlohmann::json::parse(std::ifstream{*rows[0].chosen.json});
  REQUIRE(all.size() == 2);
  CHECK(all[1]["modes"][2]["seconds"] == 0.0005);
  CHECK(all[0]["options"]["seed"] == 1);
  CHECK(all[1]["options"]["seed"] == 2);
}

TEST_CASE("a mode that was not run is shown as a dash", "[mlp]") {
  auto found = reported_results();
  found.modes = {found.modes[1]};
  std::ostringstream out;
  mlp::print_report(out, reported_options(), found);
  const std::string text = out.str();
  const auto row = text.substr(text.find("overlapped"), 80);
  CAPTURE(row);
  CHECK(row.find(" - ") != std::string::npos);
}

TEST_CASE("a fed loop is also compared with steps without a gather", "[mlp]") {
  auto found = reported_results();
  found.one_batch = {0.0016, 0.001, 0.0021};
  std::ostringstream out;
  mlp::print_report(out, reported_options(), found);
  CAPTURE(out.str());
  CHECK(out.str().find("one batch") != std::string::npos);
  CHECK(out.str().find("0.800") != std::string::npos);  // 1.6 ms over 2 ms in resident mode

  const test::temp_dir directory;
  auto o = reported_options();
  o.json = directory.path("out.json");
  mlp::write_json({{o, found}});
  const auto object = nlohmann::json::parse(std::ifstream{*o.json});
  CHECK(object["one_batch"]["seconds"] == 0.0016);
  CHECK(object["one_batch"]["seconds_of_runs"].size() == 3);
  CHECK(std::abs(object["modes"][1]["fed_over_one_batch"].get<double>() - 1.375) < 1e-9);
}

TEST_CASE("the JSON file contains the same figures", "[mlp]") {
  const test::temp_dir directory;
  auto o = reported_options();
  o.json = directory.path("out.json");
  mlp::write_json({{o, reported_results()}});
  std::ifstream file{*o.json};
  const auto object = nlohmann::json::parse(file);
  CHECK(object["complete"] == true);
  CHECK(object["data"]["name"] == "random digits");
  CHECK(object["options"]["epochs"] == 2);
  CHECK(object["options"]["workload"] == "mnist");
  CHECK(object["device"]["kind"] == "host");
  CHECK(object["device"]["driver"].is_null());
  REQUIRE(object["modes"].size() == 3);
  CHECK(object["modes"][0]["technique"] == "serial");
  CHECK(object["modes"][0]["seconds"] == 0.005);
  CHECK(object["modes"][0]["seconds_of_runs"].size() == 3);
  CHECK(object["modes"][2]["fed_over_resident"] == 1.0);
  CHECK(object["modes"][1]["final_loss"] == 0.25);
  CHECK(object["modes"][1]["fed_over_one_batch"].is_null());
  CHECK(object["one_batch"]["seconds"].is_null());
  CHECK(object["batch_microseconds"]["bound"] == 100.0);
  CHECK(object["batch_microseconds"]["bound_by"] == "compute");
  CHECK(std::abs(object["overlapped_above_bound"].get<double>() - 0.1) < 1e-9);

  o.json = directory.path("no/such/folder/out.json");
  CHECK_THROWS_AS(mlp::write_json({{o, reported_results()}}), std::runtime_error);
}

TEST_CASE("the output of an ongoing run is well-formed and marked as incomplete", "[mlp]") {
  const test::temp_dir directory;
  auto o = reported_options();
  o.json = directory.path("out.json");
  mlp::results found = reported_results();
  found.modes.resize(1);
  found.costs.reset();
  mlp::write_json({{o, found, false}});
  const auto object = nlohmann::json::parse(std::ifstream{*o.json});
  CHECK(object["complete"] == false);
  CHECK(object["modes"].size() == 1);
  CHECK(object["modes"][0]["fed_over_resident"].is_null());
  CHECK(object["batch_microseconds"].is_null());
  CHECK(object["overlapped_above_bound"].is_null());
  CHECK_FALSE(std::filesystem::exists(o.json->string() + ".new"));
  o.seeds = {1, 2};
  mlp::write_json({{o, reported_results(), true}, {o, found, false}});
  const auto rows = nlohmann::json::parse(std::ifstream{*o.json});
  CHECK(rows[0]["complete"] == true);
  CHECK(rows[1]["complete"] == false);
}
