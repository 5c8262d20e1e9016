// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Byte stores: local files by io_uring. A cache over any store is in
/// `store/cache/cached_store.hpp` (`penstock::cache`), and stores over a network are in
/// `store/http/http_store.hpp` and `store/http/s3_store.hpp` (`penstock::http`).

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/local_store.hpp>
