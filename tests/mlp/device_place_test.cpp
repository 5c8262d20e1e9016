// SPDX-License-Identifier: BSL-1.0
#include "ranks/device_place.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace {

/// All ranks, each with its place.
struct placed_ranks {
  std::vector<mlp::device_place> places;
  static int rank() { return 0; }
  [[nodiscard]] int size() const { return static_cast<int>(places.size()); }
  static void all_reduce(std::span<float>) {}
  static void barrier() {}
  void all_gather(std::span<const std::byte>, std::span<std::byte> all) const {
    std::memcpy(all.data(), places.data(), all.size());
  }
};

mlp::device_place place_on(const char* host, const char* bus, unsigned char id = 0) {
  auto place = mlp::device_place::of(bus, {std::byte{id}});
  place.host = {};
  std::strcpy(place.host.data(), host);
  return place;
}

std::string problem_of(std::vector<mlp::device_place> places) {
  placed_ranks ranks{std::move(places)};
  return mlp::shared_devices(ranks.places.front(), ranks);
}

}  // namespace

TEST_CASE("ranks on one device are told apart from those on one machine", "[mlp]") {
  CHECK(problem_of({place_on("a", "0:1")}).empty());
  CHECK(problem_of({place_on("a", "0:1"), place_on("a", "0:2"), place_on("b", "0:1")}).empty());
  CHECK(problem_of({place_on("a", "0:1"), place_on("a", "0:2"), place_on("a", "0:1"),
                    place_on("b", "0:2"), place_on("a", "0:1"), place_on("b", "0:2")}) ==
        "ranks 0 and 2 and 4 share the GPU 0:1 of a; ranks 3 and 5 share the GPU 0:2 of b");
  // By the device's own id, where it has one: parts of a GPU are at one place, and a machine may
  // have several names.
  CHECK(problem_of({place_on("a", "0:1", 1), place_on("a", "0:1", 2)}).empty());
  CHECK(problem_of({place_on("a", "0:1", 3), place_on("b", "0:1", 3)}) ==
        "ranks 0 and 1 share the GPU 0:1 of a");
  CHECK(problem_of({place_on("a", "0:1", 3), place_on("a", "0:1")}) ==
        "ranks 0 and 1 share the GPU 0:1 of a");
}

TEST_CASE("a process's place has the name of its machine", "[mlp]") {
  const auto here = mlp::device_place::of("0000:3B:00.0");
  CHECK(here.host[0] != '\0');
  CHECK(std::string{here.bus.data()} == "0000:3B:00.0");
}
