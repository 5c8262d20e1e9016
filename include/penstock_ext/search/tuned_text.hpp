// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <locale>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A text is not the JSON of `tuned_options` or of trials: at which byte of it, what was expected
/// there and what was found.
class [[gnu::visibility("default")]] trial_error : public error {
 public:
  trial_error(std::size_t offset, const std::string& expected, const std::string& found)
      : error("tuned options: at byte " + std::to_string(offset) + ": expected " + expected +
              ", found " + found),
        offset_(offset) {}
  /// The byte of the text that could not be read.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

 private:
  std::size_t offset_;
};

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
