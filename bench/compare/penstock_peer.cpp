// SPDX-License-Identifier: BSL-1.0
// penstock's loader, measured in the same way as its peers (see peer.hpp). plain_loop does the same
// work without a loader.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>

#include "penstock_peer.hpp"

namespace {

namespace ps = penstock;

using bytes_record =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
using floats_record =
    ps::record<ps::field<"image", float, 28, 28>, ps::field<"label", std::int32_t>>;

std::string load(std::size_t workers, const std::string& folder) {
  const auto files = compare::read_digits(folder, "train");
  const auto convert = [](ps::const_sample<bytes_record> in, ps::sample<floats_record> out) {
    compare::normalise(ps::get<"image">(in).data(), ps::get<"image">(out).data());
    ps::get<"label">(out) = ps::get<"label">(in);
  };
  const auto make = [&] {
    return ps::loader{ps::memory_dataset<bytes_record>{files.images, files.labels} |
                          ps::map<floats_record>(convert),
                      ps::shuffled{.seed = 1},
                      {.batch_size = compare::batch_size, .workers = workers}};
  };
  return compare::load_batches(make, [](compare::seen& sums, auto& batch) {
    sums.add(ps::get<"image">(batch).flat(), ps::get<"label">(batch).flat());
  });
}

std::string plain_loop(const std::string& folder) {
  const auto files = compare::read_digits(folder, "train");
  struct slab {
    std::vector<float> images = std::vector<float>(compare::batch_size * compare::pixels);
    std::array<std::int32_t, compare::batch_size> labels{};
    std::array<std::uint64_t, compare::batch_size> indices{};
  };
  const auto make = [] { return std::make_unique<slab>(); };
  return compare::load(make, [&](auto& to, std::uint64_t epoch, auto each) {
    const std::size_t samples = files.labels.size();
    const auto order = ps::shuffled{.seed = 1}.order(samples, epoch);
    for (std::size_t first = 0; first < samples; first += compare::batch_size) {
      const std::size_t count = std::min(compare::batch_size, samples - first);
      order.fill(first, std::span{to->indices}.first(count));
      compare::gather(std::span<const std::uint64_t>{to->indices}.first(count), files.images.data(),
                      files.labels.data(), to->images.data(), to->labels.data());
      each([&](compare::seen& sums) {
        sums.add(std::span{to->images}.first(count * compare::pixels),
                 std::span{to->labels}.first(count));
      });
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<compare::row> rows;
  for (const std::size_t workers : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    rows.emplace_back("penstock/workers:" + std::to_string(workers),
                      [=](const std::string& folder) { return load(workers, folder); });
  }
  rows.emplace_back("plain_loop", plain_loop);
  return compare::main_of(argc, argv, rows);
}
