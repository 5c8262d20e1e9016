// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/ranks/world.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// The environment variables of a fictitious process.
struct variables {
  std::map<std::string, std::string> set;
  std::optional<std::string> operator()(const char* name) const {
    const auto found = set.find(name);
    if (found == set.end()) return std::nullopt;
    return found->second;
  }
};

ps::world world_of(const variables& environment, std::optional<ps::launcher> only = std::nullopt) {
  return ps::world::from_environment(only, environment);
}

std::string rejected_world(const variables& environment,
                           std::optional<ps::launcher> only = std::nullopt) {
  try {
    return "none: " + world_of(environment, only).str();
  } catch (const ps::world_error& error) {
    return error.what();
  }
}

const std::map<std::string, std::string> torchrun_5_of_8{
    {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};

/// Merges several environments. Later values override earlier values.
variables together(std::vector<std::map<std::string, std::string>> sets) {
  variables all;
  for (auto& set : sets) {
    for (const auto& [name, value] : set) all.set[name] = value;
  }
  return all;
}

}  // namespace

TEST_CASE("without a launcher's variables there is a world of one", "[ranks]") {
  CHECK(world_of({}) == ps::world{});
  CHECK(world_of({{{"PATH", "/bin"}, {"MASTER_ADDR", "here"}}}) == ps::world{});
  // The resource request of a job script does not describe this process.
  CHECK(world_of({{{"SLURM_NTASKS_PER_NODE", "4"}}}) == ps::world{});
  CHECK(ps::world{}.str() == "rank 0 of 1, 0 of 1 on this machine");
}

TEST_CASE("the world is read from the variables of each launcher", "[ranks][promise:honest-12]") {
  CHECK(world_of({torchrun_5_of_8}) == ps::world{5, 8, 1, 4, ps::launcher::torchrun});
  CHECK(world_of({{{"OMPI_COMM_WORLD_RANK", "2"},
                   {"OMPI_COMM_WORLD_SIZE", "6"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}}) ==
        ps::world{2, 6, 0, 2, ps::launcher::open_mpi});
  CHECK(world_of({{{"PMI_RANK", "0"},
                   {"PMI_SIZE", "2"},
                   {"MPI_LOCALRANKID", "0"},
                   {"MPI_LOCALNRANKS", "2"}}}) == ps::world{0, 2, 0, 2, ps::launcher::pmi});
  CHECK(world_of({{{"SLURM_PROCID", "7"},
                   {"SLURM_NTASKS", "8"},
                   {"SLURM_LOCALID", "3"},
                   {"SLURM_NTASKS_PER_NODE", "4"}}}) == ps::world{7, 8, 3, 4, ps::launcher::slurm});
  CHECK(world_of({torchrun_5_of_8}).str() == "rank 5 of 8, 1 of 4 on this machine, by torchrun");
}

TEST_CASE("the launchers of supercomputers are read", "[ranks][promise:honest-12]") {
  for (const auto& [prefix, by] :
       std::map<std::string, ps::launcher>{{"MV2_COMM_WORLD_", ps::launcher::mvapich},
                                           {"JSM_NAMESPACE_", ps::launcher::jsm},
                                           {"HOROVOD_", ps::launcher::horovod}}) {
    CAPTURE(prefix);
    const variables started{{{prefix + "RANK", "3"},
                             {prefix + "SIZE", "4"},
                             {prefix + "LOCAL_RANK", "1"},
                             {prefix + "LOCAL_SIZE", "2"},
                             {"PMIX_RANK", "3"}}};
    CHECK(world_of(started) == ps::world{3, 4, 1, 2, by});
    CHECK(world_of(started, by) == ps::world{3, 4, 1, 2, by});
  }
  const std::map<std::string, std::string> flux{
      {"FLUX_TASK_RANK", "3"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_TASK_LOCAL_ID", "1"}};
  CHECK(world_of({flux}) == ps::world{3, 4, 1, 0, ps::launcher::flux});
  CHECK(world_of(together({flux, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PALS_RANKID", "3"}}})) ==
        ps::world{3, 4, 1, 0, ps::launcher::flux});
  const std::map<std::string, std::string> pals{
      {"PALS_RANKID", "3"}, {"PALS_LOCAL_RANKID", "1"}, {"PALS_NODEID", "1"}};
  const std::map<std::string, std::string> pmi_of_pals{
      {"PMI_SIZE", "4"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}};
  CHECK(world_of(together({pals, pmi_of_pals})) == ps::world{3, 4, 1, 2, ps::launcher::pals});
  CHECK(world_of(together({pals, pmi_of_pals, {{"PMI_RANK", "3"}}})) ==
        ps::world{3, 4, 1, 2, ps::launcher::pals});
  CHECK(world_of(together({pals, {{"RANK", "3"}, {"WORLD_SIZE", "4"}}})) ==
        ps::world{3, 4, -1, 0, ps::launcher::torchrun});
  // Variables of DeepSpeed's launcher.
  CHECK(world_of(together({torchrun_5_of_8, {{"CROSS_RANK", "1"}, {"LOCAL_SIZE", "4"}}})).rank ==
        5);
}

TEST_CASE("a launcher without a world size is rejected with its variable",
          "[ranks][promise:honest-12]") {
  CHECK(rejected_world({{{"JOB_COMPLETION_INDEX", "2"}}}) ==
        "world: JOB_COMPLETION_INDEX='2' is a variable of an indexed job of Kubernetes, which does "
        "not set the size of the world: set RANK and WORLD_SIZE, and LOCAL_RANK for a device; or "
        "call world::from_environment(launcher::none) if this process is alone");
  for (const char* const variable :
       {"PMIX_RANK", "PMIX_NAMESPACE", "PALS_NODEID", "ALPS_APP_PE", "PMI_ID", "PMI_LOCAL_RANK",
        "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_LOCAL_RANK", "MPIRUN_RANK", "MPI_RANKID", "MP_CHILD",
        "AWS_BATCH_JOB_NODE_INDEX", "JOB_COMPLETION_INDEX"}) {
    CAPTURE(variable);
    const std::map<std::string, std::string> hint{{variable, "1"}};
    CHECK(rejected_world({hint}).starts_with(std::string{"world: "} + variable + "='1' is a "));
    CHECK(world_of({hint}, ps::launcher::none) == ps::world{});
    CHECK(world_of(together({hint, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}})).rank == 1);
    CHECK(world_of(together({hint, torchrun_5_of_8, {{"TORCHELASTIC_RUN_ID", "x"}}})).rank == 5);
  }
  CHECK(rejected_world({{{"PALS_RANKID", "1"}, {"PALS_LOCAL_RANKID", "1"}}}) ==
        "world: Cray PALS's variables are incomplete: PALS_RANKID=1, no PMI_SIZE, "
        "PALS_LOCAL_RANKID=1: set both, or unset them for a single process");
  for (const char* const variable :
       {"MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_SIZE", "HOROVOD_LOCAL_RANK", "FLUX_TASK_RANK"}) {
    CAPTURE(variable);
    CHECK(rejected_world({{{variable, "1"}}}).find(" variables are incomplete: ") !=
          std::string::npos);
  }
}

TEST_CASE("local ranks that no launcher reports are missing", "[ranks]") {
  const auto started = world_of({{{"RANK", "1"}, {"WORLD_SIZE", "2"}}});
  CHECK(started == ps::world{1, 2, -1, 0, ps::launcher::torchrun});
  CHECK(started.str() == "rank 1 of 2, by torchrun");
  CHECK(world_of({{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}}) ==
        ps::world{0, 1, 0, 1, ps::launcher::pmi});
  // srun --ntasks=2 --ntasks-per-node=4 specifies a maximum and not the actual number.
  CHECK(world_of({{{"SLURM_PROCID", "1"},
                   {"SLURM_NTASKS", "2"},
                   {"SLURM_LOCALID", "1"},
                   {"SLURM_NTASKS_PER_NODE", "4"}}}) == ps::world{1, 2, 1, 2, ps::launcher::slurm});
}

TEST_CASE("consistent launchers complement each other", "[ranks][promise:honest-12]") {
  const std::map<std::string, std::string> slurm{
      {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}};
  CHECK(world_of(together({torchrun_5_of_8, slurm})).local_size == 4);
  // srun --mpi=pmi2
  CHECK(world_of(together({{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}, slurm})) ==
        ps::world{5, 8, 1, 0, ps::launcher::pmi});
  // A script started by mpirun that exports RANK=$OMPI_COMM_WORLD_RANK and so on.
  CHECK(world_of(together({{{"RANK", "5"}, {"WORLD_SIZE", "8"}},
                           {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}}))
            .local_rank == 1);
}

TEST_CASE("a local rank of one launcher that another one's machine has no room for is rejected",
          "[ranks]") {
  const std::map<std::string, std::string> small_machine{
      {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "2"}};
  CHECK_THROWS_AS(world_of(together({small_machine,
                                     {{"OMPI_COMM_WORLD_RANK", "3"},
                                      {"OMPI_COMM_WORLD_SIZE", "8"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}}})),
                  ps::world_error);
  CHECK_THROWS_AS(
      world_of(together(
          {small_machine, {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "3"}}})),
      ps::world_error);
}

TEST_CASE("an inner launcher takes precedence over an outer one", "[ranks][promise:honest-12]") {
  // srun --ntasks-per-node=1 torchrun --nproc-per-node=4: Slurm counts nodes instead of ranks.
  const std::map<std::string, std::string> nodes{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  CHECK(world_of(together({torchrun_5_of_8, {{"TORCHELASTIC_RUN_ID", "none"}}, nodes})) ==
        ps::world{5, 8, 1, 4, ps::launcher::torchrun});
  // mpirun inside a batch script, whose own variables describe a single process.
  const std::map<std::string, std::string> ranks{{"OMPI_COMM_WORLD_RANK", "3"},
                                                 {"OMPI_COMM_WORLD_SIZE", "4"}};
  CHECK(world_of(together({ranks, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}})).rank == 3);
  // Simulates a process inside a shell of salloc.
  CHECK(world_of(together({ranks, {{"SLURM_NTASKS", "2"}}})).rank == 3);
}

TEST_CASE("launchers that contradict each other are rejected with both",
          "[ranks][promise:honest-12]") {
  const auto both = together(
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}});
  CHECK(rejected_world(both) ==
        "world: torchrun's RANK=1 WORLD_SIZE=2 and Slurm's SLURM_PROCID=0 SLURM_NTASKS=4 "
        "contradict each other: unset the variables of the launcher that did not start this "
        "process, or name the one that did: world::from_environment(launcher::...)");
  CHECK(world_of(both, ps::launcher::slurm).size == 4);
  CHECK(world_of(both, ps::launcher::torchrun).rank == 1);
  CHECK(world_of(both, ps::launcher::none) == ps::world{});
  CHECK_THROWS_AS(
      world_of(together({{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
                         {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}})),
      ps::world_error);
  CHECK(rejected_world(together({{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}},
                                 {{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}})) ==
        "world: LOCAL_RANK=0 and OMPI_COMM_WORLD_LOCAL_RANK=1 contradict each other: unset the "
        "wrong one");
}

TEST_CASE("PMIx contradicts a launcher unless its rank is that of Slurm",
          "[ranks][promise:honest-12]") {
  const std::map<std::string, std::string> ranks{
      {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "1"}};
  CHECK(rejected_world({ranks}) ==
        "world: Open MPI's OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 and PMIx's PMIX_RANK=1 "
        "contradict each other: unset the variables of the launcher that did not start this "
        "process, or name the one that did: world::from_environment(launcher::...)");
  CHECK(world_of({ranks}, ps::launcher::open_mpi).rank == 3);
  CHECK(world_of(together({ranks, {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}})).rank == 3);
  CHECK_THROWS_AS(world_of(together({ranks, {{"PMIX_RANK", "x"}}})), ps::world_error);
}

TEST_CASE("incomplete launcher variables are rejected by name", "[ranks][promise:honest-12]") {
  CHECK(rejected_world({{{"RANK", "1"}}}) ==
        "world: torchrun's variables are incomplete: RANK=1, no WORLD_SIZE: set both, or unset "
        "them for a single process");
  CHECK(rejected_world({{{"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}}}) ==
        "world: torchrun's variables are incomplete: no RANK, WORLD_SIZE=4, LOCAL_RANK=2: set "
        "both, or unset them for a single process");
  CHECK(
      rejected_world({{{"SLURM_NTASKS", "4"}}}) ==
      "world: Slurm's variables are incomplete: no SLURM_PROCID, SLURM_NTASKS=4: start the program "
      "with srun, unset the variables for a single process, or name the launcher that started it: "
      "world::from_environment(launcher::...)");
  CHECK_THROWS_AS(world_of({{{"LOCAL_RANK", "0"}}}), ps::world_error);
  CHECK_THROWS_AS(world_of({{{"OMPI_COMM_WORLD_SIZE", "2"}}}), ps::world_error);
  CHECK_THROWS_AS(world_of({{{"PMI_RANK", "2"}}}), ps::world_error);
  CHECK(rejected_world({}, ps::launcher::open_mpi) ==
        "world: Open MPI was specified as the launcher of this process, but there is no "
        "OMPI_COMM_WORLD_RANK and "
        "no OMPI_COMM_WORLD_SIZE: start the program with it");
}

TEST_CASE("impossible world numbers are rejected with their values", "[ranks][promise:honest-12]") {
  const std::string leave =
      "; start the program only with the launcher, and do not change its variables";
  CHECK(rejected_world({{{"RANK", "4"}, {"WORLD_SIZE", "4"}}}) ==
        "world: RANK=4 with WORLD_SIZE=4: a rank is below the size of its world" + leave);
  CHECK(rejected_world({{{"RANK", "0"}, {"WORLD_SIZE", "0"}}}) ==
        "world: RANK=0 with WORLD_SIZE=0: a world has at least one rank" + leave);
  CHECK(rejected_world(together({torchrun_5_of_8, {{"LOCAL_RANK", "4"}}})) ==
        "world: LOCAL_RANK=4 with LOCAL_WORLD_SIZE=4: a local rank is below the ranks of its "
        "machine" +
            leave);
  CHECK_THROWS_AS(world_of(together({torchrun_5_of_8, {{"LOCAL_WORLD_SIZE", "9"}}})),
                  ps::world_error);
  CHECK_THROWS_AS(world_of(together({torchrun_5_of_8, {{"LOCAL_WORLD_SIZE", "0"}}})),
                  ps::world_error);
  CHECK_THROWS_AS(world_of({{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}}),
                  ps::world_error);
}

TEST_CASE("a text that is not a number is rejected with its variable",
          "[ranks][promise:honest-12]") {
  CHECK(rejected_world({{{"RANK", "one"}, {"WORLD_SIZE", "2"}}}) ==
        "world: RANK='one' is not a number from 0 to 2147483647: set it as the launcher does, or "
        "unset all variables of the launcher for a single process");
  for (const char* const text : {"", " 1", "1 ", "+1", "-1", "1.0", "0x1", "2147483648",
                                 "99999999999999999999", "1\n", "\xC2\xB9"}) {
    CAPTURE(text);
    const auto said = rejected_world({{{"RANK", text}, {"WORLD_SIZE", "2"}}});
    CHECK(said.find("' is not a number from 0 to 2147483647: ") != std::string::npos);
    CHECK_THROWS_AS(world_of({{{"RANK", "0"}, {"WORLD_SIZE", text}}}), ps::world_error);
  }
  CHECK(rejected_world({{{"RANK", std::string(5000, 'x')}, {"WORLD_SIZE", "2"}}}).size() < 300);
  CHECK(world_of({{{"RANK", "0"}, {"WORLD_SIZE", "2147483647"}}}).size == 2147483647);
}

TEST_CASE(
    "a world shards a sampler in one line, and the error for a non-divisible batch suggests "
    "sizes",
    "[ranks]") {
  const auto w = world_of({torchrun_5_of_8});
  const ps::sharded order{ps::shuffled{.seed = 1},
                          {.rank = w.rank, .world = w.size, .global_batch = 64}};
  CHECK(order.batch_size() == 8);
  CHECK(order.options().rank == 5);
  const auto three = world_of({{{"RANK", "2"}, {"WORLD_SIZE", "3"}}});
  CHECK_THROWS_MATCHES(
      (ps::sharded{ps::shuffled{}, {.rank = three.rank, .world = three.size, .global_batch = 64}}),
      ps::option_error,
      Catch::Matchers::Message(
          "global_batch: must be a multiple of the world of 3, but is 64, which "
          "leaves 1: take 63 or 66"));
}

TEST_CASE("the environment of this very process can be read", "[ranks]") {
  // In every environment of the tests, the result is a world or an error that describes the
  // problem.
  try {
    const auto w = ps::world::from_environment();
    CHECK(w.rank < w.size);
  } catch (const ps::world_error& error) {
    CHECK(std::string{error.what()}.starts_with("world: "));
  }
  CHECK(ps::world::from_environment(ps::launcher::none) == ps::world{});
}
