// SPDX-License-Identifier: BSL-1.0
#include "experiment.hpp"

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock_ext/files/file_error.hpp>

#include "cuda_experiment.hpp"
#include "data.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

mlp::options small() {
  mlp::options chosen;
  chosen.epochs = 1;
  chosen.device = mlp::device_choice::host;
  chosen.modes.assign(mlp::all_techniques.begin(), mlp::all_techniques.end());
  return chosen;
}

}  // namespace

TEST_CASE("the experiment runs only on the first samples if requested", "[mlp]") {
  const auto data = mlp::random_data(300, 50);
  auto chosen = small();
  chosen.samples = 200;
  const auto found = mlp::run_experiment(chosen, data);
  CHECK(found.train_samples == 200);
  CHECK(found.test_samples == 50);
  CHECK(found.batches_per_epoch == 4);
  REQUIRE(found.modes.size() == 4);
  CHECK(found.modes[0].first_losses.size() == 3);  // full batches
  CHECK(found.one_batch.size() == 1);
  chosen.samples = 10'000;
  CHECK(mlp::run_experiment(chosen, data).train_samples == 300);
}

TEST_CASE("the experiment evaluates fewer samples and omits the stage costs if requested",
          "[mlp]") {
  auto chosen = small();
  chosen.test_samples = 20;
  chosen.costs = false;
  chosen.modes = {mlp::technique::overlapped};
  const auto found = mlp::run_experiment(chosen, mlp::random_data(300, 50));
  CHECK(found.test_samples == 20);
  CHECK_FALSE(found.costs);
  CHECK_FALSE(found.modes[0].limit.empty());  // the diagnosis depends on the machine
  CHECK(found.one_batch.empty());             // this run has no resident set
}

TEST_CASE("the wide workload learns as much as the plain workload", "[mlp]") {
  const auto data = mlp::random_data(300, 50);
  const auto plain = mlp::run_experiment(small(), data);
  auto chosen = small();
  chosen.fed = mlp::workload::wide;
  const auto wide = mlp::run_experiment(chosen, data);
  CHECK(wide.modes[0].epoch_losses == plain.modes[0].epoch_losses);
  CHECK(wide.modes[0].accuracy == plain.modes[0].accuracy);
}

TEST_CASE("results are reported after every run of a mode", "[mlp]") {
  auto chosen = small();
  chosen.repeat = 2;
  std::vector<std::size_t> modes;
  std::vector<std::size_t> runs;
  const auto found =
      mlp::run_experiment(chosen, mlp::random_data(100, 10),
                          [&](const mlp::results& so_far, const mlp::mode_result& ran) {
                            modes.push_back(so_far.modes.size());
                            runs.push_back(so_far.modes[0].seconds.size());
                            CHECK(so_far.costs.has_value());
                            CHECK(ran.fed_by == mlp::all_techniques.at((modes.size() - 1) % 4));
                            CHECK(ran.epoch_losses.size() == 1);
                          });
  CHECK(modes == std::vector<std::size_t>{1, 2, 3, 4, 4, 4, 4, 4});
  CHECK(runs == std::vector<std::size_t>{1, 1, 1, 1, 2, 2, 2, 2});
  CHECK(found.one_batch.size() == 2);
}

/// Sets an environment variable for the lifetime of the object.
class variable {
 public:
  variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  variable(variable&&) = delete;
  ~variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST_CASE("data is read from the given folder or else from MNIST_DIR, plain or compressed",
          "[mlp]") {
  const variable environment{"MNIST_DIR", "/somewhere"};
  CHECK(mlp::find_data("/given") == std::filesystem::path{"/given"});
  CHECK(mlp::find_data({}) == std::filesystem::path{"/somewhere"});
  const test::temp_dir directory;
  CHECK_THROWS_AS(mlp::read_data(directory.path("none")), penstock::file_error);
  const auto write = [&](const std::string& name, std::string head, std::size_t bytes) {
    head.append(bytes, '\3');
    const auto path = directory.path(name);
    if (name.ends_with(".gz")) {
      const ::gzFile out = ::gzopen(path.c_str(), "wb");
      ::gzwrite(out, head.data(), static_cast<unsigned>(head.size()));
      ::gzclose(out);
    } else {
      std::ofstream{path, std::ios::binary} << head;
    }
  };
  using namespace std::string_literals;
  const std::string images = "\0\0\10\3\0\0\0\2\0\0\0\34\0\0\0\34"s;
  const std::string labels = "\0\0\10\1\0\0\0\2"s;
  write("train-images-idx3-ubyte", images, 2 * 784);
  write("train-labels-idx1-ubyte", labels, 2);
  write("t10k-images-idx3-ubyte.gz", images, 2 * 784);
  write("t10k-labels-idx1-ubyte.gz", labels, 2);
  const auto data = mlp::read_data(directory.path(""));
  CHECK(data.name == "IDX files");
  CHECK(data.train.labels == std::vector<std::uint8_t>{3, 3});
  CHECK(data.test.images == data.train.images);
  CHECK(data.test.first(1).size() == 1);
  CHECK_THROWS_AS(mlp::digit_set{}.first(0), std::runtime_error);
}

TEST_CASE("the name of the MNIST data is MNIST", "[mlp]") {
  const char* directory = std::getenv("MNIST_DIR");
  // The files are not available on every machine.
  if (directory == nullptr || *directory == 0) return;
  CHECK(mlp::read_data(directory).name == "MNIST");
}

TEST_CASE("the CPU device is used and the reason is reported if there is no GPU", "[mlp]") {
  const auto reason = mlp::why_no_cuda();
  if (!reason) return;  // a GPU is available, and other tests use it
  CHECK_FALSE(reason->empty());
  const auto data = mlp::random_data(300, 50);
  auto chosen = small();
  chosen.device = mlp::device_choice::automatic;
  const auto found = mlp::run_experiment(chosen, data);
  CHECK(found.device.kind == "host");
  CHECK(found.device.why == *reason);
  chosen.device = mlp::device_choice::cuda;
  CHECK_THROWS_AS(mlp::run_experiment(chosen, data), std::runtime_error);
}
