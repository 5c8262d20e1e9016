// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The launcher that started the processes of a world, recognised by its environment variables.
enum class launcher {
  none,      ///< none: a single process
  torchrun,  ///< RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE: torchrun, Ray Train, scripts
  open_mpi,  ///< OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: Open MPI's mpirun
  pmi,       ///< PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS: MPICH's and Intel's mpiexec
  slurm,     ///< SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NTASKS_PER_NODE: srun
};

/// The environment does not define this process's rank and world size: a launcher's variables are
/// incomplete, two launchers contradict each other, or a value is invalid. The message names the
/// variables, their values, and a remedy.
class [[gnu::visibility("default")]] world_error : public error {
 public:
  using error::error;
};

namespace detail {

/// The four numbers of a world, in the order of the variables below.
enum world_number : std::size_t { its_rank, its_size, its_local_rank, its_local_size };

/// A launcher with the names of its variables.
struct launcher_names {
  launcher which;
  std::string_view name;
  std::array<const char*, 4> variables;
};

inline constexpr std::array<launcher_names, 4> launchers{{
    {launcher::torchrun, "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
    {launcher::open_mpi,
     "Open MPI",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {launcher::pmi, "PMI", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
    {launcher::slurm,
     "Slurm",
     {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}},
}};

/// Reads the variables of the process.
struct process_environment {
  [[nodiscard]] std::optional<std::string> operator()(const char* name) const {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  }
};

/// The values of one launcher's variables; empty if not set.
struct launcher_values {
  const launcher_names* names = nullptr;
  std::array<std::optional<int>, 4> numbers{};

  [[nodiscard]] bool has(world_number number) const noexcept { return numbers[number].has_value(); }
  /// Whether they define a world.
  [[nodiscard]] bool is_whole() const noexcept { return has(its_rank) && has(its_size); }
  /// Whether they indicate a world, but not the rank or its size.
  [[nodiscard]] bool is_half() const noexcept {
    return !is_whole() && (has(its_rank) || has(its_size) || has(its_local_rank));
  }
  [[nodiscard]] bool same_world(const launcher_values& other) const noexcept {
    return numbers[its_rank] == other.numbers[its_rank] &&
           numbers[its_size] == other.numbers[its_size];
  }
  /// A variable for messages: "RANK=3", or "no RANK".
  [[nodiscard]] std::string text_of(world_number number) const {
    const std::string name = names->variables[number];
    return has(number) ? name + "=" + std::to_string(*numbers[number]) : "no " + name;
  }
  [[nodiscard]] std::string text() const {
    return std::string{names->name} + "'s " + text_of(its_rank) + " " + text_of(its_size);
  }
};

/// The value of a variable. Throws `world_error`.
[[nodiscard]] inline int rank_number(const char* variable, std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || value < 0) {
    throw world_error("world: " + std::string{variable} + "='" + std::string{text.substr(0, 40)} +
                      "' is no number from 0 to 2147483647: set it as the launcher does, or unset "
                      "all of the launcher's variables for one process");
  }
  return value;
}

/// Reads one launcher's variables. Throws `world_error` if one is not a number.
template <class Environment>
[[nodiscard]] launcher_values read_launcher(const launcher_names& names, const Environment& read) {
  launcher_values found{&names};
  for (std::size_t i = 0; i < found.numbers.size(); ++i) {
    const std::optional<std::string> text = read(names.variables[i]);
    if (text) found.numbers[i] = rank_number(names.variables[i], *text);
  }
  return found;
}

/// Throws `world_error` unless a complete set of values is consistent.
inline void require_world(const launcher_values& found) {
  const auto require = [&](bool holds, world_number low, world_number high, const char* rule) {
    if (holds) return;
    throw world_error("world: " + found.text_of(low) + " with " + found.text_of(high) + ": " +
                      rule +
                      "; start the program by the launcher alone, and leave its variables as they "
                      "are");
  };
  const auto& [rank, size, local_rank, local_size] = found.numbers;
  require(*size >= 1, its_rank, its_size, "a world has at least one rank");
  require(*rank < *size, its_rank, its_size, "a rank is below the size of its world");
  require(local_size.value_or(1) >= 1, its_local_size, its_size,
          "a machine has at least one of the ranks");
  require(local_rank.value_or(0) < *size, its_local_rank, its_size,
          "a machine has no more ranks than the world");
  if (found.names->which == launcher::slurm) return;  // at best the maximum per node
  require(local_size.value_or(1) <= *size, its_local_size, its_size,
          "a machine has no more ranks than the world");
  require(!local_rank || *local_rank < local_size.value_or(*size), its_local_rank, its_local_size,
          "a local rank is below the ranks of its machine");
}

/// Throws `world_error` if a launcher's variables are incomplete.
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

/// Adds missing local numbers from another launcher's variables for the same world. Throws
/// `world_error` if both have one and they differ.
inline void complete(launcher_values& of, const launcher_values& other) {
  const bool size_is_right = of.has(its_local_size) || other.names->which != launcher::slurm;
  for (const world_number number : {its_local_rank, its_local_size}) {
    if (!of.has(number)) of.numbers[number] = other.numbers[number];
    // Slurm gives the maximum per node, not the actual number.
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

/// The values of the launcher that started this process, or of `only`, if given; `std::nullopt`
/// without a launcher. Throws `world_error`.
template <class Environment>
[[nodiscard]] std::optional<launcher_values> choose_launcher(std::optional<launcher> only,
                                                             const Environment& read) {
  if (only == launcher::none) return std::nullopt;
  // A child of torchrun: other variables come from the launcher of torchrun.
  if (!only && read("TORCHELASTIC_RUN_ID")) only = launcher::torchrun;
  std::optional<launcher_values> chosen;
  for (const launcher_names& names : launchers) {
    if (only && names.which != *only) continue;
    const launcher_values found = read_launcher(names, read);
    // mpirun or mpiexec inside a Slurm job: Slurm's numbers are those of a batch script, or of one
    // daemon per node.
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
    const launcher_names& names = *std::ranges::find(launchers, *only, &launcher_names::which);
    throw world_error("world: " + std::string{names.name} +
                      " is to have started this process, but there is no " +
                      names.variables[its_rank] + " and no " + names.variables[its_size] +
                      ": start the program by it");
  }
  return chosen;
}

}  // namespace detail

/// A source of environment variables for `world::from_environment`: called with a name, returns the
/// value, or `std::nullopt` if there is no such variable.
template <class E>
concept environment = requires(const E& read, const char* name) {
  { read(name) } -> std::convertible_to<std::optional<std::string>>;
};

/// The rank of this process and the size of its world, as given by the launcher.
///
///     const ps::world w = ps::world::from_environment();
///     ps::sharded order{ps::shuffled{.seed = 1},
///                       {.rank = w.rank, .world = w.size, .global_batch = 1024}};
///
/// A plain value: copy it, or fill it in by hand. The library starts no process and opens no port.
struct world {
  /// The rank of this process, from 0.
  int rank = 0;
  /// The number of processes.
  int size = 1;
  /// The rank on this machine, from 0: the number of its GPU if each rank has one. -1 if unknown,
  /// which no device accepts.
  int local_rank = 0;
  /// The number of processes on this machine; 0 if unknown. Slurm's value is the maximum per node,
  /// too large for a last node with fewer.
  int local_size = 1;
  /// The launcher whose variables were used.
  launcher started_by = launcher::none;

  friend bool operator==(const world&, const world&) = default;

  /// The world of this process from the variables of torchrun, Open MPI, PMI or Slurm; a world of
  /// one without any of them.
  ///
  /// Variables of several launchers must agree, except for nested launchers: torchrun (recognised
  /// by TORCHELASTIC_RUN_ID) takes precedence over all others, and Open MPI and PMI over Slurm,
  /// whose variables are inherited by everything that a job starts. `only` restricts the search to
  /// one launcher. Throws `world_error` for an incomplete set (RANK without WORLD_SIZE),
  /// contradictions, rank >= size, and values that are not numbers.
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
