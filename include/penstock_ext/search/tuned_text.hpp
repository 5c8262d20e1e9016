// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <penstock/core/error.hpp>
#include <penstock_ext/files/json/parsed_json.hpp>
#include <penstock_ext/search/option_search.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

[[noreturn]] inline void throw_trial_error(std::size_t offset, const std::string& expected,
                                           const std::string& found) {
  throw text_error("tuned options", offset, expected, found);
}

/// Parses the options of an object that begins at byte `begin`, and also its cost if `has_cost` is
/// true.
[[nodiscard]] inline trial trial_of(const nlohmann::json& object, std::size_t begin,
                                    bool has_cost) {
  trial read;
  for (const auto& [key, value] : object.items()) {
    if (has_cost && key == "cost") {
      read.cost = value.is_number() ? value.template get<double>() : 0;
      if (read.cost > 0 && std::isfinite(read.cost)) continue;
      throw_trial_error(begin, "a cost that is a finite number above 0", value.dump());
    }
    const tuned_member* named = nullptr;
    for (const tuned_member& one : tuned_members) {
      if (one.name == key) named = &one;
    }
    if (named == nullptr) throw_trial_error(begin, "the name of an option", '\'' + key + '\'');
    if (!value.is_number_unsigned()) {
      throw_trial_error(begin, "an integer below 2^64 as " + key, value.dump());
    }
    read.options.*named->place = static_cast<std::size_t>(value.template get<std::uint64_t>());
  }
  if (has_cost && !(read.cost > 0))
    throw_trial_error(begin, "an object with the key 'cost'", "none");
  return read;
}

/// Formats the non-empty options as JSON, and also the cost if it is positive.
[[nodiscard]] inline std::string tuned_json(const tuned_options& options, double cost) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const tuned_member& one : tuned_members) {
    if (options.*one.place) object[std::string{one.name}] = *(options.*one.place);
  }
  if (cost > 0) object["cost"] = cost;
  return object.dump();
}

}  // namespace detail

/// Formats the options as source code: `{.workers = 4, .prefetch = 8}` for `loader_options`, and
/// `{.depth = 3}` on a second line for `transfer_options`. Omits a line without options.
[[nodiscard]] inline std::string to_text(const tuned_options& options) {
  std::string of_loader;
  std::string of_transfer;
  for (const detail::tuned_member& one : detail::tuned_members) {
    if (!(options.*one.place)) continue;
    std::string& line = one.name == "depth" ? of_transfer : of_loader;
    const bool is_grouped = one.name == "chunk";
    line += line.empty() ? "{." : ", .";
    if (is_grouped) line += "tuning = {.";
    line += one.name;
    line += " = ";
    const std::size_t value = *(options.*one.place);
    line += one.name != "pinned" ? std::to_string(value) : value != 0 ? "true" : "false";
    if (is_grouped) line += '}';
  }
  if (!of_loader.empty()) of_loader += "}  // loader_options\n";
  if (!of_transfer.empty()) of_transfer += "}  // transfer_options\n";
  return of_loader + of_transfer;
}

/// Formats the options as a JSON object: {"workers":4,"prefetch":8,"depth":3}.
[[nodiscard]] inline std::string to_json(const tuned_options& options) {
  return detail::tuned_json(options, 0);
}

/// Formats trials as a JSON list with one trial on each line. A later search can continue from this
/// list.
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

/// Parses options written by `to_json`. Throws `text_error` if the text is invalid.
[[nodiscard]] inline tuned_options read_tuned_options(std::string_view json) {
  std::optional<trial> read;
  const auto rest =
      detail::parsed_json(json, detail::throw_trial_error,
                          [&](const auto& object, std::size_t begin, const auto& around) {
                            if (around.empty()) read = detail::trial_of(object, begin, false);
                            return true;
                          });
  if (!read) detail::throw_trial_error(0, "an object of options", rest.dump().substr(0, 12));
  return read->options;
}

/// Parses trials written by `to_json`. Throws `text_error` if the text is invalid.
[[nodiscard]] inline std::vector<trial> read_trials(std::string_view json) {
  std::vector<trial> read;
  const auto rest =
      detail::parsed_json(json, detail::throw_trial_error,
                          [&](const auto& object, std::size_t begin, const auto& around) {
                            if (around.size() != 1 || !around[0].value.is_array()) return true;
                            read.push_back(detail::trial_of(object, begin, true));
                            return false;
                          });
  if (!rest.is_array() || !rest.empty()) {
    detail::throw_trial_error(0, "a list of objects", rest.dump().substr(0, 12));
  }
  return read;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
