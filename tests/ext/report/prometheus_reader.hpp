// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "support/catch.hpp"

namespace test {

/// A strict reader of the Prometheus text format. Each family must have one HELP and one TYPE line,
/// followed by all its samples. Names, labels and values must be legal, values must be finite, and
/// series must be unique.
class prometheus_reader {
 public:
  explicit prometheus_reader(const std::string& text) {
    REQUIRE((text.empty() || text.back() == '\n'));
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      if (line.rfind("# HELP ", 0) == 0) {
        begin(line);
      } else if (line.rfind("# TYPE ", 0) == 0) {
        type(line);
      } else {
        sample(line);
      }
    }
    end();
  }

  /// Returns the value of a series as text, or "(nothing)" if the series is missing.
  [[nodiscard]] std::string operator[](const std::string& series) const {
    const auto found = values_.find(series);
    return found == values_.end() ? "(nothing)" : found->second;
  }
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] const std::set<std::string>& families() const { return families_; }

 private:
  void begin(const std::string& line) {
    end();
    // Does not support escaped backslashes.
    static const std::regex form{"# HELP ([a-z_]+) ([ -~]+)"};
    std::smatch parts;
    REQUIRE(std::regex_match(line, parts, form));
    REQUIRE(line.find('\\') == std::string::npos);
    family_ = parts[1];
    type_.clear();
    samples_ = 0;
    REQUIRE(families_.insert(family_).second);
  }
  void type(const std::string& line) {
    static const std::regex form{"# TYPE ([a-z_]+) (counter|gauge|summary)"};
    std::smatch parts;
    REQUIRE(std::regex_match(line, parts, form));
    REQUIRE(parts[1] == family_);
    REQUIRE(type_.empty());
    type_ = parts[2];
    REQUIRE(ends_with(family_, "_total") == (type_ == "counter"));
  }
  void sample(const std::string& line) {
    static const std::regex form{
        R"re(([a-zA-Z_]\w*)\{([a-z]+="(?:[^"\\]|\\[\\"n])+"(?:,[a-z]+="(?:[^"\\]|\\[\\"n])+")*)\} )re"
        R"re(([0-9]+(?:\.[0-9]+)?))re"};
    std::smatch parts;
    REQUIRE(std::regex_match(line, parts, form));
    REQUIRE_FALSE(type_.empty());
    const std::string name = parts[1];
    if (type_ == "summary") {
      REQUIRE((name == family_ + "_sum" || name == family_ + "_count"));
    } else {
      REQUIRE(name == family_);
    }
    static const std::regex label{R"re(([a-z]+)="(?:[^"\\]|\\[\\"n])+")re"};
    std::set<std::string> labels;
    const std::string all = parts[2];
    for (std::sregex_iterator it{all.begin(), all.end(), label}; it != std::sregex_iterator{}; ++it)
      REQUIRE(labels.insert((*it)[1]).second);
    REQUIRE(values_.emplace(name + "{" + parts[2].str() + "}", parts[3]).second);
    ++samples_;
  }
  void end() const {
    if (!family_.empty()) REQUIRE(samples_ > 0);
  }
  static bool ends_with(std::string_view name, std::string_view end) {
    return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
  }

  std::string family_;
  std::string type_;
  std::size_t samples_ = 0;
  std::set<std::string> families_;
  std::map<std::string, std::string> values_;
};

}  // namespace test
