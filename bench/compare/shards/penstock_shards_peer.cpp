// SPDX-License-Identifier: BSL-1.0
// penstock's side of shards.py. shards.py and ../peer.hpp describe the measurement.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include "../penstock_peer.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t sample_bytes = 64 * 64 * 3;

// A dataset of the raw bytes and the label of each sample in the shards.
class raw_samples {
 public:
  using record_type =
      ps::record<ps::field<"bytes", std::uint8_t, sample_bytes>, ps::field<"label", std::int64_t>>;

  explicit raw_samples(const std::string& folder)
      : shards_(folder + "/tar/train-{000000..000007}.tar", {.blob = {"bin"}}) {}

  [[nodiscard]] std::uint64_t size() const { return shards_.size(); }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    thread_local ps::blob_buffer buffer;
    const auto bytes = shards_.bytes(index, buffer);
    if (bytes.size() != sample_bytes) throw std::runtime_error("a sample of another length");
    std::memcpy(ps::get<"bytes">(out).data(), bytes.data(), sample_bytes);
    ps::get<"label">(out) = shards_.label(index);
  }

 private:
  ps::tar_shards shards_;
};

template <class Order>
std::string load(std::size_t workers, const Order& order, const std::string& folder) {
  const auto make = [&] {
    return ps::loader{raw_samples{folder}, order, {.batch_size = 64, .workers = workers}};
  };
  return compare::load_batches(
      make, [](compare::seen& sums, auto& batch) { compare::add_bytes<"bytes">(sums, batch); });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<compare::row> rows;
  for (const std::size_t workers : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    rows.emplace_back(
        "penstock/workers:" + std::to_string(workers),
        [=](const std::string& folder) { return load(workers, ps::shuffled{.seed = 1}, folder); });
  }
  rows.emplace_back("penstock_sequential/workers:0",
                    [](const std::string& folder) { return load(0, ps::sequential{}, folder); });
  return compare::main_of(argc, argv, rows);
}
