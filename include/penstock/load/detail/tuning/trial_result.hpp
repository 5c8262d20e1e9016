// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/load/tuning_history.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How a trial ended, with the ticks of a batch.
struct trial_result {
  tuning_setting from;
  tuning_setting to;
  tuning_reason why = tuning_reason::went_back;
  double ticks_from = 0;
  double ticks_to = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
