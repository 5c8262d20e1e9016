// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <iosfwd>

#include <penstock/tune/option_search.hpp>
#include <penstock/tune/search_space.hpp>

#include "data.hpp"
#include "options.hpp"

namespace mlp {

/// What `--search` chooses from on a machine with `cores`.
[[nodiscard]] penstock::search_space space_for(std::size_t cores, std::size_t batch);

/// Looks for the options with which the overlapped loop takes the least time for `chosen.epochs`,
/// for `chosen.search` seconds or `most` trials, and prints each trial and the best. The trials go
/// to the file `chosen.trials`, and those that it holds already count, so a search can be
/// continued. Throws what `run_experiment` throws, `penstock::trial_error` for a damaged file,
/// `penstock::option_error` for one of another search, and `std::runtime_error` where it can't be
/// written.
void search_options_for(const options& chosen, const digit_data& data, std::ostream& out,
                        std::size_t most = 1000);

}  // namespace mlp
