// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace data {

/// Takes the words "name=value" off the end of `words`. Throws std::invalid_argument for a name
/// that is not among `known`.
inline std::map<std::string, std::string> take_named(std::vector<std::string>& words,
                                                     std::initializer_list<const char*> known) {
  std::map<std::string, std::string> values;
  for (; !words.empty() && words.back().find('=') != std::string::npos; words.pop_back()) {
    const std::string name = words.back().substr(0, words.back().find('='));
    std::string list;
    bool is_known = false;
    for (const char* const one : known) {
      is_known = is_known || name == one;
      list += std::string{list.empty() ? "" : ", "} + one;
    }
    if (!is_known) throw std::invalid_argument(name + ": expected one of " + list);
    values[name] = words.back().substr(name.size() + 1);
  }
  return values;
}

}  // namespace data
