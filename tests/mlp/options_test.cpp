// SPDX-License-Identifier: BSL-1.0
#include "options.hpp"

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
  const auto line = parse({"--data",      "/tmp",       "--epochs", "2",
                           "--batch=100", "--workers",  "0",        "--prefetch",
                           "7",           "--depth",    "4",        "--augment",
                           "--mode",      "overlapped", "--seed",   "18446744073709551615",
                           "--repeat",    "3",          "--json",   "out.json",
                           "--chunk",     "16"})
                        .line;
  REQUIRE_FALSE(line.exit_status.has_value());
  const auto& o = line.chosen;
  CHECK(o.data == std::filesystem::path{"/tmp"});
  CHECK(o.epochs == 2);
  CHECK(o.batch == 100);
  CHECK(o.workers == 0);
  CHECK(o.prefetch == 7);
  CHECK(o.chunk == 16);
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
                                                {"--prefetch", "100000"},
                                                {"--depth", "0"},
                                                {"--repeat", "0"},
                                                {"--seed", "-1"},
                                                {"--seed", "18446744073709551616"},
                                                {"--seeds", "1,-1"},
                                                {"--worker-counts", "1,257"},
                                                {"--precisions", "fp32,fp8"},
                                                {"--mode", "fast"},
                                                {"--device", "gpu"},
                                                {"--kernels", "fast"},
                                                {"--workload", "deep"},
                                                {"--precision", "fp8"},
                                                {"--accumulate", "0"},
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
  CHECK_FALSE(usual.steps_table);
  const auto line =
      parse({"--device", "cuda", "--kernels", "thrust", "--no-graph", "--workload", "wide",
             "--samples", "500", "--test-samples", "50", "--no-costs", "--steps-table"})
          .line;
  REQUIRE_FALSE(line.exit_status.has_value());
  CHECK(line.chosen.device == mlp::device_choice::cuda);
  CHECK(line.chosen.kernels == mlp::kernel_choice::thrust);
  CHECK_FALSE(line.chosen.graph);
  CHECK(line.chosen.fed == mlp::workload::wide);
  CHECK(line.chosen.samples == 500);
  CHECK(line.chosen.test_samples == 50);
  CHECK_FALSE(line.chosen.costs);
  CHECK(line.chosen.steps_table);
  CHECK(parse({"--device", "host", "--kernels", "cublas", "--graph"}).line.chosen.device ==
        mlp::device_choice::host);
}

TEST_CASE("step options require one operation per launch", "[mlp]") {
  CHECK(parse({}).line.chosen.step.is_plain());
  CHECK(parse({"--precision", "fp32", "--accumulate", "1"}).line.chosen.kernels ==
        mlp::kernel_choice::fused);
  const auto half = parse({"--precision", "fp16", "--workload", "wide"}).line.chosen;
  CHECK(half.step.precision == mlp::precision_choice::fp16);
  CHECK(half.kernels == mlp::kernel_choice::thrust);
  const auto four = parse({"--accumulate", "4", "--kernels", "thrust"}).line.chosen;
  CHECK(four.step.accumulate == 4);
  CHECK(four.kernels == mlp::kernel_choice::thrust);
  for (const auto& result : {parse({"--precision", "bf16", "--kernels", "fused"}),
                             parse({"--accumulate", "2", "--steps-table"})}) {
    CHECK(result.line.exit_status == 1);
    CHECK(result.err.find("--precision, --accumulate: ") != std::string::npos);
  }
}

TEST_CASE("variants are off by default and cannot be combined with other step options", "[mlp]") {
  CHECK_FALSE(parse({}).line.chosen.variants);
  CHECK(parse({"--variants"}).line.chosen.variants);
  for (const auto& result :
       {parse({"--variants", "--precision", "fp16"}), parse({"--variants", "--accumulate", "2"})}) {
    CHECK(result.line.exit_status == 1);
    CHECK(result.err.find("--variants: ") != std::string::npos);
  }
}

TEST_CASE("variants are plain runs of the overlapped loop: other steps, and other types of images",
          "[mlp]") {
  auto chosen = parse({"--variants", "--bus", "0.5", "--json", "out.json"}).line.chosen;
  const auto names = [](const std::vector<mlp::options>& runs) {
    std::string all;
    for (const mlp::options& run : runs) {
      CHECK(run.modes == std::vector{mlp::technique::overlapped});
      CHECK_FALSE(run.costs);
      CHECK_FALSE(run.json);
      CHECK(run.bus == 0.5);
      all += std::string{name_of(run.step.precision)} + "/" + std::to_string(run.step.accumulate) +
             "/" + (run.fed == mlp::workload::wide ? std::string{name_of(run.travel)} : "byte") +
             "/" + std::string{name_of(run.kernels)} + " ";
    }
    return all;
  };
  const std::string images = "fp32/1/half/cublas fp32/1/bfloat16/cublas fp32/1/int8/cublas ";
  CHECK(names(mlp::variants_of(chosen, false)) ==
        "fp16/1/byte/thrust bf16/1/byte/thrust fp32/4/byte/thrust fp32/1/float/cublas " + images);
  CHECK(names(mlp::variants_of(chosen, true)).starts_with("fp32/1/byte/thrust fp16/"));
  chosen.augment = true;
  CHECK(names(mlp::variants_of(chosen, false)) ==
        "fp16/1/byte/thrust bf16/1/byte/thrust fp32/4/byte/thrust ");
  chosen = parse({"--variants", "--bus", "0.5", "--workload", "wide"}).line.chosen;
  CHECK(names(mlp::variants_of(chosen, false)) ==
        "fp16/1/float/thrust bf16/1/float/thrust fp32/4/float/thrust " + images);
}

TEST_CASE("each seed, worker count or precision is a separate experiment", "[mlp]") {
  CHECK(mlp::rows_of(parse({"--seed", "3"}).line.chosen).empty());
  const auto rows = [](std::initializer_list<const char*> arguments) {
    const auto line = parse(arguments).line;
    REQUIRE_FALSE(line.exit_status.has_value());
    std::string all;
    for (const mlp::options& row : mlp::rows_of(line.chosen)) {
      CHECK(row.epochs == 2);
      all += std::to_string(row.seed) + "/" + std::to_string(row.workers) + "/" +
             std::string{name_of(row.step.precision)} + "/" + std::string{name_of(row.kernels)} +
             " ";
    }
    return all;
  };
  CHECK(rows({"--seeds", "5,2,18446744073709551615", "--workers", "4", "--epochs", "2"}) ==
        "5/4/fp32/fused 2/4/fp32/fused 18446744073709551615/4/fp32/fused ");
  CHECK(rows({"--worker-counts", "0,16", "--seed", "3", "--epochs", "2"}) ==
        "3/0/fp32/fused 3/16/fp32/fused ");
  CHECK(rows({"--precisions", "fp32,bf16", "--epochs", "2"}) == "1/1/fp32/thrust 1/1/bf16/thrust ");
  CHECK(parse({"--precisions", "fp32", "--kernels", "fused"}).err.starts_with("--precisions, "));
  for (const auto& result :
       {parse({"--seeds", "1,2", "--seed", "3"}), parse({"--seeds", "1", "--worker-counts", "1"}),
        parse({"--worker-counts", "1", "--precisions", "fp16"}),
        parse({"--seeds", "1", "--steps-table"}), parse({"--variants", "--precisions", "fp16"})}) {
    CHECK(result.line.exit_status != 0);
    CHECK(result.err.find(" excludes ") != std::string::npos);
  }
}

TEST_CASE("the step table lists each kind of kernels with and without a graph", "[mlp]") {
  std::string all;
  for (const mlp::options& row : mlp::rows_of(parse({"--steps-table"}).line.chosen)) {
    CHECK(row.device == mlp::device_choice::cuda);
    CHECK(row.modes == std::vector{mlp::technique::overlapped, mlp::technique::resident});
    all += std::string{name_of(row.kernels)} + (row.graph ? "+ " : " ");
  }
  CHECK(all == "thrust thrust+ cublas cublas+ fused fused+ ");
}

TEST_CASE("help lists the options and is not an error", "[mlp]") {
  const auto result = parse({"--help"});
  REQUIRE(result.line.exit_status == 0);
  for (const char* option :
       {"--data",          "--epochs",      "--batch",     "--workers",    "--prefetch",
        "--depth",         "--augment",     "--mode",      "--seed",       "--json",
        "--repeat",        "--device",      "--workload",  "--kernels",    "--graph",
        "--samples",       "--steps-table", "--precision", "--accumulate", "--seeds",
        "--worker-counts", "--precisions"}) {
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
  CHECK(parse({"--bus", "0.25"}).line.chosen.bus == 0.25);
  CHECK(parse({"--bus", "0.25", "--device", "cuda"}).err.starts_with("--bus: not with"));
}

TEST_CASE("the last value is used if an option is specified twice", "[mlp]") {
  CHECK(parse({"--samples", "640", "--samples", "64"}).line.chosen.samples == 64);
}
