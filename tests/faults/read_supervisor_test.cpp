// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/read_supervisor.hpp>

#include <cstdint>
#include <exception>
#include <stdexcept>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::read_supervisor;

TEST_CASE("a failure report names the origin of the sample, and an order has no sample",
          "[faults]") {
  read_supervisor guard{
      {},
      {.size = 10, .origin = [](std::uint64_t i) { return ps::sample_origin{i + 70, 1}; }},
      {1, 1, 4}};
  CHECK_FALSE(guard.has_thread());
  const ps::batch_info info{0, 0, 4, 4};
  ps::detail::failed_batch none;
  guard.judge(0, info, none);
  CHECK_FALSE(none);
  CHECK_FALSE(none.place);
  const auto error = std::make_exception_ptr(std::runtime_error{"bad"});
  ps::detail::failed_batch read{error, ps::failure{"read", 0, 0, 2, 7}};
  guard.judge(0, info, read);
  CHECK(read.error == error);
  CHECK(read.place->origin == ps::sample_origin{77, 1});
  ps::detail::failed_batch order{error, ps::failure{"order", 0, 0}};
  guard.judge(0, info, order);
  CHECK(order.error == error);
  CHECK_FALSE(order.place->origin);
}
