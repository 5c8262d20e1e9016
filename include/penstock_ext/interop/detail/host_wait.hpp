// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <optional>

#include <penstock_ext/interop/shared_batch.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether the calling thread is running work of this stream.
template <class StreamRef>
[[nodiscard]] bool runs_work_of([[maybe_unused]] StreamRef stream) noexcept {
  if constexpr (requires {
                  { StreamRef::running() } -> std::same_as<std::optional<StreamRef>>;
                }) {
    return StreamRef::running() == std::optional{stream};
  } else {
    return false;
  }
}

/// Blocks until the copy of a batch in host memory is complete, for a reader on this thread.
template <class Batch>
void wait_on_host([[maybe_unused]] const shared_batch<Batch>& batch) {
  if constexpr (requires { batch.stream().synchronize(); }) {
    if (!runs_work_of(batch.stream())) batch.stream().synchronize();
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
