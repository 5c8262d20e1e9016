// SPDX-License-Identifier: BSL-1.0
#include "picture.hpp"

#include <sys/wait.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "digits.hpp"
#include "mlp/xml.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

/// A run of a loop whose two batches take `each` microseconds.
mlp::recorded_loop run_of(mlp::technique fed_by, double each) {
  return {fed_by,
          {{"read", mlp::stage::read, {{0, 0, each / 2}, {1, each, each * 1.5}}},
           {"copy", mlp::stage::copy, {{0, each / 2, each / 2}, {1, each * 1.5, each * 1.5}}},
           {"compute", mlp::stage::compute, {{0, each / 2, each}, {1, each * 1.5, each * 2}}}}};
}

mlp::results example() {
  using mlp::technique;
  mlp::results found;
  found.data_name = "synthetic digits";
  found.build = "g++ -O3";
  found.cores = 2;
  found.costs = {90.0, 10.0, 100.0};
  for (const double each : {400.0, 200.0, 210.0}) {
    found.recorded.push_back(run_of(technique::serial, each));
    found.recorded.push_back(run_of(technique::overlapped, each / 2));
  }
  return found;
}

mlp::options chosen() {
  mlp::options o;
  o.augment = true;
  o.repeat = 3;
  o.command = "penstock_mlp --augment --svg a<b.svg";
  return o;
}

/// The exit status of the program itself.
int run_program(const std::string& arguments) {
  const int status = std::system((std::string{"\"" MLP_PROGRAM "\" "} + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string content_of(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace

TEST_CASE("the picture shows the run of median duration, with its figures", "[mlp]") {
  const auto shown = mlp::picture_of(chosen(), example());
  REQUIRE(shown.panels.size() == 2);
  CHECK(shown.panels[0].name == "serial");
  CHECK(shown.panels[0].figures == "2 batches in 0.42 ms: 210 µs each");
  CHECK(mlp::end_of(shown.panels[0].lanes) == 420);
  CHECK(shown.panels[1].name == "overlapped");
  CHECK(shown.panels[1].figures == "2 batches in 0.21 ms: 105 µs each, 2.00× as fast");
  CHECK(shown.bound == 200);
  CHECK(shown.bound_note == "no loop is faster: 2 × 100 µs, to compute it");
  CHECK(shown.title == "synthetic digits, augmented: the first 2 batches of 64");
  CHECK(shown.description.find("penstock_mlp --augment --svg a<b.svg") != std::string::npos);
}

TEST_CASE("a picture needs recordings", "[mlp]") {
  auto found = example();
  found.recorded.clear();
  CHECK_THROWS_AS(mlp::picture_of(chosen(), found), std::logic_error);
}

TEST_CASE("a picture that can't be written is an error", "[mlp]") {
  auto o = chosen();
  o.svg = "/no/such/folder/picture.svg";
  CHECK_THROWS_AS(mlp::write_picture(o, example()), std::runtime_error);
}

TEST_CASE("the program draws twenty batches of both loops", "[mlp]") {
  const test::temp_dir directory;
  mlp::write_digits(directory.path("digits"), 300, 50);
  const std::string svg = directory.path("picture.svg");
  const std::string arguments =
      "--device host --bus 0.1 --epochs 1 --batch 8 --mode resident --data \"" +
      directory.path("digits") + "\" --workers 2";
  REQUIRE(run_program(arguments + " --svg \"" + svg + "\" > /dev/null") == 0);
  const auto root = test::parse_xml(content_of(svg));
  std::size_t copies = 0;
  std::size_t steps = 0;
  for (const auto& bar : root.all("rect")) {
    const std::string tip = bar.text_of("title");
    copies += tip.starts_with("copy, batch ") ? 1U : 0U;
    steps += tip.starts_with("compute, batch ") ? 1U : 0U;
  }
  CHECK(copies == 2 * 20);
  CHECK(steps == 2 * 20);
  CHECK(root.text_of("desc").find("--batch 8") != std::string::npos);
  CHECK(content_of(svg).find("CPU device with a modelled bus of 0.1 GB/s") != std::string::npos);
}

TEST_CASE("the program draws how busy each part is over an epoch", "[mlp]") {
  const test::temp_dir directory;
  mlp::write_digits(directory.path("digits"), 300, 50);
  const std::string svg = directory.path("busy.svg");
  REQUIRE(run_program("--device host --epochs 1 --batch 8 --mode resident --workers 2 --data \"" +
                      directory.path("digits") + "\" --utilisation \"" + svg + "\" > /dev/null") ==
          0);
  const auto root = test::parse_xml(content_of(svg));
  std::map<std::string, int> areas;
  for (const auto& path : root.all("path")) ++areas[path.attributes.at("class")];
  for (const char* const part : {"read", "copy", "compute"}) CHECK(areas[part] == 2);
  CHECK(root.text_of("desc").find("an epoch of 38 batches of 8") != std::string::npos);
  CHECK(content_of(svg).find("serial") < content_of(svg).find("overlapped"));
}

TEST_CASE("the program writes a trace, for the viewer that its name says", "[mlp]") {
  const test::temp_dir directory;
  mlp::write_digits(directory.path("digits"), 300, 50);
  const std::string arguments =
      "--device host --epochs 1 --batch 8 --mode overlapped --workers 2 --data \"" +
      directory.path("digits") + "\" --trace \"";
  const std::string json = directory.path("trace.json");
  const std::string perfetto = directory.path("trace.pftrace");
  REQUIRE(run_program(arguments + json + "\" > /dev/null") == 0);
  REQUIRE(run_program(arguments + perfetto + "\" > /dev/null") == 0);
  const std::string text = content_of(json);
  CHECK(text.find("{\"displayTimeUnit\"") == 0);
  for (const char* const name : {"penstock worker 1", "penstock transfer", "\"step\""}) {
    CHECK(text.find(name) != std::string::npos);
    CHECK(content_of(perfetto).find(name[0] == '"' ? "step" : name) != std::string::npos);
  }
  CHECK(text.find("\"batch\": 37") != std::string::npos);
  CHECK(content_of(perfetto).find('\n') == 0);  // the key of a packet, and no text
}

TEST_CASE("a file that can't be written is refused before the training, and not made", "[mlp]") {
  const test::temp_dir directory;
  const std::string said = directory.path("said");
  CHECK(run_program("--svg /no/such/folder/a.svg > \"" + said + "\" 2>&1") != 0);
  CHECK(content_of(said).find("--svg: /no/such/folder/a.svg can't be written: No such file") !=
        std::string::npos);
  CHECK(run_program("--svg \"" + directory.path("") + "\" > \"" + said + "\" 2>&1") != 0);
  CHECK(content_of(said).find("can't be written: Is a directory") != std::string::npos);
}
