#pragma once

#include "options.hpp"
#include "results.hpp"
#include "timeline.hpp"

namespace mlp {

/// The picture of what was recorded: of each loop the run of median duration. Needs recordings.
[[nodiscard]] timeline picture_of(const options& chosen, const results& found);

/// Writes it to the file that was asked for. Throws `std::runtime_error` if that fails.
void write_picture(const options& chosen, const results& found);

}  // namespace mlp
