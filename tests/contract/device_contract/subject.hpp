// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <functional>

#include <penstock/device/device.hpp>

namespace contract {

/// A device under test, together with a function that queues host work on its streams. See
/// device_contract.hpp.
template <class S>
concept subject =
    penstock::device<typename S::device_type> &&
    requires(const S& s, typename S::device_type::stream_ref stream, std::function<void()> work) {
      { s.device() } -> std::same_as<typename S::device_type>;
      s.launch(stream, work);
    };

}  // namespace contract
