// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/trial_error.hpp>
#include <penstock_ext/search/tuned_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Reads the JSON of `tuned_options` and of trials. Single-use.
class trial_reader {
 public:
  explicit trial_reader(std::string_view text) noexcept : text_(text) {}

  /// The whole text is one object of options.
  tuned_options options() {
    skip_space();
    const tuned_options read = object(false).options;
    end();
    return read;
  }

  /// The whole text is a list of objects, each with a cost.
  std::vector<trial> trials() {
    std::vector<trial> all;
    skip_space();
    expect('[');
    skip_space();
    while (peek() != ']') {
      if (!all.empty()) {
        expect(',');
        skip_space();
      }
      all.push_back(object(true));
      skip_space();
    }
    ++at_;
    end();
    return all;
  }

 private:
  trial object(bool has_cost) {
    trial read;
    std::optional<double> cost;
    const std::size_t begin = at_;
    expect('{');
    skip_space();
    for (bool is_first = true; peek() != '}'; is_first = false) {
      if (!is_first) {
        expect(',');
        skip_space();
      }
      member(read.options, has_cost, cost);
      skip_space();
    }
    ++at_;
    if (has_cost && !cost) fail(begin, "an object with the key 'cost'", "none");
    read.cost = cost.value_or(0);
    return read;
  }

  void member(tuned_options& options, bool has_cost, std::optional<double>& cost) {
    const std::size_t begin = at_;
    const std::string_view key = name();
    skip_space();
    expect(':');
    skip_space();
    const auto once = [&](bool is_new) {
      if (!is_new) fail(begin, "every key once", "'" + std::string{key} + "' again");
    };
    for (const tuned_member& one : tuned_members) {
      if (one.name != key) continue;
      once(!(options.*one.place));
      options.*one.place = count();
      return;
    }
    if (!has_cost || key != "cost")
      fail(begin, "the name of an option", "'" + std::string{key} + "'");
    once(!cost);
    cost = number();
  }

  std::string_view name() {
    expect('"');
    const std::size_t begin = at_;
    while ((peek() >= 'a' && peek() <= 'z') || peek() == '_') ++at_;
    const std::string_view read = text_.substr(begin, at_ - begin);
    expect('"');
    return read;
  }

  std::size_t count() {
    const std::size_t begin = at_;
    std::size_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      const auto digit = static_cast<std::size_t>(peek() - '0');
      if (value > (~std::size_t{0} - digit) / 10) fail(begin, "a number below 2^64", found(begin));
      value = 10 * value + digit;
      ++at_;
    }
    if (at_ == begin) fail(begin, "a number of digits", found(begin));
    return value;
  }

  // By a stream: std::from_chars of libc++ reads no double before version 20.
  double number() {
    const std::size_t begin = at_;
    while (std::string_view{"0123456789+-.eE"}.find(peek()) != std::string_view::npos &&
           at_ - begin < 64 && at_ < text_.size()) {
      ++at_;
    }
    std::istringstream in{std::string{text_.substr(begin, at_ - begin)}};
    in.imbue(std::locale::classic());
    double value = 0;
    in >> value;
    if (!in || in.peek() != std::istringstream::traits_type::eof() || !(value > 0) ||
        !std::isfinite(value)) {
      fail(begin, "a finite number above 0", found(begin));
    }
    return value;
  }

  void end() {
    skip_space();
    if (at_ != text_.size()) fail(at_, "the end", found(at_));
  }

  [[nodiscard]] char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() noexcept {
    while (peek() == ' ' || (peek() >= '\t' && peek() <= '\r')) ++at_;
  }
  void expect(char mark) {
    if (peek() != mark) fail(at_, "'" + std::string(1, mark) + "'", found(at_));
    ++at_;
  }
  [[nodiscard]] std::string found(std::size_t offset) const {
    if (offset >= text_.size()) return "the end";
    return "'" + std::string{text_.substr(offset, 12)} + "'";
  }
  [[noreturn]] static void fail(std::size_t offset, const std::string& expected,
                                const std::string& found) {
    throw trial_error(offset, expected, found);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
