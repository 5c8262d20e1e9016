// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Token files: windows, documents, packing, and a cache of sample lengths.

#include <penstock_ext/text/length_cache.hpp>
#include <penstock_ext/text/megatron_documents.hpp>
#include <penstock_ext/text/packed_documents.hpp>
#include <penstock_ext/text/token_documents.hpp>
#include <penstock_ext/text/token_windows.hpp>
