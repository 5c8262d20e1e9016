// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <limits>
#include <locale>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <penstock_ext/search/detail/trial_reader.hpp>
#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The options that have a value, as `{"workers": 4, "cost": 0.25}`; `cost` where it is above 0.
inline std::string tuned_json(const tuned_options& options, double cost) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(std::numeric_limits<double>::max_digits10);
  std::string_view between;
  out << '{';
  for (const tuned_member& one : tuned_members) {
    if (!(options.*one.place)) continue;
    out << between << '"' << one.name << "\": " << *(options.*one.place);
    between = ", ";
  }
  if (cost > 0) out << between << "\"cost\": " << cost;
  out << '}';
  return out.str();
}

}  // namespace detail

/// The options as they stand in a program: `{.workers = 4, .prefetch = 8}` for `loader_options`, on
/// a second line `{.depth = 3}` for `transfer_options`; a line only where it has an option.
[[nodiscard]] inline std::string to_text(const tuned_options& options) {
  std::string of_loader;
  std::string of_transfer;
  for (const detail::tuned_member& one : detail::tuned_members) {
    if (!(options.*one.place)) continue;
    std::string& line = one.name == "depth" ? of_transfer : of_loader;
    line += line.empty() ? "{." : ", .";
    line += one.name;
    line += " = ";
    const std::size_t value = *(options.*one.place);
    line += one.name != "pinned" ? std::to_string(value) : value != 0 ? "true" : "false";
  }
  if (!of_loader.empty()) of_loader += "}  // loader_options\n";
  if (!of_transfer.empty()) of_transfer += "}  // transfer_options\n";
  return of_loader + of_transfer;
}

/// The options as a JSON object: {"workers": 4, "prefetch": 8, "depth": 3}.
[[nodiscard]] inline std::string to_json(const tuned_options& options) {
  return detail::tuned_json(options, 0);
}

/// Trials as a JSON list, one a line: what a search can be continued from.
[[nodiscard]] inline std::string to_json(std::span<const trial> trials) {
  std::string text = "[";
  std::string_view between = "\n";
  for (const trial& one : trials) {
    text += between;
    text += detail::tuned_json(one.options, one.cost);
    between = ",\n";
  }
  return text += "]\n";
}

/// The options that `to_json` wrote. Throws `trial_error`.
[[nodiscard]] inline tuned_options read_tuned_options(std::string_view json) {
  return detail::trial_reader{json}.options();
}

/// The trials that `to_json` wrote. Throws `trial_error`.
[[nodiscard]] inline std::vector<trial> read_trials(std::string_view json) {
  return detail::trial_reader{json}.trials();
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
