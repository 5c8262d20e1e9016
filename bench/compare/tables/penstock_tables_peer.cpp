// SPDX-License-Identifier: BSL-1.0
// penstock's side of tables.py. tables.py and ../peer.hpp describe the measurement.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/table/parquet/parquet_dataset.hpp>

#include "../penstock_peer.hpp"

namespace {

namespace ps = penstock;

template <ps::name Name>
using number = ps::field<Name, float>;
using row = ps::record<number<"f0">, number<"f1">, number<"f2">, number<"f3">, number<"f4">,
                       number<"f5">, number<"f6">, number<"f7">, number<"f8">, number<"f9">,
                       number<"f10">, number<"f11">, number<"f12">, number<"f13">, number<"f14">,
                       number<"f15">, ps::field<"label", std::int64_t>>;

template <ps::name... Names>
void add(compare::seen& sums, auto& batch) {
  ((sums.values += compare::sum_of(ps::get<Names>(batch).flat())), ...);
  for (const std::int64_t label : ps::get<"label">(batch).flat()) sums.labels += label;
  sums.samples += batch.size();
}

// Measures a loader. `order(data)` returns its sampler.
template <class Order>
std::string load(std::size_t workers, std::size_t cache_bytes, const Order& order,
                 const std::string& folder) {
  const auto make = [&] {
    ps::parquet_dataset<row> data{folder + "/table.parquet", {.cache_bytes = cache_bytes}};
    const auto sampler = order(data);
    return ps::loader{std::move(data), sampler, {.batch_size = 1024, .workers = workers}};
  };
  return compare::load_batches(make, [](compare::seen& sums, auto& batch) {
    add<"f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12", "f13",
        "f14", "f15">(sums, batch);
  });
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::size_t group_bytes = 16384 * (16 * sizeof(float) + sizeof(std::int64_t));
  const auto by_group = [](const auto& data) {
    return ps::block_shuffled{.seed = 1, .block = data.block()};
  };
  const auto all_rows = [](const auto&) { return ps::shuffled{.seed = 1}; };
  std::vector<compare::row> rows;
  for (const std::size_t workers : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    rows.emplace_back("penstock/workers:" + std::to_string(workers),
                      [=](const std::string& folder) {
                        return load(workers, 4 * group_bytes, by_group, folder);
                      });
    rows.emplace_back("penstock_random_rows/workers:" + std::to_string(workers),
                      [=](const std::string& folder) {
                        return load(workers, std::size_t{1} << 30U, all_rows, folder);
                      });
  }
  return compare::main_of(argc, argv, rows);
}
