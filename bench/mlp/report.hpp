// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iosfwd>
#include <vector>

#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// The results of an experiment.
struct measured_row {
  options chosen;
  results found;
  bool is_complete = true;  ///< true if all parts of the experiment were run
};

/// Prints the table, the cost of each stage, the bound, and how much longer than the bound the
/// overlapped loop takes.
void print_report(std::ostream& out, const options& chosen, const results& found);

/// Writes the results as a JSON object, or, if `--seeds` was given, as an array with an object for
/// each row; README.md lists the keys. There must be at least one row. Replaces the file
/// atomically. Throws `std::runtime_error` if the file cannot be written.
void write_json(const std::vector<measured_row>& rows);

}  // namespace mlp
