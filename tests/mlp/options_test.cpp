// SPDX-License-Identifier: BSL-1.0
#include "options.hpp"

#include <cstdint>
#include <initializer_list>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace {

struct parsed {
  mlp::command_line line;
  std::string out;
  std::string err;
};

parsed parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"penstock_mlp_bench"};
  argv.insert(argv.end(), arguments);
  std::ostringstream out;
  std::ostringstream err;
  auto* old_out = std::cout.rdbuf(out.rdbuf());
  auto* old_err = std::cerr.rdbuf(err.rdbuf());
  auto line = mlp::parse_command_line(static_cast<int>(argv.size()), argv.data());
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_err);
  return {line, out.str(), err.str()};
}

}  // namespace

TEST_CASE("every option is parsed into its member", "[mlp]") {
  const auto line = parse({"--data", "/tmp", "--epochs", "2", "--batch=100", "--workers", "0",
                           "--depth", "4", "--augment", "--mode", "overlapped", "--seed",
                           "18446744073709551615", "--repeat", "3", "--json", "out.json"})
                        .line;
  REQUIRE_FALSE(line.exit_status.has_value());
  const auto& o = line.chosen;
  CHECK(o.data == std::filesystem::path{"/tmp"});
  CHECK(o.epochs == 2);
  CHECK(o.batch == 100);
  CHECK(o.workers == 0);
  CHECK(o.depth == 4);
  CHECK(o.augment);
  CHECK(o.modes == std::vector{mlp::technique::overlapped});
  CHECK(o.seed == 18446744073709551615U);
  CHECK(o.repeat == 3);
  CHECK(o.json == std::filesystem::path{"out.json"});
  // The parser has tried to create the file and has removed it.
  CHECK_FALSE(std::filesystem::exists("out.json"));
}

TEST_CASE("an invalid value is rejected with the option name", "[mlp]") {
  using arguments = std::initializer_list<const char*>;
  const auto [option, value] =
      GENERATE(table<std::string, std::string>({{"--epochs", "0"},
                                                {"--epochs", "many"},
                                                {"--batch", "0"},
                                                {"--batch", "-1"},
                                                {"--workers", "257"},
                                                {"--workers", "-1"},
                                                {"--depth", "0"},
                                                {"--repeat", "0"},
                                                {"--seed", "-1"},
                                                {"--seed", "18446744073709551616"},
                                                {"--seeds", "1,-1"},
                                                {"--mode", "fast"},
                                                {"--device", "gpu"},
                                                {"--kernels", "fast"},
                                                {"--workload", "deep"},
                                                {"--samples", "-1"},
                                                {"--json", "/no/such/folder/a.json"},
                                                {"--json", "/tmp"},
                                                {"--wrokers", "2"},
                                                {"--data", "/no/such/folder"}}));
  CAPTURE(option, value);
  const auto result = parse(arguments{option.c_str(), value.c_str()});
  REQUIRE(result.line.exit_status.has_value());
  CHECK(*result.line.exit_status != 0);
  CHECK(result.err.find(option) != std::string::npos);
}

TEST_CASE("the values of device, workload and kernels are words", "[mlp]") {
  const auto usual = parse({}).line.chosen;
  CHECK(usual.device == mlp::device_choice::automatic);
  CHECK(usual.kernels == mlp::kernel_choice::fused);
  CHECK(usual.graph);
  CHECK(usual.costs);
  CHECK(usual.modes.size() == 4);
  CHECK(usual.batch == 64);
  CHECK(usual.fed == mlp::workload::mnist);
  CHECK(usual.samples == 0);
  const auto line = parse({"--device", "cuda", "--kernels", "cublas", "--no-graph", "--workload",
                           "wide", "--samples", "500", "--test-samples", "50", "--no-costs"})
                        .line;
  REQUIRE_FALSE(line.exit_status.has_value());
  CHECK(line.chosen.device == mlp::device_choice::cuda);
  CHECK(line.chosen.kernels == mlp::kernel_choice::cublas);
  CHECK_FALSE(line.chosen.graph);
  CHECK(line.chosen.fed == mlp::workload::wide);
  CHECK(line.chosen.samples == 500);
  CHECK(line.chosen.test_samples == 50);
  CHECK_FALSE(line.chosen.costs);
  CHECK(parse({"--device", "host", "--kernels", "fused", "--graph"}).line.chosen.device ==
        mlp::device_choice::host);
}

TEST_CASE("each seed is a separate experiment", "[mlp]") {
  const auto one = mlp::rows_of(parse({"--seed", "3"}).line.chosen);
  CHECK((one.size() == 1 && one[0].seed == 3));
  std::vector<std::uint64_t> seeds;
  for (const mlp::options& row :
       mlp::rows_of(parse({"--seeds", "5,2,18446744073709551615", "--workers", "4"}).line.chosen)) {
    CHECK(row.workers == 4);
    seeds.push_back(row.seed);
  }
  CHECK(seeds == std::vector<std::uint64_t>{5, 2, 18446744073709551615U});
  const auto result = parse({"--seeds", "1,2", "--seed", "3"});
  CHECK(result.line.exit_status != 0);
  CHECK(result.err.find(" excludes ") != std::string::npos);
}

TEST_CASE("help lists the options and is not an error", "[mlp]") {
  const auto result = parse({"--help"});
  REQUIRE(result.line.exit_status == 0);
  for (const char* option : {"--data", "--epochs", "--batch", "--workers", "--depth", "--augment",
                             "--mode", "--seed", "--json", "--repeat", "--device", "--workload",
                             "--kernels", "--graph", "--samples", "--seeds"}) {
    CHECK(result.out.find(option) != std::string::npos);
  }
}

TEST_CASE("the wide workload uses large batches and cuBLAS products but no augmentation", "[mlp]") {
  const auto wide = parse({"--workload", "wide"}).line.chosen;
  CHECK(wide.kernels == mlp::kernel_choice::cublas);
  CHECK(wide.batch == 4096);
  const auto reported =
      parse({"--workload", "wide", "--kernels", "fused", "--batch", "64"}).line.chosen;
  CHECK(reported.kernels == mlp::kernel_choice::fused);
  CHECK(reported.batch == 64);
  CHECK(parse({"--workload", "wide", "--augment"}).err.starts_with("--augment: not with"));
}

TEST_CASE("the last value is used if an option is specified twice", "[mlp]") {
  CHECK(parse({"--samples", "640", "--samples", "64"}).line.chosen.samples == 64);
}
