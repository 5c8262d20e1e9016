// SPDX-License-Identifier: BSL-1.0
#include "data.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <system_error>

#include <penstock/order/random.hpp>
#include <penstock_ext/files/gzip/gzip.hpp>

namespace mlp {

namespace ps = penstock;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t pixels = 28 * 28;

digit_set read_set(const fs::path& directory, const std::string& part) {
  const std::string images = (directory / (part + "-images-idx3-ubyte")).string();
  const std::string labels = (directory / (part + "-labels-idx1-ubyte")).string();
  const bool is_packed = !fs::exists(images) && fs::exists(images + ".gz");
  const auto digits = is_packed ? ps::idx_dataset<>{ps::gzip, images + ".gz", labels + ".gz"}
                                : ps::idx_dataset<>{images, labels};
  if (digits.size() == 0) return {};
  const auto first = digits.view(0);
  const std::uint8_t* image = ps::get<"image">(first).data();
  const std::uint8_t* label = &ps::get<"label">(first);
  return {{image, image + digits.size() * pixels}, {label, label + digits.size()}};
}

}  // namespace

ps::memory_dataset<ps::digit_record> digit_set::first(std::uint64_t max) const {
  const std::size_t count = max == 0 ? labels.size() : std::min<std::size_t>(max, labels.size());
  if (count == 0) throw std::runtime_error("there are no samples to train or to test on");
  return ps::memory_dataset<ps::digit_record>{std::span{images.data(), count * pixels},
                                              std::span{labels.data(), count}};
}

std::optional<fs::path> find_data(const std::optional<fs::path>& requested) {
  if (requested) return requested;
  if (const char* directory = std::getenv("MNIST_DIR"); directory != nullptr && *directory != 0) {
    return directory;
  }
  std::error_code ignored;
  for (const char* suffix : {"", ".gz"}) {
    const std::string first = "data/mnist/train-images-idx3-ubyte";
    if (fs::exists(first + suffix, ignored)) return "data/mnist";
  }
  return std::nullopt;
}

digit_data read_data(const fs::path& directory) {
  digit_data data{"IDX files", directory.string(), read_set(directory, "train"),
                  read_set(directory, "t10k")};
  // Fashion-MNIST has the same number of samples but different pixels.
  const auto& pixels_of_train = data.train.images;
  if (std::accumulate(pixels_of_train.begin(), pixels_of_train.end(), std::uint64_t{0}) ==
      1'567'298'545) {
    data.name = "MNIST";
  }
  return data;
}

void random_digit(unsigned digit, std::uint64_t key, std::span<std::uint8_t, pixels> out) {
  ps::sample_generator ink{ps::random_key{.seed = 28}, digit};
  ps::sample_generator noise{ps::random_key{.seed = 29}, key};
  for (std::size_t i = 0; i < pixels; i += 4) {
    std::uint32_t of_class = ink();
    std::uint32_t own = noise();
    for (std::size_t p = i; p < i + 4; ++p, of_class >>= 8U, own >>= 8U) {
      const std::uint32_t drawn = own & 255U;
      const bool is_inked = (of_class & 255U) < 40;  // about as much ink as a digit has
      // A third of the ink is removed, and a tenth of the background is inked.
      out[p] = static_cast<std::uint8_t>(is_inked && drawn > 85 ? drawn
                                         : drawn > 230          ? drawn
                                                                : drawn / 32);
    }
  }
}

digit_set random_digits(std::uint64_t count, std::uint64_t first_key) {
  digit_set made{std::vector<std::uint8_t>(count * pixels), std::vector<std::uint8_t>(count)};
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto digit = static_cast<unsigned>(i % 10);
    made.labels[i] = static_cast<std::uint8_t>(digit);
    random_digit(digit, first_key + i,
                 std::span<std::uint8_t, pixels>{made.images.data() + i * pixels, pixels});
  }
  return made;
}

digit_data random_data(std::uint64_t train, std::uint64_t test) {
  return {"random digits", "", random_digits(train), random_digits(test, std::uint64_t{1} << 32U)};
}

}  // namespace mlp
