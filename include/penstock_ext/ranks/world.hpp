// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>

#include <penstock_ext/ranks/detail/choose_launcher.hpp>
#include <penstock_ext/ranks/detail/launcher_variables.hpp>
#include <penstock_ext/ranks/launcher.hpp>
#include <penstock_ext/ranks/world_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What `world::from_environment` looks variables up in: called with a name, it gives the value,
/// or nothing where there is no such variable.
template <class E>
concept environment = requires(const E& read, const char* name) {
  { read(name) } -> std::convertible_to<std::optional<std::string>>;
};

/// Which process this is of how many, as the launcher that started them says it.
///
///     const ps::world w = ps::world::from_environment();
///     ps::sharded order{ps::shuffled{.seed = 1},
///                       {.rank = w.rank, .world = w.size, .global_batch = 1024}};
///
/// A plain value: copy it, or fill it in by hand. The library starts no process and opens no port.
struct world {
  /// Which of the processes this one is, from 0.
  int rank = 0;
  /// How many there are.
  int size = 1;
  /// Which of those on this machine, from 0: the number of its GPU where each rank has one. -1
  /// where no variable says it, which no device takes.
  int local_rank = 0;
  /// How many are on this machine; 0 where no variable says it. Slurm's is the most that a node
  /// may have: where the last node has fewer, it is too large there.
  int local_size = 1;
  /// Whose variables these are.
  launcher started_by = launcher::none;

  friend bool operator==(const world&, const world&) = default;

  /// The world of this process by the variables of torchrun, Open MPI, PMI or Slurm; without any of
  /// them a world of one.
  ///
  /// Where several launchers have left variables, they must agree, but for launchers inside of each
  /// other: torchrun's own (it sets TORCHELASTIC_RUN_ID too) outdo all others, and those of Open
  /// MPI and PMI outdo Slurm's, which stay in the environment of all that a job starts. `only`
  /// takes one launcher's and looks at no others. Throws `world_error` for half of a set (RANK
  /// without WORLD_SIZE), contradictions, rank >= size, and what is no number.
  ///
  /// Reads a few variables; no other thread may change the environment meanwhile.
  template <environment Environment = detail::process_environment>
  [[nodiscard]] static world from_environment(std::optional<launcher> only = std::nullopt,
                                              const Environment& read = {}) {
    const auto found = detail::choose_launcher(only, read);
    if (!found) return {};
    const auto& [number_of_rank, number_of_all, local, locals] = found->numbers;
    world here{.rank = *number_of_rank,
               .size = *number_of_all,
               .local_rank = local.value_or(*number_of_all == 1 ? 0 : -1),
               .local_size = locals.value_or(*number_of_all == 1 ? 1 : 0),
               .started_by = found->names->which};
    here.local_size = (std::min)(here.local_size, here.size);
    return here;
  }

  /// For a log: "rank 3 of 8, 1 of 4 on this machine, by torchrun".
  [[nodiscard]] std::string str() const {
    std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(size);
    if (local_rank >= 0) {
      text += ", " + std::to_string(local_rank);
      if (local_size > 0) text += " of " + std::to_string(local_size);
      text += " on this machine";
    }
    for (const detail::launcher_names& names : detail::launchers) {
      if (names.which == started_by) (text += ", by ") += names.name;
    }
    return text;
  }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
