// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/penstock.hpp>

namespace parts {

/// A dataset of the integers 0, 1, 2, ...
struct numbers {
  using record_type = penstock::record<penstock::field<"x", std::uint64_t>>;
  std::uint64_t count;
  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, penstock::sample<record_type> out) const {
    penstock::get<"x">(out) = index;
  }
};

using loader = penstock::loader<numbers, penstock::sequential, penstock::cpu_device>;

// Defined in the first library.
[[gnu::visibility("default")]] loader make(std::uint64_t count, std::size_t batch_size);
[[gnu::visibility("default")]] void throw_index_error();

// Defined in the second library.
[[gnu::visibility("default")]] std::uint64_t sum(loader::batch_type& batch);

}  // namespace parts
