// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A loader can't continue from this state, because its batches would differ. The message names
/// every difference.
class [[gnu::visibility("default")]] state_mismatch : public error {
 public:
  using error::error;
};

struct loader_state;

namespace detail {
inline void require_same_order(const loader_state& state, const loader_state& own);
}  // namespace detail

/// The position of a training loop, and everything its batch order depends on: the next batch to
/// deliver, and the values that must be equal for it to be the same batch. 64 bytes to keep in a
/// checkpoint, as they are or as text (`to_text`).
///
///     save(feed.state());                                         // after any batch
///     for (auto& batch : feed.resume(load(), last_epoch)) ...     // the very next one, at once
///
/// After an epoch's last batch, for example during validation, `batch` is the number of its
/// batches: {e, batches} is the end of epoch e, and {e + 1, 0} the start of the next one. A resume
/// from either gives the same batches; up to epoch e + 1 it gives none.
///
/// It is independent of workers, prefetch, depth and device, which change no batch. With a sharded
/// sampler it counts global batches and is equal on every rank, so that the loop may continue with
/// another world size; where the batches have each its own number of samples (`by_tokens`), it
/// counts the batches of all ranks. It does not identify the data: the caller has to provide the
/// same files.
struct loader_state {
  /// The version of this layout.
  std::uint32_t version = 1;
  /// `loader_options::last_batch`.
  std::uint32_t last = 0;
  /// The epoch of the next batch.
  std::uint64_t epoch = 0;
  /// The next batch within its epoch.
  std::uint64_t batch = 0;
  /// The size of the dataset.
  std::uint64_t dataset = 0;
  /// The number of samples that the sampler draws in an epoch, over all ranks; `by_tokens`: places.
  std::uint64_t samples = 0;
  /// The batch size over all ranks.
  std::uint64_t batch_size = 0;
  /// `loader_options::seed`.
  std::uint64_t seed = 0;
  /// A hash of the sampler's order.
  std::uint64_t order = 0;

  friend bool operator==(const loader_state&, const loader_state&) = default;

  /// Throws `state_mismatch` unless a loader whose own state is `own` can continue from `state`.
  /// The message names every difference, as "batch_size: 64 in the state, 32 here".
  friend void require_same_order(const loader_state& state, const loader_state& own) {
    detail::require_same_order(state, own);
  }

  /// `state` for a loader with another order, whose own state is `own`: the caller says that the
  /// batches from there on may be other ones, as those of a `mixture` that is `continued`:
  /// `loader.resume(with_order_of(state, loader.state_at({})), last_epoch)`. Throws
  /// `state_mismatch` where anything but the order differs.
  [[nodiscard]] friend loader_state with_order_of(loader_state state, const loader_state& own) {
    state.order = own.order;
    detail::require_same_order(state, own);
    return state;
  }
};

static_assert(std::is_trivially_copyable_v<loader_state> && sizeof(loader_state) == 64,
              "a checkpoint may hold it as plain bytes");

namespace detail {

/// A member of a state, with its name in texts and messages.
struct state_member {
  using place_type = std::uint64_t loader_state::*;  // named: else nvcc prints it in parentheses
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

inline void require_same_order(const loader_state& state, const loader_state& own) {
  std::string differences;
  const auto differ = [&](std::string_view name, const std::string& then, const std::string& now) {
    ((differences += differences.empty() ? "" : "; ") += name) += ": ";
    differences += then + " in the state, " + now + " here";
  };
  if (state.version != own.version) {
    differ("version", std::to_string(state.version), std::to_string(own.version));
  }
  for (const state_member& member : state_members) {
    if (member.name == "epoch" || member.name == "batch") continue;
    if (state.*member.place == own.*member.place) continue;
    differ(member.name == "order"
               ? "the order (the sampler's kind, seed or options, the lists of the "
                 "dataset's adaptors) as a fingerprint"
               : member.name,
           std::to_string(state.*member.place), std::to_string(own.*member.place));
  }
  if (state.last != own.last) {
    const auto name = [](std::uint32_t last) {
      return last < 3 ? std::string{partial_batch_names[last]} : std::to_string(last);
    };
    differ("last", name(state.last), name(own.last));
  }
  if (!differences.empty())
    throw state_mismatch("resume: this loader gives other batches than the state's: " +
                         differences);
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
