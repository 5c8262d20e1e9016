// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/version.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("the version number agrees with its parts", "[core]") {
  CHECK(PENSTOCK_VERSION ==
        PENSTOCK_VERSION_MAJOR * 10000 + PENSTOCK_VERSION_MINOR * 100 + PENSTOCK_VERSION_PATCH);
  CHECK(ps::version == ps::detail::version_number{PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
                                                  PENSTOCK_VERSION_PATCH});
}

TEST_CASE("public names are accessible with and without the inline namespace", "[core]") {
  CHECK(&ps::version == &ps::PENSTOCK_ABI::version);
}
