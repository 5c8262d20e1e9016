// In steady state the path of a batch allocates nothing: operator new is counted for the whole program
// while two epochs run. Construction, user code and exceptions are outside of the count.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

namespace ps = penstock;

namespace {

using digit =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
using floats = ps::record<ps::field<"image", float, 28, 28>, ps::field<"label", std::int32_t>>;

// What is allocated from the second batch of the first epoch to the end of the second one.
template <class Range>
std::size_t allocated_in(Range range) {
  auto it = range.begin();
  ++it;
  const std::size_t before = test::allocations.load();
  std::uint64_t sum = 0;
  for (; it != range.end(); ++it) sum += it->size();
  const std::size_t after = test::allocations.load();
  REQUIRE(sum > 0);
  return after - before;
}

}  // namespace

TEST_CASE("the path of a batch allocates nothing", "[flow]") {
  const std::vector<std::uint8_t> images(500 * 784, 7);
  const std::vector<std::uint8_t> labels(500, 1);
  const auto warp = [](ps::const_sample<digit> in, ps::sample<floats> out,
                       ps::sample_generator& rng) {
    ps::get<"image">(out)(0, 0) = ps::uniform(rng, 0.0F, 1.0F);
    ps::get<"label">(out) = ps::get<"label">(in);
  };
  const auto in_place = [](ps::sample<floats> sample) { ps::get<"label">(sample) += 1; };

  const std::size_t before = test::allocations.load();
  REQUIRE(std::vector<int>(3).size() == 3);
  REQUIRE(test::allocations.load() > before);  // the count counts

  for (const std::size_t workers : {0U, 1U, 2U, 4U}) {
    for (const bool in_order : {true, false}) {
      INFO("workers " << workers << ", in order " << in_order);
      ps::host_device device;
      auto stream = device.make_stream();
      ps::loader loader{
          ps::memory_dataset<digit>{images, labels} | ps::map<floats>(warp) | ps::map(in_place),
          ps::shuffled{.seed = 1},
          device,
          {.batch_size = 32, .workers = workers, .in_order = in_order, .run = 5}};
      CHECK(allocated_in(loader.epochs(0, 2)) == 0);
      ps::transfer feed{loader, stream};
      CHECK(allocated_in(feed.epochs(0, 2)) == 0);
      ps::transfer inline_feed{loader, device.inline_stream(), {.depth = 1}};
      CHECK(allocated_in(inline_feed.epochs(0, 2)) == 0);
    }
  }
}
