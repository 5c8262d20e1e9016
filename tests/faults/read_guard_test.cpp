// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/faults/read_guard.hpp>

#include <cstdint>
#include <exception>
#include <stdexcept>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::read_guard;

TEST_CASE("a verdict says where the sample comes from, and an order has no sample", "[faults]") {
  read_guard guard{
      {},
      {},
      {.size = 10, .origin = [](std::uint64_t i) { return ps::sample_origin{i + 70, 1}; }},
      {1, 1, 4}};
  CHECK_FALSE(guard.has_thread());
  const ps::batch_info info{0, 0, 4, 4};
  ps::failure read{"read", 0, 0, 2, 7};
  CHECK(guard.verdict(0, info, nullptr, read) == nullptr);
  CHECK_FALSE(read.origin);
  const auto error = std::make_exception_ptr(std::runtime_error{"bad"});
  CHECK(guard.verdict(0, info, error, read) == error);
  CHECK(read.origin == ps::sample_origin{77, 1});
  ps::failure order{"order", 0, 0};
  CHECK(guard.verdict(0, info, error, order) == error);
  CHECK_FALSE(order.origin);
}
