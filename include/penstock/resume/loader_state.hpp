// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <penstock/core/error.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A text that is no `loader_state`: at which byte of it, what was expected there and what was found.
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

/// A loader can't go on from this state: it gives other batches. The message names every difference.
class [[gnu::visibility("default")]] state_mismatch : public error {
 public:
  using error::error;
};

/// Where a training run stands in the order of all batches, and what this order hangs on: the next
/// batch to deliver, and the values that must be the same for it to be the same batch. 64 bytes to
/// keep in a checkpoint, as they are or as text.
///
///     save(feed.state());                                         // behind any batch
///     for (auto& batch : feed.resume(load(), last_epoch)) ...     // the very next one, at once
///
/// It says nothing of workers, prefetch, depth or device, which change no batch. For a sharded sampler
/// it is that of the global batch and the same on every rank, so that a run may go on with another
/// world size. What a dataset reads can't be seen here: the same files are the caller's affair.
struct loader_state {
  /// The layout of this struct.
  std::uint32_t version = 1;
  /// `loader_options::last`.
  std::uint32_t last = 0;
  /// The epoch of the next batch.
  std::uint64_t epoch = 0;
  /// The next batch within its epoch.
  std::uint64_t batch = 0;
  /// The size of the dataset.
  std::uint64_t dataset = 0;
  /// How many samples the sampler draws in an epoch, over all ranks.
  std::uint64_t samples = 0;
  /// The samples of a batch, over all ranks.
  std::uint64_t batch_size = 0;
  /// `loader_options::seed`.
  std::uint64_t seed = 0;
  /// A fingerprint of the sampler's order, see `order_fingerprint`.
  std::uint64_t order = 0;

  friend bool operator==(const loader_state&, const loader_state&) = default;
};

static_assert(std::is_trivially_copyable_v<loader_state> && sizeof(loader_state) == 64,
              "a checkpoint may hold it as plain bytes");

/// A number that tells two orders apart: a hash of the first and the middle indices of two epochs. Two
/// samplers of other kind or seed have the same with a chance of 2^-64, if their orders differ there.
template <sampler Sampler>
[[nodiscard]] std::uint64_t order_fingerprint(const Sampler& order, std::uint64_t dataset_size) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over words, with a finaliser
  const auto add = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 32;
  };
  const std::uint64_t samples = order.size(dataset_size);
  std::array<std::uint64_t, 16> indices{};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    const auto of_epoch = order.order(dataset_size, epoch);
    for (const std::uint64_t first : {std::uint64_t{0}, samples / 2}) {
      const std::span some{indices.data(), static_cast<std::size_t>((std::min)(
                                               samples - first, std::uint64_t{indices.size()}))};
      of_epoch.fill(first, some);
      for (const std::uint64_t index : some) add(index);
    }
  }
  return hash;
}

/// A sampler that deals a global order out to `world()` ranks: `global()` is what it deals out.
template <class S>
concept dealing_sampler = sampler<S> && requires(const S& deals) {
  requires sampler<std::remove_cvref_t<decltype(deals.global())>>;
  { deals.world() } -> std::convertible_to<std::uint64_t>;
};

/// The sampler itself, or what it deals out.
template <sampler Sampler>
[[nodiscard]] const auto& global_sampler(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.global();
  } else {
    return of;
  }
}

/// The ranks that a sampler deals out to: 1 for most.
template <sampler Sampler>
[[nodiscard]] std::uint64_t world_size(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.world();
  } else {
    return 1;
  }
}

namespace detail {

/// The members of a state by the names that they have in a text.
struct state_member {
  using place_type =
      std::uint64_t loader_state::*;  // by name: nvcc writes it with parentheses else
  std::string_view name;
  place_type place;
};

inline constexpr std::array<state_member, 7> state_members{{
    {"epoch", &loader_state::epoch},
    {"batch", &loader_state::batch},
    {"dataset", &loader_state::dataset},
    {"samples", &loader_state::samples},
    {"batch_size", &loader_state::batch_size},
    {"seed", &loader_state::seed},
    {"order", &loader_state::order},
}};

inline constexpr std::array<std::string_view, 3> partial_batch_names{"keep", "drop", "pad"};

/// Reads a state out of one of its two texts, which differ in nothing but their marks.
class state_reader {
 public:
  explicit state_reader(std::string_view text) noexcept : text_(text) {}

  loader_state read() {
    skip_space();
    json_ = at_ < text_.size() && text_[at_] == '{';
    if (json_) ++at_;
    loader_state state;
    state.version = 0;
    std::array<bool, state_members.size() + 2> seen{};
    for (bool first = true;; first = false) {
      const std::size_t end = at_;
      skip_space();
      if (json_ ? peek() == '}' : at_ == text_.size()) break;
      if (json_ && !first) {
        expect(',');
        skip_space();
      } else if (!first && at_ == end) {
        fail(at_, "a space", found());
      }
      const std::size_t begin = at_;
      const std::string_view key = word();
      skip_space();
      expect(json_ ? ':' : '=');
      skip_space();
      const std::size_t which = value_of(key, begin, state);
      if (seen[which]) fail(begin, "every key once", "'" + std::string{key} + "' again");
      seen[which] = true;
    }
    if (json_) {
      ++at_;
      skip_space();
      if (at_ != text_.size()) fail(at_, "the end", found());
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

  // A key or a name: in quotes in JSON, bare in plain text.
  std::string_view word() {
    if (json_) expect('"');
    const std::size_t begin = at_;
    while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') || text_[at_] == '_')) {
      ++at_;
    }
    const std::string_view read = text_.substr(begin, at_ - begin);
    if (read.empty()) fail(begin, "a name", found());
    if (json_) expect('"');
    return read;
  }

  [[nodiscard]] char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() noexcept {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || (text_[at_] >= '\t' && text_[at_] <= '\r'))) {
      ++at_;
    }
  }
  void expect(char mark) {
    if (peek() != mark || at_ == text_.size()) fail(at_, "'" + std::string(1, mark) + "'", found());
    ++at_;
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
  bool json_ = false;
};

inline std::string state_text(const loader_state& state, std::string_view open,
                              std::string_view quote, std::string_view is, std::string_view next,
                              std::string_view close) {
  std::string text{open};
  const auto add = [&](std::string_view name, const std::string& value) {
    if (text.size() != open.size()) text += next;
    ((text += quote) += name) += quote;
    (text += is) += value;
  };
  add("penstock_state", std::to_string(state.version));
  for (const state_member& member : state_members) {
    add(member.name, std::to_string(state.*member.place));
  }
  const std::string last{state.last < 3 ? partial_batch_names[state.last] : "unknown"};
  add("last", std::string{quote} + last + std::string{quote});
  return text += close;
}

}  // namespace detail

/// One line for a log or a file: "penstock_state=1 epoch=3 batch=17 ... last=keep".
[[nodiscard]] inline std::string to_text(const loader_state& state) {
  return detail::state_text(state, "", "", "=", " ", "");
}

/// The same as a JSON object: {"penstock_state": 1, "epoch": 3, "batch": 17, ... "last": "keep"}. Its
/// numbers take 64 bits, which not every reader of JSON keeps.
[[nodiscard]] inline std::string to_json(const loader_state& state) {
  return detail::state_text(state, "{", "\"", ": ", ", ", "}");
}

/// Writes `to_text(state)`.
inline std::ostream& operator<<(std::ostream& out, const loader_state& state) {
  return out << to_text(state);
}

/// Reads what `to_text` or `to_json` wrote, the keys in any order. Throws `state_error`.
[[nodiscard]] inline loader_state read_state(std::string_view text) {
  return detail::state_reader{text}.read();
}

/// Throws `state_mismatch` unless a loader whose own state is `own` can go on from `state`; the message
/// names every difference, as "batch_size: 64 in the state, 32 here".
inline void require_same_order(const loader_state& state, const loader_state& own) {
  std::string differences;
  const auto differ = [&](std::string_view name, const std::string& then, const std::string& now) {
    ((differences += differences.empty() ? "" : "; ") += name) += ": ";
    differences += then + " in the state, " + now + " here";
  };
  if (state.version != own.version) {
    differ("version", std::to_string(state.version), std::to_string(own.version));
  }
  for (const detail::state_member& member : detail::state_members) {
    if (member.name == "epoch" || member.name == "batch") continue;
    if (state.*member.place == own.*member.place) continue;
    differ(member.name == "order" ? "the sampler's order (kind, seed or options) as a fingerprint"
                                  : member.name,
           std::to_string(state.*member.place), std::to_string(own.*member.place));
  }
  if (state.last != own.last) {
    const auto name = [](std::uint32_t last) {
      return last < 3 ? std::string{detail::partial_batch_names[last]} : std::to_string(last);
    };
    differ("last", name(state.last), name(own.last));
  }
  if (!differences.empty())
    throw state_mismatch("resume: this loader gives other batches than the state's: " +
                         differences);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
