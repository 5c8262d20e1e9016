// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <penstock_ext/ranks/launcher.hpp>
#include <penstock_ext/ranks/world_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The four numbers of a world, in the order in which a launcher's variables stand below.
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

/// Looks variables up where the process has them.
struct process_environment {
  [[nodiscard]] std::optional<std::string> operator()(const char* name) const {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  }
};

/// What one launcher's variables say: nothing where they are not set.
struct launcher_values {
  const launcher_names* names = nullptr;
  std::array<std::optional<int>, 4> numbers{};

  [[nodiscard]] bool has(world_number number) const noexcept { return numbers[number].has_value(); }
  /// Whether they name a world.
  [[nodiscard]] bool is_whole() const noexcept { return has(its_rank) && has(its_size); }
  /// Whether a process is one of a world's and they do not say which, or of how many.
  [[nodiscard]] bool is_half() const noexcept {
    return !is_whole() && (has(its_rank) || has(its_size) || has(its_local_rank));
  }
  [[nodiscard]] bool same_world(const launcher_values& other) const noexcept {
    return numbers[its_rank] == other.numbers[its_rank] &&
           numbers[its_size] == other.numbers[its_size];
  }
  /// A variable as it would be set by hand, "RANK=3", or "no RANK".
  [[nodiscard]] std::string text_of(world_number number) const {
    const std::string name = names->variables[number];
    return has(number) ? name + "=" + std::to_string(*numbers[number]) : "no " + name;
  }
  [[nodiscard]] std::string text() const {
    return std::string{names->name} + "'s " + text_of(its_rank) + " " + text_of(its_size);
  }
};

/// The number that a variable holds. Throws `world_error`.
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

/// Reads one launcher's variables. Throws `world_error` for what is no number.
template <class Environment>
[[nodiscard]] launcher_values read_launcher(const launcher_names& names, const Environment& read) {
  launcher_values found{&names};
  for (std::size_t i = 0; i < found.numbers.size(); ++i) {
    const std::optional<std::string> text = read(names.variables[i]);
    if (text) found.numbers[i] = rank_number(names.variables[i], *text);
  }
  return found;
}

/// Throws `world_error` unless a whole set of values is a world's.
inline void require_world(const launcher_values& found) {
  const auto refuse = [&](world_number low, world_number high, const char* rule) {
    throw world_error("world: " + found.text_of(low) + " with " + found.text_of(high) + ": " +
                      rule +
                      "; start the program by the launcher alone, and leave its variables as they "
                      "are");
  };
  const auto& [rank, size, local_rank, local_size] = found.numbers;
  if (*size < 1) refuse(its_rank, its_size, "a world has at least one rank");
  if (*rank >= *size) refuse(its_rank, its_size, "a rank is below the size of its world");
  if (local_size && *local_size < 1) {
    refuse(its_local_size, its_size, "a machine has at least one of the ranks");
  }
  if (local_rank && *local_rank >= *size) {
    refuse(its_local_rank, its_size, "a machine has no more ranks than the world");
  }
  if (found.names->which == launcher::slurm) return;  // the most a node may have, if that
  if (local_size && *local_size > *size) {
    refuse(its_local_size, its_size, "a machine has no more ranks than the world");
  }
  if (local_rank && local_size && *local_rank >= *local_size) {
    refuse(its_local_rank, its_local_size, "a local rank is below the ranks of its machine");
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
