// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include <penstock_ext/ranks/detail/launcher_variables.hpp>
#include <penstock_ext/ranks/launcher.hpp>
#include <penstock_ext/ranks/world_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws `world_error` where only a part of a launcher's variables is set.
inline void refuse_half(const launcher_values& found) {
  if (!found.is_half()) return;
  std::string problem =
      "world: " + std::string{found.names->name} + "'s variables are half there: ";
  problem += found.text_of(its_rank) + ", " + found.text_of(its_size);
  if (found.has(its_local_rank)) problem += ", " + found.text_of(its_local_rank);
  problem += found.names->which == launcher::slurm
                 ? ": start the program by srun, unset them for one process, or name the launcher "
                   "that did start it: world::from_environment(launcher::...)"
                 : ": set both, or unset them for one process";
  throw world_error(problem);
}

/// Takes the local numbers of another launcher's set for the same world where `of` has none.
/// Throws `world_error` where both have one, and they differ.
inline void complete(launcher_values& of, const launcher_values& other) {
  const bool size_is_right = of.has(its_local_size) || other.names->which != launcher::slurm;
  for (const world_number number : {its_local_rank, its_local_size}) {
    if (!of.has(number)) of.numbers[number] = other.numbers[number];
    // Slurm knows how many a node may have, which is not how many it has.
    if (number == its_local_size && other.names->which == launcher::slurm) continue;
    if (other.has(number) && of.numbers[number] != other.numbers[number]) {
      throw world_error("world: " + of.text_of(number) + " and " + other.text_of(number) +
                        " contradict each other: unset the one that is wrong");
    }
  }
  if (size_is_right && of.has(its_local_rank) && of.has(its_local_size) &&
      *of.numbers[its_local_rank] >= *of.numbers[its_local_size]) {
    const launcher_values& by = other.has(its_local_rank) ? other : of;
    throw world_error("world: " + by.text_of(its_local_rank) + " and " +
                      (&by == &of ? other : of).text_of(its_local_size) +
                      " contradict each other: unset the one that is wrong");
  }
}

/// The numbers of the launcher that started this process, of `only` where it is named; nothing
/// without any. Throws `world_error`.
template <class Environment>
[[nodiscard]] std::optional<launcher_values> choose_launcher(std::optional<launcher> only,
                                                             const Environment& read) {
  if (only == launcher::none) return std::nullopt;
  // torchrun's own children: whatever started torchrun has left the rest.
  if (!only && read("TORCHELASTIC_RUN_ID")) only = launcher::torchrun;
  std::optional<launcher_values> chosen;
  for (const launcher_names& names : launchers) {
    if (only && names.which != *only) continue;
    const launcher_values found = read_launcher(names, read);
    // A job that mpirun or mpiexec was started in: its own numbers are those of a batch script, or
    // of a daemon on each node.
    const bool is_around = chosen && names.which == launcher::slurm &&
                           chosen->names->which != launcher::torchrun &&
                           !(found.is_whole() && chosen->same_world(found));
    if (is_around) continue;
    refuse_half(found);
    if (!found.is_whole()) continue;
    require_world(found);
    if (!chosen) {
      chosen = found;
    } else if (chosen->same_world(found)) {
      complete(*chosen, found);
    } else {
      throw world_error("world: " + chosen->text() + " and " + found.text() +
                        " contradict each other: unset the variables of the one that did not "
                        "start this process, or name the one that did: "
                        "world::from_environment(launcher::...)");
    }
  }
  if (only && !chosen) {
    for (const launcher_names& names : launchers) {
      if (names.which != *only) continue;
      throw world_error("world: " + std::string{names.name} +
                        " is to have started this process, but there is "
                        "no " +
                        names.variables[its_rank] + " and no " + names.variables[its_size] +
                        ": start the program by it");
    }
  }
  return chosen;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
