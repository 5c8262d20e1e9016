// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Datasets over files whose samples have no fixed place. An index is built once and kept.

#include <penstock_ext/indexed/prefixed_records.hpp>
#include <penstock_ext/indexed/sample_index.hpp>
#include <penstock_ext/indexed/text_lines.hpp>
#include <penstock_ext/indexed/tf_examples.hpp>
