// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include <penstock/load/options.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options that change how fast a loop is and not what it computes, and the batch size: values for
/// those that were looked for, nothing for the others. See `option_search`.
struct tuned_options {
  /// `loader_options::workers`.
  std::optional<std::size_t> workers = {};
  /// `loader_options::tuning.chunk`.
  std::optional<std::size_t> chunk = {};
  /// `loader_options::prefetch`.
  std::optional<std::size_t> prefetch = {};
  /// `transfer_options::depth`.
  std::optional<std::size_t> depth = {};
  /// `loader_options::pinned`, 0 or 1.
  std::optional<std::size_t> pinned = {};
  /// `loader_options::batch_size`.
  std::optional<std::size_t> batch_size = {};

  /// Sets those options that have a value here.
  void apply_to(loader_options& options) const noexcept {
    options.workers = workers.value_or(options.workers);
    options.tuning.chunk = chunk.value_or(options.tuning.chunk);
    options.prefetch = prefetch.value_or(options.prefetch);
    options.pinned = pinned.value_or(options.pinned ? 1U : 0U) != 0;
    options.batch_size = batch_size.value_or(options.batch_size);
  }
  /// Sets `depth`, if it has a value here.
  void apply_to(transfer_options& options) const noexcept {
    options.depth = depth.value_or(options.depth);
  }

  friend bool operator==(const tuned_options&, const tuned_options&) = default;
};

namespace detail {

/// By a name of its own: nvcc writes a declaration of it that g++ warns of.
using tuned_place = std::optional<std::size_t> tuned_options::*;

struct tuned_member {
  std::string_view name;
  tuned_place place;
};

/// The options by name, in the order of their texts.
inline constexpr std::array<tuned_member, 6> tuned_members{
    {{"batch_size", &tuned_options::batch_size},
     {"workers", &tuned_options::workers},
     {"prefetch", &tuned_options::prefetch},
     {"pinned", &tuned_options::pinned},
     {"chunk", &tuned_options::chunk},
     {"depth", &tuned_options::depth}}};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
