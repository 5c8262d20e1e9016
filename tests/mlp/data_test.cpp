// SPDX-License-Identifier: BSL-1.0
#include "data.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <zlib.h>

#include "digits.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

namespace fs = std::filesystem;

/// An environment variable set for a while.
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

void pack(const fs::path& path) {
  std::ifstream in{path, std::ios::binary};
  const std::string content{std::istreambuf_iterator<char>{in}, {}};
  ::gzFile out = ::gzopen((path.string() + ".gz").c_str(), "wb");
  ::gzwrite(out, content.data(), static_cast<unsigned>(content.size()));
  ::gzclose(out);
  fs::remove(path);
}

}  // namespace

TEST_CASE("IDX files of another content are not called MNIST, plain or packed", "[mlp]") {
  const test::temp_dir directory;
  const fs::path folder = directory.path("set");
  mlp::write_digits(folder, 12, 5);
  if (GENERATE(false, true)) {
    pack(folder / "train-images-idx3-ubyte");
    pack(folder / "t10k-labels-idx1-ubyte");
  }
  const auto data = mlp::read_data(folder);
  CHECK(data.name == "IDX files (not MNIST: checksums differ)");
  CHECK(data.train.size() == 12);
  CHECK(data.test.size() == 5);
}

TEST_CASE("the missing file of a data folder is named", "[mlp]") {
  const test::temp_dir directory;
  const fs::path folder = directory.path("set");
  mlp::write_digits(folder, 12, 5);
  fs::remove(folder / "t10k-images-idx3-ubyte");
  try {
    static_cast<void>(mlp::read_data(folder));
    FAIL("nothing was thrown");
  } catch (const penstock::file_unreadable& error) {
    CHECK(error.path() == (folder / "t10k-images-idx3-ubyte").string());
  }
}

TEST_CASE("data is searched in the given folder, then in MNIST_DIR", "[mlp]") {
  const variable environment{"MNIST_DIR", "/somewhere"};
  CHECK(mlp::find_data(fs::path{"/elsewhere"}) == fs::path{"/elsewhere"});
  CHECK(mlp::find_data(std::nullopt) == fs::path{"/somewhere"});
}

TEST_CASE("data is searched in data/mnist by default", "[mlp]") {
  const test::temp_dir directory;
  const variable environment{"MNIST_DIR", ""};
  const fs::path before = fs::current_path();
  fs::create_directories(directory.path("here"));
  fs::current_path(directory.path("here"));
  CHECK_FALSE(mlp::find_data(std::nullopt).has_value());
  mlp::write_digits("data/mnist", 1, 1);
  CHECK(mlp::find_data(std::nullopt) == fs::path{"data/mnist"});
  fs::current_path(before);
}

TEST_CASE("synthetic digits are drawn into the cache once, and again when damaged", "[mlp]") {
  const test::temp_dir directory;
  const variable environment{"XDG_CACHE_HOME", directory.path("cache").c_str()};
  const auto drawn = mlp::synthetic_data();
  CHECK(drawn.name == "synthetic digits");
  CHECK(drawn.train.size() == 60'000);
  CHECK(drawn.test.size() == 10'000);
  CHECK(drawn.directory == fs::path{directory.path("cache")} / "penstock" / "synthetic-digits");

  const auto labels = drawn.directory / "train-labels-idx1-ubyte";
  const auto written = fs::last_write_time(labels);
  CHECK(mlp::read_data(drawn.directory).name == "synthetic digits");
  static_cast<void>(mlp::synthetic_data());
  CHECK(fs::last_write_time(labels) == written);

  fs::resize_file(labels, 100);
  CHECK(mlp::synthetic_data().train.size() == 60'000);
  CHECK(fs::file_size(labels) == 60'008);
}

TEST_CASE("MNIST is named MNIST", "[mlp]") {
  const char* directory = std::getenv("MNIST_DIR");
  if (directory == nullptr || *directory == 0) {
    WARN("MNIST_DIR is not set: not tried");
    return;
  }
  const auto data = mlp::read_data(directory);
  CHECK(data.name == "MNIST");
  CHECK(data.train.size() == 60'000);
  CHECK(data.test.size() == 10'000);
}
