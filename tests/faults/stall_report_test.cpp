// SPDX-License-Identifier: BSL-1.0
#include <penstock/faults/error_policy.hpp>

#include <chrono>
#include <string>

#include "support/catch.hpp"

namespace ps = penstock;
using std::chrono::milliseconds;

TEST_CASE("a report of a read that hangs is one line with place, worker and time", "[faults]") {
  ps::stall_report read{{"read", 2, 5, 3, 4711}, 1, milliseconds{1500}};
  CHECK(read.str() ==
        "penstock: a read has not returned after 1500 ms in worker 1: stage read, epoch 2, batch "
        "5, sample 4711 "
        "(position 3 of the batch)");
  read.blocks_destruction = true;
  CHECK(read.str() ==
        "penstock: a read has not returned after 1500 ms in worker 1: stage read, epoch 2, batch "
        "5, sample 4711 "
        "(position 3 of the batch); the loader's destructor waits for it, because the loader does "
        "not own the dataset; move the dataset into the loader to continue without waiting");
}

TEST_CASE("a report of a sampler, or of lengths, that hang names no sample", "[faults]") {
  const ps::stall_report order{{"order", 2, 5}, 0, milliseconds{20}};
  CHECK(
      order.str() ==
      "penstock: an order has not returned after 20 ms in worker 0: stage order, epoch 2, batch 5");
  const ps::stall_report lengths{{"lengths", 2, 5}, 0, milliseconds{20}};
  CHECK(lengths.str() ==
        "penstock: the length() of a sample has not returned after 20 ms in worker 0: stage "
        "lengths, epoch 2, "
        "batch 5");
}

TEST_CASE("a read_timeout names the read and a remedy", "[faults]") {
  const ps::read_timeout timeout{{{"read", 0, 1, 2, 3}, 4, milliseconds{50}}};
  CHECK(std::string{timeout.what()} ==
        "read_timeout: worker 4 has not returned after 50 ms: stage read, epoch 0, batch 1, sample "
        "3 (position 2 of the batch); check the storage, or raise loader_options::faults.timeout");
  CHECK(timeout.read().worker == 4);
  CHECK(timeout.read().elapsed == milliseconds{50});
}
