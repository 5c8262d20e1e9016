// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>

#include <penstock/core/error.hpp>
#include <penstock/resume/loader_state.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A text is not a `loader_state`: at which byte of it, what was expected there and what was found.
class [[gnu::visibility("default")]] state_error : public error {
 public:
  state_error(std::size_t offset, const std::string& expected, const std::string& found)
      : error("loader_state: at byte " + std::to_string(offset) + ": expected " + expected +
              ", found " + found),
        offset_(offset) {}
  /// The byte of the text that could not be read.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

 private:
  std::size_t offset_;
};

namespace detail {

/// Reads a state from its text: keys with values, "key=value", and space between them. Single-use.
class state_reader {
 public:
  explicit state_reader(std::string_view text) noexcept : text_(text) {}

  loader_state read() {
    loader_state state;
    state.version = 0;
    std::array<bool, state_members.size() + 2> seen{};
    skip_space();
    while (at_ != text_.size()) {
      const std::size_t begin = at_;
      const std::string_view key = word();
      skip_space();
      if (at_ == text_.size() || text_[at_] != '=') fail(at_, "'='", found());
      ++at_;
      skip_space();
      const std::size_t which = value_of(key, begin, state);
      if (seen[which]) fail(begin, "every key once", "'" + std::string{key} + "' again");
      seen[which] = true;
      const std::size_t end = at_;
      skip_space();
      if (at_ == end && at_ != text_.size()) fail(at_, "a space", found());
    }
    for (std::size_t which = 0; which < seen.size(); ++which) {
      if (!seen[which]) fail(at_, "the key '" + std::string{name_of(which)} + "'", "none");
    }
    if (state.batch_size == 0) fail(at_, "a batch_size of at least 1", "0");
    return state;
  }

 private:
  static constexpr std::string_view version_name = "penstock_state";
  static constexpr std::string_view last_name = "last";

  static constexpr std::string_view name_of(std::size_t which) noexcept {
    if (which < state_members.size()) return state_members[which].name;
    return which == state_members.size() ? version_name : last_name;
  }

  // Reads the value for `key` and returns the key's number.
  std::size_t value_of(std::string_view key, std::size_t begin, loader_state& state) {
    for (std::size_t which = 0; which < state_members.size(); ++which) {
      if (key == state_members[which].name) {
        state.*state_members[which].place = number();
        return which;
      }
    }
    const std::size_t value_begin = at_;
    if (key == version_name) {
      const std::uint64_t version = number();
      if (version != 1) fail(value_begin, "version 1", std::to_string(version));
      state.version = 1;
      return state_members.size();
    }
    if (key == last_name) {
      const std::string_view value = word();
      const auto* const name =
          std::find(partial_batch_names.begin(), partial_batch_names.end(), value);
      if (name == partial_batch_names.end()) {
        fail(value_begin, "keep, drop or pad", "'" + std::string{value} + "'");
      }
      state.last = static_cast<std::uint32_t>(name - partial_batch_names.begin());
      return state_members.size() + 1;
    }
    fail(begin, "a key of a loader_state", "'" + std::string{key} + "'");
  }

  std::uint64_t number() {
    std::uint64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, problem] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (problem != std::errc{}) {
      fail(at_, "a number below 2^64", found());
    }
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  // A key or a name.
  std::string_view word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') || text_[at_] == '_')) {
      ++at_;
    }
    if (at_ == begin) fail(begin, "a name", found());
    return text_.substr(begin, at_ - begin);
  }

  void skip_space() noexcept {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || (text_[at_] >= '\t' && text_[at_] <= '\r'))) {
      ++at_;
    }
  }
  [[nodiscard]] std::string found() const {
    if (at_ == text_.size()) return "the end";
    return "'" + std::string{text_.substr(at_, 12)} + "'";
  }
  [[noreturn]] static void fail(std::size_t offset, const std::string& expected,
                                const std::string& found) {
    throw state_error(offset, expected, found);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail

/// The state as one line for a log or a file: "penstock_state=1 epoch=3 batch=17 ... last=keep".
[[nodiscard]] inline std::string to_text(const loader_state& state) {
  std::string text = "penstock_state=" + std::to_string(state.version);
  for (const detail::state_member& member : detail::state_members) {
    ((text += ' ') += member.name) += '=';
    text += std::to_string(state.*member.place);
  }
  text += " last=";
  return text += state.last < 3 ? detail::partial_batch_names[state.last] : "unknown";
}

/// Writes `to_text(state)`.
inline std::ostream& operator<<(std::ostream& out, const loader_state& state) {
  return out << to_text(state);
}

/// The value that `to_text` wrote: `from_text<loader_state>(text)`; the keys may come in any order,
/// with any white space. Throws `state_error`.
template <std::same_as<loader_state> State>
[[nodiscard]] State from_text(std::string_view text) {
  return detail::state_reader{text}.read();
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
