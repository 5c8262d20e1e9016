#pragma once

#include <iosfwd>

#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// The table, the costs of the stages, and the bound with the distance of the overlapped loop.
void print_report(std::ostream& out, const options& chosen, const results& found);

/// The same as one JSON object; README.md lists the keys. Throws `std::runtime_error` if the file
/// can't be written.
void write_json(const options& chosen, const results& found);

}  // namespace mlp
