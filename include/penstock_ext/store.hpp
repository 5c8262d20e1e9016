// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Byte stores, including local files through io_uring. A cache for any store is in
/// `store/cache/cached_store.hpp` (`penstock::cache`). Network stores are in
/// `store/http/http_store.hpp` and `store/http/s3_store.hpp` (`penstock::http`).

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/local_store.hpp>
