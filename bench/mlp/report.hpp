// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iosfwd>
#include <vector>

#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// One row of a table of several experiments.
struct measured_step {
  options chosen;
  results found;
  bool is_complete = true;  ///< all of it has been run
};

/// The table, the costs of the stages, and the bound with the distance of the overlapped loop.
/// `variants` are runs of `variants_of`, and rows of the table.
void print_report(std::ostream& out, const options& chosen, const results& found,
                  const std::vector<measured_step>& variants = {});

/// The results as one JSON object, in which each variant is one of its own; README.md lists the
/// keys. The file is whole at any time: it is replaced. Throws `std::runtime_error` if it can't be
/// written.
void write_json(const options& chosen, const results& found, bool is_complete,
                const std::vector<measured_step>& variants = {});

/// The last of the rows, in Markdown, after the table's head if it is the first one; its gain is
/// the time of the row before over its own, both resident.
void print_last_step(std::ostream& out, const std::vector<measured_step>& rows);

/// An array of what `write_json` writes, a row each. There must be a row. Throws as it.
void write_steps_json(const std::vector<measured_step>& rows);

}  // namespace mlp
