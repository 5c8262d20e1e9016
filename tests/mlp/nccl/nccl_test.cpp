// SPDX-License-Identifier: BSL-1.0
// The NCCL collective without NCCL and without a GPU: on the CUDA double, and on an NCCL that sums
// for a world of one, fails, or hangs, as a test wants it.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>

#include "device_array.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "ranks/nccl_collective.hpp"
#include "ranks/tcp/meeting_place.hpp"
#include "ranks/tcp/store_server.hpp"
#include "ranks/tcp/tcp_collective.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// What the NCCL below is to do, and what it was asked for.
struct {
  ncclResult_t init = ncclSuccess;
  ncclResult_t reduce = ncclSuccess;
  ncclResult_t finalize = ncclSuccess;
  ncclResult_t later = ncclSuccess;  // what it says when it is asked
  ncclResult_t asked = ncclSuccess;  // and whether asking works
  int in_progress = 0;               // questions that it answers by that before
  int fine = 0;                      // and those that it then answers by success
  int blocking = 1;
  std::vector<std::string> calls;
} nccl;

std::string problem_of(auto&& work) {
  nccl.calls.clear();
  try {
    work();
  } catch (const mlp::nccl_error& error) {
    return error.what();
  }
  return "none";
}

/// Ranks that are not there: what the others would have sent is `others`, of rank 0.
struct second_of_two {
  std::array<char, sizeof(ncclUniqueId)> others{};
  static int rank() { return 1; }
  static int size() { return 2; }
  static void all_reduce(std::span<float>) {}
  static void barrier() {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const {
    std::memcpy(all.data(), others.data(), mine.size());
    std::memcpy(all.data() + mine.size(), mine.data(), mine.size());
  }
};

}  // namespace

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  nccl.calls.emplace_back("id");
  std::memcpy(id->internal, "of rank 0", 10);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  nccl.calls.push_back("init " + std::to_string(rank) + " of " + std::to_string(size) + " by " +
                       id.internal);
  nccl.blocking = config->blocking;
  *comm = reinterpret_cast<ncclComm_t>(&nccl);
  return nccl.init;
}
ncclResult_t ncclAllReduce(const void*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t, cudaStream_t) {
  nccl.calls.push_back("sum of " + std::to_string(count));
  return nccl.reduce;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = nccl.in_progress > 0 ? ncclInProgress : nccl.fine > 0 ? ncclSuccess : nccl.later;
  if (int& answers = nccl.in_progress > 0 ? nccl.in_progress : nccl.fine; answers > 0) --answers;
  return nccl.asked;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  nccl.calls.emplace_back("finalize");
  return nccl.finalize;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  nccl.calls.emplace_back("abort");
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
  nccl.calls.emplace_back("destroy");
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "unhandled system error" : "another error";
}
}

namespace {

/// A world on one device of the double, from a clean start.
struct on_double {
  on_double() { nccl = {}; }
  ps::cuda_device device{0};
  ps::cuda_stream stream{device.make_stream()};
  mlp::device_array<float, ps::cuda_device> values{device, 4};
  [[nodiscard]] std::span<float> all() const { return {values.data(), values.size()}; }
};

}  // namespace

TEST_CASE("all ranks take the id of rank 0, and the bytes of the host go another way", "[mlp]") {
  const on_double here;
  second_of_two both;
  std::memcpy(both.others.data(), "of rank 0, by wire", 19);
  {
    mlp::nccl_collective ranks{both, here.device, here.stream};
    CHECK(ranks.rank() == 1);
    CHECK(ranks.size() == 2);
    ranks.all_reduce(here.all());
    std::array<std::byte, 4> gathered{};
    ranks.all_gather(std::as_bytes(std::span{"ab", 2}), gathered);
    CHECK(gathered[0] == static_cast<std::byte>('o'));
    CHECK(gathered[3] == static_cast<std::byte>('b'));
  }
  CHECK(nccl.calls == std::vector<std::string>{"init 1 of 2 by of rank 0, by wire", "sum of 4",
                                               "finalize", "destroy"});
  CHECK(nccl.blocking == 0);
  mlp::no_collective alone;
  nccl.calls.clear();
  const mlp::nccl_collective one{alone, here.device, here.stream};
  CHECK(nccl.calls == std::vector<std::string>{"id", "init 0 of 1 by of rank 0"});
}

TEST_CASE("NCCL's id comes over TCP where there is no MPI", "[mlp]") {
  const on_double here;
  const mlp::store_server server{0};
  const mlp::meeting_place where{{"127.0.0.1", server.port()}, true, ""};
  constexpr std::chrono::minutes patience{1};
  std::thread first{[&] {
    mlp::tcp_collective ranks{{.rank = 0, .size = 2}, where, patience};
    ncclUniqueId id{};
    std::memcpy(id.internal, "of rank 0, by TCP", 18);
    std::array<ncclUniqueId, 2> all{};
    ranks.all_gather(std::as_bytes(std::span{&id, 1}), std::as_writable_bytes(std::span{all}));
  }};
  {
    mlp::tcp_collective others{{.rank = 1, .size = 2}, where, patience};
    const mlp::nccl_collective ranks{others, here.device, here.stream};
  }
  first.join();
  CHECK(nccl.calls.front() == "init 1 of 2 by of rank 0, by TCP");
}

TEST_CASE("a call of NCCL that fails says which one, in NCCL's words, and aborts", "[mlp]") {
  const on_double here;
  mlp::no_collective alone;
  const auto init = [&] { mlp::nccl_collective{alone, here.device, here.stream}; };
  nccl.init = ncclSystemError;
  CHECK(problem_of(init) == "ncclCommInitRankConfig on rank 0 of 1: unhandled system error");
  CHECK(nccl.calls.back() == "abort");
  nccl.init = ncclInProgress;
  nccl.later = ncclSystemError;
  nccl.in_progress = 2;
  CHECK(problem_of(init) == "ncclCommInitRankConfig on rank 0 of 1: unhandled system error");
  CHECK(nccl.calls.back() == "abort");

  nccl = {};
  mlp::nccl_collective ranks{alone, here.device, here.stream};
  nccl.reduce = ncclSystemError;
  CHECK(problem_of([&] { ranks.all_reduce(here.all()); }) ==
        "ncclAllReduce on rank 0 of 1: unhandled system error");
  CHECK(nccl.calls == std::vector<std::string>{"sum of 4", "abort"});
  nccl = {};
  mlp::nccl_collective others{alone, here.device, here.stream};
  nccl.asked = ncclSystemError;
  CHECK(problem_of([&] { others.all_reduce(here.all()); }) ==
        "ncclAllReduce on rank 0 of 1: ncclCommGetAsyncError: unhandled system error");
  CHECK(nccl.calls.back() == "abort");
}

TEST_CASE("ranks that connect, and sums that are enqueued, take time but not forever", "[mlp]") {
  const on_double here;
  mlp::no_collective alone;
  constexpr int forever = 1'000'000'000;
  nccl.init = ncclInProgress;
  nccl.in_progress = 3;
  {
    mlp::nccl_collective patient{alone, here.device, here.stream};
    CHECK(nccl.in_progress == 0);
    nccl.reduce = ncclInProgress;
    nccl.in_progress = 3;
    patient.all_reduce(here.all());
    CHECK(nccl.in_progress == 0);
  }
  CHECK(nccl.calls.back() == "destroy");
  nccl.in_progress = forever;
  CHECK(problem_of([&] {
          mlp::nccl_collective{alone, here.device, here.stream, std::chrono::seconds{0}};
        }) ==
        "ncclCommInitRankConfig on rank 0 of 1: a rank has not come to it in time; see which "
        "processes have ended");
  CHECK(nccl.calls.back() == "abort");
  nccl.in_progress = 0;
  mlp::nccl_collective impatient{alone, here.device, here.stream, std::chrono::seconds{0}};
  nccl.in_progress = forever;
  CHECK_THAT(problem_of([&] { impatient.all_reduce(here.all()); }),
             Catch::Matchers::StartsWith("ncclAllReduce on rank 0 of 1: a rank has not come"));
  CHECK(nccl.calls.back() == "abort");
}

TEST_CASE("a communicator that does not end in time, or that an exception leaves, is aborted",
          "[mlp]") {
  const on_double here;
  mlp::no_collective alone;
  {
    const mlp::nccl_collective ranks{alone, here.device, here.stream, std::chrono::seconds{0}};
    nccl.finalize = ncclInProgress;
    nccl.in_progress = 1'000'000'000;
  }
  CHECK(nccl.calls.back() == "abort");
  nccl = {};
  try {
    const mlp::nccl_collective ranks{alone, here.device, here.stream};
    throw std::runtime_error("a step has failed");
  } catch (const std::runtime_error&) {
    CHECK(nccl.calls.back() == "abort");
    CHECK(nccl.calls.size() == 3);  // id, init, and nothing that waits for other ranks
  }
}

TEST_CASE("a sum to which a rank does not come ends with an error, and is aborted", "[mlp]") {
  const on_double here;
  mlp::no_collective alone;
  mlp::nccl_collective impatient{alone, here.device, here.stream, std::chrono::seconds{0}};
  fake_cuda::fail_call_of("cudaStreamQuery", 0, cudaErrorNotReady);
  CHECK(problem_of([&] { impatient.all_reduce(here.all()); }) ==
        "a sum on rank 0 of 1: a rank has not come to it in time; see which processes have "
        "ended");
  CHECK(nccl.calls == std::vector<std::string>{"sum of 4", "abort"});
  CHECK(problem_of([&] { impatient.all_reduce(here.all()); }) ==
        "ncclAllReduce: the communicator was aborted");
  CHECK(nccl.calls.empty());

  // What NCCL notices while the sum runs, and a kernel that faults.
  mlp::nccl_collective ranks{alone, here.device, here.stream};
  fake_cuda::fail_call_of("cudaStreamQuery", 0, cudaErrorNotReady);
  nccl.fine = 1;  // when it is enqueued
  nccl.later = ncclSystemError;
  CHECK(problem_of([&] { ranks.all_reduce(here.all()); }) ==
        "a sum on rank 0 of 1: unhandled system error");
  CHECK(nccl.calls.back() == "abort");
  nccl.later = ncclSuccess;
  mlp::nccl_collective others{alone, here.device, here.stream};
  fake_cuda::fail_call_of("cudaStreamQuery", 0, cudaErrorIllegalAddress);
  CHECK_THAT(problem_of([&] { others.all_reduce(here.all()); }),
             Catch::Matchers::StartsWith("a sum on rank 0 of 1: cudaStreamQuery: "));
  CHECK(nccl.calls.back() == "abort");
}
