// SPDX-License-Identifier: BSL-1.0
// Writes the data that mds_streaming.py compares. The test is hidden, because it needs the shards
// that the script writes.
#include <penstock_ext/blob/mds/mds_shards.hpp>

#include "ext/blob/mds_files.hpp"
#include "support/catch.hpp"

TEST_CASE("MDS shards are listed for a comparison with Mosaic's", "[.][streaming]") {
  test::list_mds({});
}
