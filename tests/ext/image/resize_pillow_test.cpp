// SPDX-License-Identifier: BSL-1.0
// Resizes the images for resize_pillow.py. The test is hidden, because it needs the files that
// the script writes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <penstock_ext/image/resize.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("images are resized for a comparison with Pillow", "[.][pillow]") {
  const char* const folder = std::getenv("PENSTOCK_RESIZE_CASES");
  REQUIRE(folder != nullptr);
  const std::string path = folder;
  std::ifstream file{path + "/bytes", std::ios::binary};
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  std::ifstream cases{path + "/cases"};
  std::ofstream results{path + "/results", std::ios::binary};
  int filter = 0;
  int order = 0;
  std::size_t count = 0;
  cases >> filter >> order >> count;
  const ps::resize_options options{static_cast<ps::resize_filter>(filter),
                                   static_cast<ps::pass_order>(order)};
  ps::resizer fastest{options};
  ps::resizer plain{options, ps::detail::resample_path::plain};
  for (std::size_t i = 0; i < count; ++i) {
    ps::const_pixels in;
    ps::image_plan plan;
    std::size_t offset = 0;
    cases >> in.channels >> offset >> in.pitch >> in.size.width >> in.size.height;
    cases >> plan.crop.left >> plan.crop.top >> plan.crop.size.width >> plan.crop.size.height;
    cases >> plan.scaled.width >> plan.scaled.height;
    cases >> plan.kept.left >> plan.kept.top >> plan.kept.size.width >> plan.kept.size.height;
    cases >> plan.mirrored;
    REQUIRE(cases);
    in.data = bytes.data() + offset;
    const ps::image_size size = plan.size();
    const std::size_t pitch = size.width * in.channels;
    std::vector<std::uint8_t> out(pitch * size.height);
    std::vector<std::uint8_t> again(out.size());
    fastest(in, plan, {out.data(), size, in.channels, pitch});
    plain(in, plan, {again.data(), size, in.channels, pitch});
    REQUIRE(out == again);
    results.write(reinterpret_cast<const char*>(out.data()),
                  static_cast<std::streamsize>(out.size()));
  }
}
