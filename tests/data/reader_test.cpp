// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/reader.hpp>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using numbered_one = ps::record<ps::field<"x", std::uint32_t>>;

struct failing_source {
  using record_type = numbered_one;
  std::uint64_t size() const { return 100; }
  void read(std::uint64_t i, ps::sample<numbered_one> out) const {
    if (i == 13) throw std::domain_error("thirteen");
    ps::get<"x">(out) = static_cast<std::uint32_t>(i);
  }
};

struct failing_run_source {
  using record_type = numbered_one;
  std::uint64_t size() const { return 100; }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<numbered_one>) const {
    for (const std::uint64_t index : indices) {
      if (index == 13) throw std::domain_error("thirteen");
    }
  }
};

// A dataset that logs each prefetch as the index, and each read as the index plus 100.
struct noted_source {
  using record_type = numbered_one;
  std::vector<std::uint64_t>* notes;
  std::uint64_t size() const { return 100; }
  void prefetch(std::uint64_t index) const noexcept { notes->push_back(index); }
  void read(std::uint64_t index, ps::sample<numbered_one> out) const {
    notes->push_back(100 + index);
    ps::get<"x">(out) = static_cast<std::uint32_t>(index);
  }
};

// A dataset that records the scratch memory it receives.
struct scratch_source {
  using record_type = numbered_one;
  std::size_t wanted = 0;
  std::uint64_t size() const { return 100; }
  std::size_t scratch_bytes() const { return wanted; }
  void read_chunk(std::span<const std::uint64_t>, ps::batch_view<numbered_one> out,
                  const ps::chunk_context& context) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(context.scratch().data());
    ps::get<"x">(out)(0) = static_cast<std::uint32_t>(context.scratch().size());
    ps::get<"x">(out)(1) = static_cast<std::uint32_t>(begin % 256);
    for (std::byte& byte : context.scratch()) byte = std::byte{1};
  }
};

template <class Source>
std::size_t place_of_failure(const Source& source, const std::vector<std::uint64_t>& indices) {
  test::batch_memory<numbered_one> memory{{}, indices.size()};
  ps::reader reader{source};
  REQUIRE_THROWS_AS(reader.read(indices, memory.view(), {}), std::domain_error);
  return reader.failed_at();
}

}  // namespace

TEST_CASE("a reader names the failing sample of a chunk", "[data][fault:samples-1]") {
  CHECK(place_of_failure(failing_source{}, {1, 2, 13, 3}) == 2);
  CHECK(place_of_failure(failing_source{}, {13}) == 0);
}

TEST_CASE("a reader finds the failing sample in a source that reads runs",
          "[data][fault:samples-1]") {
  CHECK(place_of_failure(failing_run_source{}, {1, 2, 3, 13, 4}) == 3);
}

TEST_CASE("a reader prefetches four samples ahead", "[data]") {
  std::vector<std::uint64_t> notes;
  CHECK(test::read_batch(noted_source{&notes}, {9, 3, 5, 7, 2, 8}).get<"x">()(5) == 8);
  CHECK(notes == std::vector<std::uint64_t>{3, 5, 7, 2, 109, 8, 103, 105, 107, 102, 108});
}

TEST_CASE("a reader continues after a failure", "[data]") {
  const failing_source source;
  test::batch_memory<numbered_one> memory{{}, 2};
  ps::reader reader{source};
  const std::vector<std::uint64_t> bad{5, 13};
  const std::vector<std::uint64_t> good{6, 7};
  REQUIRE_THROWS_AS(reader.read(bad, memory.view(), {}), std::domain_error);
  reader.read(good, memory.view(), {});
  CHECK(memory.get<"x">()(1) == 7);
}

TEST_CASE("a reader has aligned scratch memory of the size that the dataset requests", "[data]") {
  const auto wanted = GENERATE(std::size_t{0}, std::size_t{256}, std::size_t{100'000});
  const auto found = test::values<"x">(test::read_batch(scratch_source{.wanted = wanted}, {0, 1}));
  CHECK(found[0] == wanted);
  CHECK(found[1] == 0);
}

TEST_CASE("a moved reader keeps its memory", "[data]") {
  const scratch_source source{.wanted = 512};
  test::batch_memory<numbered_one> memory{{}, 2};
  const std::vector<std::uint64_t> indices{0, 1};
  ps::reader first{source};
  ps::reader second{std::move(first)};
  second.read(indices, memory.view(), {});
  CHECK(memory.get<"x">()(0) == 512);
}
