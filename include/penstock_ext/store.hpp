// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Byte stores: local files by io_uring, and a cache over any store. Over a network:
/// `store/http/http_store.hpp` and `store/http/s3_store.hpp` (`penstock::http`).

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cached_store.hpp>
#include <penstock_ext/store/cached_store_options.hpp>
#include <penstock_ext/store/local_store.hpp>
#include <penstock_ext/store/object_name_error.hpp>
#include <penstock_ext/store/remote_error.hpp>
