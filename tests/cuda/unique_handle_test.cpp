// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/detail/cuda_call.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

#include <penstock/cuda.hpp>

#include "cuda/clean_fake.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

// One type per kind of handle, with a function that creates an owner and a function that counts
// live handles.

struct streams {
  static ps::cuda_stream make() { return ps::cuda_stream{0}; }
  static std::size_t live() { return fake_cuda::live().streams; }
};

struct events {
  static ps::cuda_event make() { return ps::cuda_event{0}; }
  static std::size_t live() { return fake_cuda::live().events; }
};

struct graphs {
  static ps::detail::cuda_graph make() {
    const auto stream = streams::make();
    REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
    fake_cuda::launch(stream.get(), [] {});
    cudaGraph_t handle = nullptr;
    REQUIRE(cudaStreamEndCapture(stream.get(), &handle) == cudaSuccess);
    return ps::detail::cuda_graph::from_native_handle(handle);
  }
  static std::size_t live() { return fake_cuda::live().graphs; }
};

struct graph_execs {
  static ps::detail::cuda_graph_exec make() { return ps::detail::cuda_graph_exec{graphs::make()}; }
  static std::size_t live() { return fake_cuda::live().graph_execs; }
};

}  // namespace

TEMPLATE_TEST_CASE("a handle is destroyed once, by its last owner", "[cuda]", streams, events,
                   graphs, graph_execs) {
  using owner = decltype(TestType::make());
  static_assert(!std::is_copy_constructible_v<owner>);
  static_assert(std::is_nothrow_move_constructible_v<owner>);
  static_assert(std::is_nothrow_move_assignable_v<owner>);
  const clean_fake until_the_end;
  {
    owner first = TestType::make();
    const auto handle = first.get();
    REQUIRE(handle != nullptr);
    owner second = std::move(first);
    CHECK(first.get() == nullptr);
    CHECK(second.get() == handle);
    owner third = TestType::make();
    CHECK(TestType::live() == 2);
    third = std::move(second);
    CHECK(third.get() == handle);
    CHECK(TestType::live() == 1);
    auto& same = third;
    third = std::move(same);
    CHECK(third.get() == handle);
    third = TestType::make();
    CHECK(third.get() != nullptr);
    CHECK(TestType::live() == 1);
  }
  CHECK(TestType::live() == 0);
}

TEMPLATE_TEST_CASE("a released handle belongs to the caller and can be adopted again", "[cuda]",
                   streams, events, graphs) {
  using owner = decltype(TestType::make());
  const clean_fake until_the_end;
  owner given = TestType::make();
  const auto handle = given.release();
  CHECK(given.get() == nullptr);
  CHECK(TestType::live() == 1);
  given = owner::from_native_handle(handle);
  CHECK(given.get() == handle);
  { const owner taken = owner::from_native_handle(given.release()); }
  CHECK(TestType::live() == 0);
}

TEMPLATE_TEST_CASE("an owner of no handle destroys nothing", "[cuda]", ps::cuda_event,
                   ps::detail::cuda_graph) {
  const clean_fake until_the_end;
  TestType none;
  CHECK(none.get() == nullptr);
  none = TestType{};
  CHECK(none.get() == nullptr);
}
