// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iosfwd>
#include <vector>

#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// An experiment of a run with several experiments.
struct measured_row {
  options chosen;
  results found;
  bool is_complete = true;  ///< true if all parts of the experiment were run
};

/// Prints the table, the cost of each stage, the bound, and how much longer than the bound the
/// overlapped loop takes.
void print_report(std::ostream& out, const options& chosen, const results& found);

/// Writes the results as a JSON object; README.md lists the keys. Replaces the file atomically.
/// Throws `std::runtime_error` if the file cannot be written.
void write_json(const options& chosen, const results& found, bool is_complete);

/// Writes an array with one object of `write_json` per row. There must be at least one row. Throws
/// the same exceptions as `write_json`.
void write_rows_json(const std::vector<measured_row>& rows);

}  // namespace mlp
