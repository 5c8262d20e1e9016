// SPDX-License-Identifier: BSL-1.0
// A mixture of three corpora whose weights change during training. The program kills a run, resumes
// it, and later changes the weights intentionally. No sample of a corpus is read a second time
// before all its samples have been read. With several ranks, use ps::sharded{planned, {...}}
// instead of `planned`.
#include <penstock/penstock.hpp>
#include <penstock_ext/samplers/mixture.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace ps = penstock;
using document = ps::record<ps::field<"id", std::uint64_t>>;  // a real program would have tokens

void require(bool is_so, const char* problem) {
  if (!is_so) throw std::runtime_error(problem);
}

struct corpus {
  using record_type = document;
  std::uint64_t first, count;
  std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<document> out) const {
    ps::get<"id">(out) = first + index;
  }
};
const corpus web{0, 5000}, code{10'000, 2000}, books{20'000, 700};
constexpr std::size_t batch_size = 24;

// Trains up to step `last`, starting where the previous run ended. For each batch, writes the log
// line first, and then the state after the batch.
ps::loader_state train(const ps::mixture& mixed, const std::string& folder, std::uint64_t last,
                       bool has_other_weights = false, std::uint64_t killed_after = ~0ULL) {
  ps::loader loader{ps::concat(web, code, books), mixed, {.batch_size = batch_size, .workers = 2}};
  ps::loader_state state = loader.state_at({});
  std::ifstream{folder + "/state", std::ios::binary}.read(reinterpret_cast<char*>(&state), 64);
  // The loader would otherwise reject the state.
  if (has_other_weights) state = with_order_of(state, loader.state_at({}));
  std::ofstream out{folder + "/ids", std::ios::app};
  for (const auto& batch : loader.resume(state, 1)) {
    for (const std::uint64_t id : ps::get<"id">(batch).flat()) out << id << ' ';
    out << '\n' << std::flush;
    state = loader.state();
    std::ofstream next{folder + "/new", std::ios::binary};
    // The disk may be full.
    if (!next.write(reinterpret_cast<char*>(&state), 64).flush()) std::abort();
    // Atomically replaces the state.
    std::filesystem::rename(folder + "/new", folder + "/state");
    if (batch.number() == killed_after) std::raise(SIGKILL);
    if (batch.number() + 1 == last) break;
  }
  return state;
}

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "mixture-XXXXXX").string();
  require(::mkdtemp(folder.data()) != nullptr, "there is no folder");

  // The plan of the whole training run: epochs of 160 steps, with fewer web samples from step 100.
  const ps::mixture planned{{.seed = 1,
                             .schedule = {{{}, {6, 3, 1}}, {{.step = 100}, {4, 4, 2}}},
                             .batch_size = batch_size,
                             .epoch_steps = 160},
                            web,
                            code,
                            books};
  if (::fork() == 0) train(planned, folder, 160, false, 70);
  int status = 0;
  require(::wait(&status) > 0 && WIFSIGNALED(status), "the first run was not killed");
  const ps::loader_state state = train(planned, folder, 120);

  // Uses more books than planned. The state belongs to the previous schedule. with_order_of permits
  // the new schedule to resume from it.
  const ps::mixture changed = planned.continued({state.epoch, state.batch}, {1, 1, 1});
  train(changed, folder, 160, true);

  std::vector<std::set<std::uint64_t>> read(3);
  std::uint64_t count = 0, id = 0;
  for (std::ifstream in{folder + "/ids"}; in >> id; ++count) read[id / 10'000].insert(id);
  std::filesystem::remove_all(folder);
  require(count == 160 * batch_size, "a batch is missing, or is there twice");
  const auto progress = changed.progress({0, 160});  // computed without reading samples
  for (std::size_t part = 0; part < 3; ++part) {
    require(progress[part].epoch == 0, "a part is through");
    require(read[part].size() == progress[part].samples, "a sample was read twice");
    std::cout << "part " << part << ": " << progress[part].samples << " samples\n";
  }
}
