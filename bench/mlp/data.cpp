// SPDX-License-Identifier: BSL-1.0
#include "data.hpp"

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include <penstock/files/gzip.hpp>

#include "digits.hpp"
#include "sha256.hpp"

namespace mlp {

namespace ps = penstock;
namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 4> file_names{
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",  //
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

using checksums = std::array<std::string, 4>;  // in the order of the names

const checksums mnist_sums{"ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                           "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                           "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                           "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"};

const checksums synthetic_sums{"3c2f89338b9e8fd66dcbb20dab914ea137e65f90c8660bb373d7c3e1e9c85f7d",
                               "5e7e80e96fbd70cae4cdde0e7b78c01c5756acbff2b7c91820e591d2cd3dad27",
                               "0b43dd2e77c181fd32542e73b39271dfdfc804c0bdb396862bcfe781cc63d37f",
                               "c698dd911b64df536964d26c7d3fb0f5e43b2c6652a2c7b7ac4bccbe869b201b"};

bool has_file(const fs::path& directory, std::string_view name) {
  std::error_code ignored;
  return fs::exists(directory / name, ignored) ||
         fs::exists(directory / (std::string{name} + ".gz"), ignored);
}

bool has_files(const fs::path& directory) {
  for (const auto name : file_names) {
    if (!has_file(directory, name)) return false;
  }
  return true;
}

/// A file, plain or packed, whose checksum is taken while it is read: a `penstock::byte_source`.
class summed_source {
 public:
  /// At the end of the content its SHA-256 goes to `sum`.
  summed_source(const fs::path& path, std::string& sum) : sum_(&sum) {
    if (fs::exists(path)) {
      source_ = std::make_unique<ps::file_source>(path);
    } else {
      source_ = std::make_unique<ps::gzip_source>(path.string() + ".gz");
    }
  }

  std::size_t read(std::span<std::byte> out) {
    const std::size_t count = std::visit([&](auto& s) { return s->read(out); }, source_);
    sha256_.add(out.first(count));
    if (count < out.size()) *sum_ = sha256_.finish();
    return count;
  }
  [[nodiscard]] std::uint64_t available() const {
    return std::visit([](auto& s) { return s->available(); }, source_);
  }
  [[nodiscard]] const std::string& path() const {
    return std::visit([](auto& s) -> const std::string& { return s->path(); }, source_);
  }

 private:
  std::variant<std::unique_ptr<ps::file_source>, std::unique_ptr<ps::gzip_source>> source_;
  sha256 sha256_;
  std::string* sum_;
};

struct data_and_sums {
  digit_data data;
  checksums sums;
};

data_and_sums read_files(const fs::path& directory) {
  std::map<std::string, std::string> sums;
  const auto path_of = [&](std::size_t i) { return (directory / file_names[i]).string(); };
  for (std::size_t i = 0; i < file_names.size(); ++i) {
    if (has_file(directory, file_names[i])) continue;
    throw ps::file_unreadable(path_of(i), 0, "the file, or one with .gz after its name", "neither");
  }
  const auto open = [&](const std::string& path) { return summed_source{path, sums[path]}; };
  digit_data data{{},
                  directory,
                  ps::idx_dataset<>{open, path_of(0), path_of(1)},
                  ps::idx_dataset<>{open, path_of(2), path_of(3)}};
  return {std::move(data),
          {sums[path_of(0)], sums[path_of(1)], sums[path_of(2)], sums[path_of(3)]}};
}

fs::path cache_directory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path{value != nullptr ? value : ""};
  };
  // The specification of XDG_CACHE_HOME: a relative one counts as none.
  fs::path base = variable("XDG_CACHE_HOME");
  if (!base.is_absolute()) base = variable("HOME") / ".cache";
  if (!base.is_absolute()) base = fs::temp_directory_path();
  return base / "penstock" / "synthetic-digits";
}

}  // namespace

std::optional<fs::path> find_data(const std::optional<fs::path>& asked) {
  if (asked) return asked;
  if (const char* directory = std::getenv("MNIST_DIR"); directory != nullptr && *directory != 0) {
    return directory;
  }
  if (has_files("data/mnist")) return "data/mnist";
  return std::nullopt;
}

digit_data read_data(const fs::path& directory) {
  auto [data, sums] = read_files(directory);
  data.name = sums == mnist_sums       ? "MNIST"
              : sums == synthetic_sums ? "synthetic digits"
                                       : "IDX files (not MNIST: checksums differ)";
  return std::move(data);
}

digit_data synthetic_data() {
  const fs::path directory = cache_directory();
  if (has_files(directory)) {
    try {
      auto [data, sums] = read_files(directory);
      data.name = "synthetic digits";
      if (sums == synthetic_sums) return std::move(data);
    } catch (const ps::file_error&) {  // cut short or damaged: drawn anew
    }
  }
  write_digits(directory);
  digit_data data = read_files(directory).data;
  data.name = "synthetic digits";
  return data;
}

}  // namespace mlp
