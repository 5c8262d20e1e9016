// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/extents.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A row of packed documents. `S` is `packing_options::length`, M `most_documents`:
/// - "tokens", S: the documents' tokens, one after the other, then padding;
/// - "labels", S: for each token the next one of its document, also where that is in another row,
///   and `no_label` at the end of a document and in the padding;
/// - "position_ids", S: places from 0 on, for each document, or part of one; 0 in the padding;
/// - "cu_seqlens", M + 1: where each document starts, and the end of the last one, repeated
///   up to the field's end: for kernels the sequences after the last one are empty;
/// - "sequences": how many documents, or parts of them, there are.
template <class Token>
using packed_record =
    record<field<"tokens", Token, dyn>, field<"labels", std::int32_t, dyn>,
           field<"position_ids", std::int32_t, dyn>, field<"cu_seqlens", std::int32_t, dyn>,
           field<"sequences", std::int32_t>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
