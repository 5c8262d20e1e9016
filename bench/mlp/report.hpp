// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iosfwd>
#include <vector>

#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// One run of a table that shows what each way to make a step gives.
struct measured_step {
  options chosen;
  results found;
};

/// The table, the costs of the stages, and the bound with the distance of the overlapped loop.
/// `variants` are runs of `variants_of`, and rows of the table.
void print_report(std::ostream& out, const options& chosen, const results& found,
                  const std::vector<measured_step>& variants = {});

/// The results as one JSON object, in which each variant is one of its own; README.md lists the
/// keys. Throws `std::runtime_error` if the file can't be written.
void write_json(const options& chosen, const results& found,
                const std::vector<measured_step>& variants = {});

/// The statistics of the overlapped loop's first run, by `penstock::to_json`. Throws as
/// `write_json`.
void write_stats(const options& chosen, const results& found);

/// The rows, in Markdown; each one's gain is the time of the row before over its own, both
/// resident.
void print_steps_table(std::ostream& out, const std::vector<measured_step>& rows);

/// An array of what `write_json` writes, a row each. There must be a row. Throws as it.
void write_steps_json(const std::vector<measured_step>& rows);

}  // namespace mlp
