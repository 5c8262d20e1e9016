// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "options.hpp"
#include "results.hpp"
#include "timeline.hpp"

namespace mlp {

/// The picture of what was recorded: of each loop the run of median duration. Needs recordings.
[[nodiscard]] timeline picture_of(const options& chosen, const results& found);

/// How busy readers, copies and steps were over an epoch, the serial loop above the overlapped one;
/// of each the run of median duration. Needs recordings of epochs.
[[nodiscard]] timeline utilisation_of(const options& chosen, const results& found);

/// Writes the picture to the file that was asked for. Throws `std::runtime_error` if that fails.
void write_picture(const options& chosen, const results& found);
/// Writes the other one. Throws `std::runtime_error` if that fails.
void write_utilisation(const options& chosen, const results& found);

}  // namespace mlp
