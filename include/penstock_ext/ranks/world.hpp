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

/// Launchers of data-parallel processes, recognized by their environment variables.
enum class launcher {
  none,      ///< no launcher, a single process
  torchrun,  ///< RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE: torchrun, DeepSpeed, Ray, scripts
  horovod,   ///< HOROVOD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: horovodrun
  open_mpi,  ///< OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: Open MPI's mpirun
  mvapich,   ///< MV2_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: MVAPICH's mpirun_rsh
  jsm,       ///< JSM_NAMESPACE_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: jsrun
  flux,      ///< FLUX_TASK_RANK, FLUX_JOB_SIZE, FLUX_TASK_LOCAL_ID: flux run
  pals,      ///< PALS_RANKID, PMI_SIZE, PALS_LOCAL_RANKID, PMI_LOCAL_SIZE: Cray PALS's mpiexec
  pmi,       ///< PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS: MPICH's and Intel's mpiexec
  slurm,     ///< SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NTASKS_PER_NODE: srun
};

/// Thrown if environment variables do not define the rank and world size of this process. Reasons
/// are incomplete variables, a launcher that provides no size, contradictory launchers, and invalid
/// values. The message contains the variables, their values, and a remedy.
class [[gnu::visibility("default")]] world_error : public error {
 public:
  using error::error;
};

namespace detail {

/// Indices of the four numbers of a world. The variables of each launcher have the same order.
enum world_number : std::size_t { its_rank, its_size, its_local_rank, its_local_size };

/// A launcher and its variable names.
struct launcher_names {
  launcher which;
  std::string_view name;
  std::array<const char*, 4> variables;
};

/// Flux and PALS also set PMI variables, which provide the sizes missing from their own variables.
inline constexpr std::array<launcher_names, 9> launchers{{
    {launcher::torchrun, "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
    {launcher::horovod,
     "Horovod",
     {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"}},
    {launcher::open_mpi,
     "Open MPI",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {launcher::mvapich,
     "MVAPICH",
     {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
      "MV2_COMM_WORLD_LOCAL_SIZE"}},
    {launcher::jsm,
     "JSM",
     {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
      "JSM_NAMESPACE_LOCAL_SIZE"}},
    {launcher::flux,
     "Flux",
     {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "PMI_LOCAL_SIZE"}},
    {launcher::pals,
     "Cray PALS",
     {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PMI_LOCAL_SIZE"}},
    {launcher::pmi, "PMI", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
    {launcher::slurm,
     "Slurm",
     {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}},
}};

/// A variable that only one launcher sets, but that does not contain the world size.
struct launcher_hint {
  const char* variable;
  std::string_view launcher;
};

inline constexpr std::array<launcher_hint, 13> launcher_hints{{
    {"PMIX_RANK", "PMIx"},
    {"PMIX_NAMESPACE", "PMIx"},
    {"PALS_NODEID", "Cray PALS"},
    {"ALPS_APP_PE", "Cray ALPS"},
    {"PMI_ID", "PMI"},
    {"PMI_LOCAL_RANK", "PMI"},
    {"MVP_COMM_WORLD_RANK", "MVAPICH"},
    {"MVP_COMM_WORLD_LOCAL_RANK", "MVAPICH"},
    {"MPIRUN_RANK", "mpirun_rsh"},
    {"MPI_RANKID", "Platform MPI"},
    {"MP_CHILD", "IBM's Parallel Environment"},
    {"AWS_BATCH_JOB_NODE_INDEX", "a multi-node job of AWS Batch"},
    {"JOB_COMPLETION_INDEX", "an indexed job of Kubernetes"},
}};

/// Reads the environment variables of this process.
struct process_environment {
  [[nodiscard]] std::optional<std::string> operator()(const char* name) const {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  }
};

/// The values of a launcher's variables. The value of an unset variable is empty.
struct launcher_values {
  const launcher_names* names = nullptr;
  std::array<std::optional<int>, 4> numbers{};

  [[nodiscard]] bool has(world_number number) const noexcept { return numbers[number].has_value(); }
  /// Returns true if the variables define a world.
  [[nodiscard]] bool is_whole() const noexcept { return has(its_rank) && has(its_size); }
  /// Returns true if the variables indicate a world but lack the rank or the size.
  [[nodiscard]] bool is_half() const noexcept {
    const bool has_own_size = has(its_size) && names->which != launcher::pals;
    return !is_whole() && (has(its_rank) || has_own_size || has(its_local_rank));
  }
  [[nodiscard]] bool same_world(const launcher_values& other) const noexcept {
    return numbers[its_rank] == other.numbers[its_rank] &&
           numbers[its_size] == other.numbers[its_size];
  }
  /// Returns true if all numbers that both launchers provide are equal.
  [[nodiscard]] bool agrees_with(const launcher_values& other) const noexcept {
    return std::ranges::equal(numbers, other.numbers, [](const auto& mine, const auto& its) {
      return !mine || !its || *mine == *its;
    });
  }
  /// Formats a variable for messages, for example as "RANK=3" or "no RANK".
  [[nodiscard]] std::string text_of(world_number number) const {
    const std::string name = names->variables[number];
    return has(number) ? name + "=" + std::to_string(*numbers[number]) : "no " + name;
  }
  [[nodiscard]] std::string text() const {
    return std::string{names->name} + "'s " + text_of(its_rank) + " " + text_of(its_size);
  }
};

/// Parses the value of a variable. Throws `world_error` if the value is not a nonnegative `int`.
[[nodiscard]] inline int rank_number(const char* variable, std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || value < 0) {
    throw world_error("world: " + std::string{variable} + "='" + std::string{text.substr(0, 40)} +
                      "' is not a number from 0 to 2147483647: set it as the launcher does, or "
                      "unset all variables of the launcher for a single process");
  }
  return value;
}

/// Reads a launcher's variables. Throws `world_error` if a value is not a number.
template <class Environment>
[[nodiscard]] launcher_values read_launcher(const launcher_names& names, const Environment& read) {
  launcher_values found{&names};
  for (std::size_t i = 0; i < found.numbers.size(); ++i) {
    const std::optional<std::string> text = read(names.variables[i]);
    if (text) found.numbers[i] = rank_number(names.variables[i], *text);
  }
  return found;
}

/// Throws `world_error` unless the values, which must be complete, are consistent.
inline void require_world(const launcher_values& found) {
  const auto require = [&](bool holds, world_number low, world_number high, const char* rule) {
    if (holds) return;
    throw world_error(
        "world: " + found.text_of(low) + " with " + found.text_of(high) + ": " + rule +
        "; start the program only with the launcher, and do not change its variables");
  };
  const auto& [rank, size, local_rank, local_size] = found.numbers;
  require(*size >= 1, its_rank, its_size, "a world has at least one rank");
  require(*rank < *size, its_rank, its_size, "a rank is below the size of its world");
  require(local_size.value_or(1) >= 1, its_local_size, its_size,
          "a machine has at least one of the ranks");
  require(local_rank.value_or(0) < *size, its_local_rank, its_size,
          "a machine has no more ranks than the world");
  if (found.names->which == launcher::slurm) return;  // the value is only the maximum of all nodes
  require(local_size.value_or(1) <= *size, its_local_size, its_size,
          "a machine has no more ranks than the world");
  require(!local_rank || *local_rank < local_size.value_or(*size), its_local_rank, its_local_size,
          "a local rank is below the ranks of its machine");
}

/// Throws `world_error` if a launcher's variables are incomplete.
inline void reject_half(const launcher_values& found) {
  if (!found.is_half()) return;
  std::string problem =
      "world: " + std::string{found.names->name} + "'s variables are incomplete: ";
  problem += found.text_of(its_rank) + ", " + found.text_of(its_size);
  if (found.has(its_local_rank)) problem += ", " + found.text_of(its_local_rank);
  problem += found.names->which == launcher::slurm
                 ? ": start the program with srun, unset the variables for a single process, or "
                   "name the launcher that started it: world::from_environment(launcher::...)"
                 : ": set both, or unset them for a single process";
  throw world_error(problem);
}

/// Adds missing local numbers from another launcher's variables for the same world. Throws
/// `world_error` if both launchers provide a number and the numbers differ.
inline void complete(launcher_values& of, const launcher_values& other) {
  const bool size_is_right = of.has(its_local_size) || other.names->which != launcher::slurm;
  for (const world_number number : {its_local_rank, its_local_size}) {
    if (!of.has(number)) of.numbers[number] = other.numbers[number];
    // Slurm provides the maximum of all nodes, not the actual number.
    if (number == its_local_size && other.names->which == launcher::slurm) continue;
    if (other.has(number) && of.numbers[number] != other.numbers[number]) {
      throw world_error("world: " + of.text_of(number) + " and " + other.text_of(number) +
                        " contradict each other: unset the wrong one");
    }
  }
  if (size_is_right && of.has(its_local_rank) && of.has(its_local_size) &&
      *of.numbers[its_local_rank] >= *of.numbers[its_local_size]) {
    const launcher_values& by = other.has(its_local_rank) ? other : of;
    throw world_error("world: " + by.text_of(its_local_rank) + " and " +
                      (&by == &of ? other : of).text_of(its_local_size) +
                      " contradict each other: unset the wrong one");
  }
}

[[noreturn]] inline void throw_contradiction(const std::string& one, const std::string& other) {
  throw world_error("world: " + one + " and " + other +
                    " contradict each other: unset the variables of the launcher that did not "
                    "start this process, or name the one that did: "
                    "world::from_environment(launcher::...)");
}

/// Throws `world_error` if a variable belongs to a launcher that does not provide the world size.
template <class Environment>
void reject_unknown_launcher(const Environment& read) {
  for (const auto& [variable, name] : launcher_hints) {
    const std::optional<std::string> value = read(variable);
    if (!value) continue;
    throw world_error(
        str_cat({"world: ", variable, "='", std::string_view{*value}.substr(0, 40),
                 "' is a variable of ", name,
                 ", which does not set the size of the world: set RANK and "
                 "WORLD_SIZE, and LOCAL_RANK for a device; or call "
                 "world::from_environment(launcher::none) if this process is alone"}));
  }
}

/// Throws `world_error` if the PMIx rank differs from the rank of the launcher `chosen`. In a Slurm
/// job, srun also sets PMIX_RANK, and other launchers inherit the variable.
template <class Environment>
void require_rank_of_pmix(const launcher_values& chosen, const Environment& read) {
  const std::optional<std::string> rank = read("PMIX_RANK");
  if (!rank || rank == read("SLURM_PROCID")) return;
  if (rank_number("PMIX_RANK", *rank) == chosen.numbers[its_rank]) return;
  throw_contradiction(chosen.text(), "PMIx's PMIX_RANK=" + *rank);
}

/// Returns the values of the launcher that started this process, or of the launcher `only` if
/// specified. Returns `std::nullopt` without a launcher. Throws `world_error`.
template <class Environment>
[[nodiscard]] std::optional<launcher_values> choose_launcher(std::optional<launcher> only,
                                                             const Environment& read) {
  if (only == launcher::none) return std::nullopt;
  // In a child of torchrun, the variables of other launchers belong to the launcher that started
  // torchrun.
  if (!only && read("TORCHELASTIC_RUN_ID")) only = launcher::torchrun;
  std::optional<launcher_values> chosen;
  for (const launcher_names& names : launchers) {
    if (only && names.which != *only) continue;
    const launcher_values found = read_launcher(names, read);
    // If mpirun or mpiexec runs inside a Slurm job, Slurm's variables belong to a batch script or
    // to the daemon on each node.
    const bool is_around = chosen && names.which == launcher::slurm &&
                           chosen->names->which != launcher::torchrun &&
                           !(found.is_whole() && chosen->same_world(found));
    if (is_around) continue;
    if (!chosen || !chosen->agrees_with(found)) reject_half(found);
    if (!found.is_whole()) continue;
    require_world(found);
    if (!chosen) {
      chosen = found;
    } else if (chosen->same_world(found)) {
      complete(*chosen, found);
    } else {
      throw_contradiction(chosen->text(), found.text());
    }
  }
  if (only && !chosen) {
    const launcher_names& names = *std::ranges::find(launchers, *only, &launcher_names::which);
    throw world_error("world: " + std::string{names.name} +
                      " was specified as the launcher of this process, but there is no " +
                      names.variables[its_rank] + " and no " + names.variables[its_size] +
                      ": start the program with it");
  }
  if (!chosen) reject_unknown_launcher(read);
  if (chosen && !only) require_rank_of_pmix(*chosen, read);
  return chosen;
}

}  // namespace detail

/// A source of environment variables for `world::from_environment`. Returns the value of the
/// variable with the given name, or `std::nullopt` if it is not set.
template <class E>
concept environment = requires(const E& read, const char* name) {
  { read(name) } -> std::convertible_to<std::optional<std::string>>;
};

/// The rank of this process and its world size, as set by the launcher.
///
///     const ps::world w = ps::world::from_environment();
///     ps::sharded order{ps::shuffled{.seed = 1},
///                       {.rank = w.rank, .world = w.size, .global_batch = 1024}};
///
/// A plain copyable value, whose members the program may also set itself. The library does not
/// start processes or open ports.
struct world {
  /// Rank of this process, starting at 0.
  int rank = 0;
  /// Number of processes.
  int size = 1;
  /// Rank on this machine, starting at 0. If each rank has its own GPU, this is the GPU index. -1
  /// if unknown, which no device accepts.
  int local_rank = 0;
  /// Number of processes on this machine, or 0 if unknown. Slurm provides the maximum of all nodes,
  /// which is too large for a last node with fewer processes.
  int local_size = 1;
  /// Launcher whose variables were used.
  launcher started_by = launcher::none;

  friend bool operator==(const world&, const world&) = default;

  /// Returns the world of this process from the variables of the launchers in `launcher`. Returns a
  /// world of one if no such variable is set.
  ///
  /// Variables of several launchers must agree, except for nested launchers. torchrun (recognized
  /// by TORCHELASTIC_RUN_ID) takes precedence over all others. All others take precedence over
  /// Slurm, because all processes of a job inherit its variables. `only` restricts the search to a
  /// single launcher. Throws `world_error` for incomplete variables (RANK without WORLD_SIZE), a
  /// launcher that provides no size (PMIX_RANK alone, JOB_COMPLETION_INDEX), contradictions, rank
  /// >= size, and values that are not numbers.
  ///
  /// No other thread may change environment variables during the call.
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

  /// Formats the world for a log: "rank 3 of 8, 1 of 4 on this machine, by torchrun".
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
