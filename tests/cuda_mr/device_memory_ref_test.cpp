// SPDX-License-Identifier: BSL-1.0
// Tests device slots in CCCL memory resources, with the names of CCCL 3.0 and later versions.
#include <penstock/cuda/pinned_resource_ref.hpp>  // first, because it enables cuda::mr

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <penstock/cuda.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/device_arena.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

namespace mr = ::cuda::mr;

/// A pool of device memory with the interface of a `cuda::mr` resource.
class device_pool {
 public:
  explicit device_pool(test::device_arena& arena) noexcept : arena_(std::addressof(arena)) {}

  void* allocate_sync(std::size_t bytes, std::size_t alignment) {
    return arena_->allocate(bytes, alignment);
  }
  void deallocate_sync(void* data, std::size_t bytes, std::size_t alignment) noexcept {
    arena_->deallocate(data, bytes, alignment);
  }
  void* allocate(std::size_t bytes, std::size_t alignment) {
    return allocate_sync(bytes, alignment);
  }
  void deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept {
    deallocate_sync(data, bytes, alignment);
  }
  friend bool operator==(const device_pool&, const device_pool&) noexcept = default;
  [[maybe_unused]] friend constexpr void get_property(const device_pool&,
                                                      mr::device_accessible) noexcept {}

 private:
  test::device_arena* arena_;
};

#if CCCL_VERSION >= 3001000
static_assert(mr::synchronous_resource_with<device_pool, mr::device_accessible>);
using any_pool = mr::synchronous_resource_ref<mr::device_accessible>;
#else
static_assert(mr::resource_with<device_pool, mr::device_accessible>);
using any_pool = mr::resource_ref<mr::device_accessible>;
#endif

/// Returns all samples in the order in which they arrive on the device.
std::vector<std::uint64_t> arrived(const ps::cuda_device& device) {
  std::vector<std::uint64_t> all;
  const auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::shuffled{.seed = 1}, device, {.batch_size = 10}};
  ps::transfer feed{loader, stream};
  for (auto& batch : feed.epoch(0)) {
    const auto look = [labels = ps::get<"label">(batch).flat(), &all] {
      all.insert(all.end(), labels.begin(), labels.end());
    };
    fake_cuda::launch(stream.get(), look, {batch.data()});
  }
  stream.synchronize();
  return all;
}

}  // namespace

TEST_CASE("device slots are allocated from a cuda::mr resource or a reference to it",
          "[cuda_mr][memory]") {
  fake_cuda::reset();
  const auto expected = arrived(ps::cuda_device{0});
  REQUIRE(expected.size() == 100);
  {
    test::device_arena arena;
    device_pool pool{arena};
    any_pool any = pool;
    const auto mallocs = fake_cuda::calls_of("cudaMalloc");
    CHECK(arrived(ps::cuda_device{0, pool}) == expected);
    CHECK(arena.allocations == 1);
    CHECK(arrived(ps::cuda_device{0, any}) == expected);
    CHECK(arena.allocations == 2);
    CHECK(fake_cuda::calls_of("cudaMalloc") == mallocs);
  }
  CHECK(fake_cuda::expect_clean());
}
