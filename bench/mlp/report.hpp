// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iosfwd>
#include <vector>

#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// One row in a table of several experiments.
struct measured_step {
  options chosen;
  results found;
  bool is_complete = true;  ///< true if all parts of the experiment were run
};

/// Prints the table, the cost of each stage, the bound, and how much longer than the bound the
/// overlapped loop takes. `variants` contains the results of the variants from `variants_of`, one
/// table row each.
void print_report(std::ostream& out, const options& chosen, const results& found,
                  const std::vector<measured_step>& variants = {});

/// Writes the results as a JSON object that contains an object per variant; README.md lists the
/// keys. Replaces the file atomically. Throws `std::runtime_error` if the file cannot be written.
void write_json(const options& chosen, const results& found, bool is_complete,
                const std::vector<measured_step>& variants = {});

/// Prints the last row in Markdown, preceded by the table head if it is the first row. The gain of
/// a row is the time of the previous row divided by the time of this row, both with resident data.
void print_last_step(std::ostream& out, const std::vector<measured_step>& rows);

/// Writes an array with one object of `write_json` per row. There must be at least one row. Throws
/// the same exceptions as `write_json`.
void write_steps_json(const std::vector<measured_step>& rows);

}  // namespace mlp
