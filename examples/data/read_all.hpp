// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "data/sha256.hpp"

namespace data {

/// SHA-256 hashes over all added samples, one hash per field. A ragged field has one hash of its
/// values and one of its lengths as 64-bit integers.
template <class Record>
class field_sums {
 public:
  /// Adds the samples of a batch.
  template <class Batch>
  void add(Batch& batch) {
    each([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      using field = typename Record::template field_at<I>;
      auto view = penstock::get<field::key>(batch);
      if constexpr (field::is_ragged) {
        sums_[I].add(std::as_bytes(view.values().flat()));
        for (std::size_t i = 0; i < batch.size(); ++i) {
          const std::uint64_t length = view[i].size();
          lengths_[I].add(std::as_bytes(std::span{&length, 1}));
        }
      } else {
        sums_[I].add(std::as_bytes(view.flat()));
      }
    });
  }
  /// Prints one line per hash. No samples can be added afterwards.
  void print() {
    each([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      using field = typename Record::template field_at<I>;
      std::cout << field::key.str() << ' ' << sums_[I].finish() << '\n';
      if constexpr (field::is_ragged) {
        std::cout << field::key.str() << " lengths " << lengths_[I].finish() << '\n';
      }
    });
  }

 private:
  template <class Call>
  static void each(const Call& call) {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (call(std::integral_constant<std::size_t, Is>{}), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  std::array<sha256, Record::size> sums_;
  std::array<sha256, Record::size> lengths_;
};

/// Reads all samples once in the order `order` and prints their number. With `digest`, reads them
/// in index order and prints hashes of their fields, which can be compared with those of another
/// reader of the same files.
template <class Dataset, class Sampler>
void read_all(const Dataset& dataset, const Sampler& order, bool digest,
              std::size_t batch_size = 64) {
  const auto read = [&](const auto& sampler) {
    penstock::loader loader{dataset, sampler, {.batch_size = batch_size, .workers = 4}};
    field_sums<typename Dataset::record_type> sums;
    std::size_t samples = 0;
    for (auto& batch : loader.epoch(0)) {
      samples += batch.size();
      if (digest) sums.add(batch);
    }
    std::cout << samples << " samples\n";
    if (digest) sums.print();
  };
  if (digest) {
    read(penstock::sequential{});
  } else {
    read(order);
  }
}

/// Returns the program's arguments without `flag`, and true if `flag` was present.
inline std::pair<std::vector<std::string>, bool> arguments_of(int argc, char** argv,
                                                              const char* flag = "--digest") {
  std::vector<std::string> all{argv + 1, argv + argc};
  const bool is_there = std::erase(all, flag) > 0;
  return {std::move(all), is_there};
}

}  // namespace data
