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
#include <type_traits>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a loader cannot continue from a state, because its batches would differ. The message
/// lists all differences.
class [[gnu::visibility("default")]] state_mismatch : public error {
 public:
  using error::error;
};

struct loader_state;

namespace detail {
inline void require_same_order(const loader_state& state, const loader_state& own);
}  // namespace detail

/// The position of a training loop, which is its next batch, and all values that the batch order
/// depends on. Can be stored in a checkpoint as 64 bytes or as text (`to_text`).
///
///     save(feed.state());                                         // after any batch
///     for (auto& batch : feed.resume(load(), last_epoch)) ...     // continues with the next batch
///
/// After an epoch's last batch, for example during validation, `batch` is the number of batches in
/// the epoch. {e, batches} is the end of epoch e, and {e + 1, 0} the start of the next epoch.
/// Resuming from either position yields the same batches. Resuming from there up to epoch e + 1
/// yields no batches.
///
/// A state does not depend on workers, prefetch, depth and device, which have no effect on batches.
/// With a sharded sampler, a state counts global batches and is the same on all ranks, so the loop
/// may continue with a different world size. If batches vary in size (`by_tokens`), a state counts
/// the batches of all ranks. A state does not contain data, so the caller must provide the same
/// files.
struct loader_state {
  /// Version of this layout.
  std::uint32_t version = 1;
  /// Value of `loader_options::last_batch`.
  std::uint32_t last = 0;
  /// Epoch of the next batch.
  std::uint64_t epoch = 0;
  /// Index of the next batch in its epoch.
  std::uint64_t batch = 0;
  /// Dataset size.
  std::uint64_t dataset = 0;
  /// Number of samples that the sampler draws in an epoch over all ranks. For `by_tokens`, the
  /// number of positions.
  std::uint64_t samples = 0;
  /// Batch size over all ranks.
  std::uint64_t batch_size = 0;
  /// Value of `loader_options::seed`.
  std::uint64_t seed = 0;
  /// Fingerprint of the sampler's order.
  std::uint64_t order = 0;

  friend bool operator==(const loader_state&, const loader_state&) = default;

  /// Throws `state_mismatch` unless a loader with the state `own` can continue from `state`. The
  /// message lists all differences, for example as "batch_size: 64 in the state, 32 here".
  friend void require_same_order(const loader_state& state, const loader_state& own) {
    detail::require_same_order(state, own);
  }

  /// Returns `state` with the order of `own`, for a loader with a different sampler. The caller
  /// accepts that later batches differ, for example the batches of a `mixture` that is `continued`:
  /// `loader.resume(with_order_of(state, loader.state_at({})), last_epoch)`. Throws
  /// `state_mismatch` if anything other than the order differs.
  [[nodiscard]] friend loader_state with_order_of(loader_state state, const loader_state& own) {
    state.order = own.order;
    detail::require_same_order(state, own);
    return state;
  }
};

static_assert(std::is_trivially_copyable_v<loader_state> && sizeof(loader_state) == 64,
              "a checkpoint may hold it as plain bytes");

namespace detail {

/// A member of a state, and its name in texts and messages.
struct state_member {
  // A named type, because nvcc would print an unnamed one in parentheses.
  using place_type = std::uint64_t loader_state::*;
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

inline constexpr std::array<std::string_view, 3> last_batch_names{"keep", "drop", "pad"};

inline void require_same_order(const loader_state& state, const loader_state& own) {
  std::string differences;
  const auto differ = [&](std::string_view name, str_cat_arg then, str_cat_arg now) {
    differences += str_cat(
        {differences.empty() ? "" : "; ", name, ": ", then, " in the state, ", now, " here"});
  };
  if (state.version != own.version) differ("version", state.version, own.version);
  for (const state_member& member : state_members) {
    if (member.name == "epoch" || member.name == "batch") continue;
    if (state.*member.place == own.*member.place) continue;
    differ(member.name == "order"
               ? "the order (the sampler's kind, seed or options, the lists of the "
                 "dataset's adaptors) as a fingerprint"
               : member.name,
           state.*member.place, own.*member.place);
  }
  if (state.last != own.last) {
    const auto name = [](std::uint32_t last) {
      return last < 3 ? str_cat_arg{last_batch_names[last]} : str_cat_arg{last};
    };
    differ("last", name(state.last), name(own.last));
  }
  if (!differences.empty())
    throw state_mismatch(
        str_cat({"resume: this loader gives different batches than the loader of the state: ",
                 differences}));
}

/// Parses the text of a state: "key=value" pairs, separated by white space. Single-use.
class state_reader {
 public:
  explicit state_reader(std::string_view text) noexcept : text_(text) {}

  loader_state read() {
    loader_state state;
    state.version = 0;
    std::array<bool, state_members.size() + 2> known{};
    skip_space();
    while (at_ != text_.size()) {
      const std::size_t begin = at_;
      const std::string_view key = word();
      skip_space();
      if (at_ == text_.size() || text_[at_] != '=') fail(at_, "'='", found());
      ++at_;
      skip_space();
      const std::size_t which = value_of(key, begin, state);
      if (known[which]) fail(begin, "every key once", str_cat({"'", key, "' again"}));
      known[which] = true;
      const std::size_t end = at_;
      skip_space();
      if (at_ == end && at_ != text_.size()) fail(at_, "a space", found());
    }
    for (std::size_t which = 0; which < known.size(); ++which) {
      if (!known[which]) fail(at_, str_cat({"the key '", name_of(which), "'"}), "none");
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

  // Parses the value of `key` and returns the key index.
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
      if (version != 1) fail(value_begin, "version 1", str_cat({version}));
      state.version = 1;
      return state_members.size();
    }
    if (key == last_name) {
      const std::string_view value = word();
      const auto* const name = std::find(last_batch_names.begin(), last_batch_names.end(), value);
      if (name == last_batch_names.end()) {
        fail(value_begin, "keep, drop or pad", str_cat({"'", value, "'"}));
      }
      state.last = static_cast<std::uint32_t>(name - last_batch_names.begin());
      return state_members.size() + 1;
    }
    fail(begin, "a key of a loader_state", str_cat({"'", key, "'"}));
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

  // Parses a key or a name.
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
    return str_cat({"'", text_.substr(at_, 12), "'"});
  }
  [[noreturn]] static void fail(std::size_t offset, const std::string& expected,
                                const std::string& found) {
    throw text_error("loader_state", offset, expected, found);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail

/// Formats the state as one line for a log or file: "penstock_state=1 epoch=3 batch=17 ...
/// last=keep".
[[nodiscard]] inline std::string to_text(const loader_state& state) {
  std::string text = detail::str_cat({"penstock_state=", state.version});
  for (const detail::state_member& member : detail::state_members) {
    text += detail::str_cat({" ", member.name, "=", state.*member.place});
  }
  return text += detail::str_cat({" last=", state.last < 3 ? detail::last_batch_names[state.last]
                                                           : std::string_view{"unknown"}});
}

/// Writes `to_text(state)`.
inline std::ostream& operator<<(std::ostream& out, const loader_state& state) {
  return out << to_text(state);
}

/// Parses the text written by `to_text`, as in `from_text<loader_state>(text)`. The keys may be in
/// any order, separated by any white space. Throws `text_error` if the text is invalid.
template <std::same_as<loader_state> State>
[[nodiscard]] State from_text(std::string_view text) {
  return detail::state_reader{text}.read();
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
