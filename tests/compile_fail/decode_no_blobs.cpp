// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <span>
#include <string_view>

#include <penstock_ext/image/decode.hpp>

namespace ps = penstock;

struct decoder {
  bool matches(std::span<const std::byte>) const noexcept { return true; }
  ps::image_info info(std::span<const std::byte>, std::string_view) { return {}; }
  void decode(std::span<const std::byte>, std::string_view, const ps::image_box&,
              const ps::pixels&) {}
};

struct geometry {
  ps::image_size size() const { return {1, 1}; }
  ps::image_plan plan(const ps::image_size&, ps::sample_generator&) const { return {}; }
};

void use() {
  (void)(42 | ps::decode_images<decoder>(geometry{}));  // expected-error: it takes a blob source
}
