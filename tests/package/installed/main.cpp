// SPDX-License-Identifier: BSL-1.0
#include <boost/lockfree/spsc_queue.hpp>  // comes with penstock::penstock

#include <penstock/penstock.hpp>
#ifdef WITH_GZIP
#include <zlib.h>  // comes with penstock::gzip

#include <penstock/files/gzip.hpp>
#endif

#include <cstdio>

int main() {
#ifdef WITH_GZIP
  std::printf("zlib %s\n", zlibVersion());
#endif
  std::printf("penstock %d.%d.%d\n", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
              PENSTOCK_VERSION_PATCH);
}
