// SPDX-License-Identifier: BSL-1.0
// Batches that contain as many texts as fit a token budget. A run on four ranks ends in the middle
// of an epoch, and continues with two ranks and then with one. Each text is read once, and in every
// step all ranks have nearly the same number of tokens.
#include <penstock/penstock.hpp>
#include <penstock_ext/samplers/by_tokens.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <stdexcept>
#include <vector>

namespace ps = penstock;
using text =
    ps::record<ps::field<"tokens", std::uint16_t, ps::ragged>, ps::field<"index", std::uint64_t>>;

struct texts {
  using record_type = text;
  std::uint64_t size() const { return 20'000; }
  ps::record_extents<text> extents() const { return {{.longest = 2000}, {}}; }
  std::uint64_t length(std::uint64_t index) const {  // most texts are short
    const std::uint64_t drawn = index * 7919 % 2000;
    return std::max<std::uint64_t>(1, drawn * drawn / 2000 * drawn / 2000);
  }
  void read(std::uint64_t index, ps::sample<text> out) const {
    for (auto& token : ps::get<"tokens">(out).flat()) token = static_cast<std::uint16_t>(index);
    ps::get<"index">(out) = index;
  }
};

void require(bool is_so, const char* problem) {
  if (!is_so) throw std::runtime_error(problem);
}

int main() {
  const texts data;
  const ps::by_tokens order{data.size(),
                            [&](std::uint64_t index) { return data.length(index); },
                            {.seed = 1, .max_tokens = 16'384, .batches_per_step = 4}};
  std::cout << order.batches() << " batches of at most " << order.batch_size() << " texts, "
            << static_cast<int>(100 * order.fill()) << " % of the budget\n";

  std::vector<int> read(data.size());
  // For each step, the number of tokens in each batch.
  std::map<std::uint64_t, std::vector<std::uint64_t>> tokens;
  ps::loader_state saved;
  struct part {
    int world;
    std::uint64_t end;  // counts the batches of all ranks, and always marks the end of a step
  };
  for (const auto& [world, end] : {part{4, 40}, part{2, 100}, part{1, order.batches()}}) {
    ps::loader_state next;
    for (int rank = 0; rank < world; ++rank) {  // a real program would have one process per rank
      const ps::sharded share{order, {.rank = rank, .world = world}};
      ps::loader loader{data,
                        share,
                        {.batch_size = order.batch_size(),
                         .workers = 2,
                         .memory = {.max_values_per_batch = order.max_tokens()}}};
      if (saved.batch == 0) saved = loader.state_at({0, 0});
      const auto ranks = static_cast<std::uint64_t>(world);
      for (auto& batch : loader.resume(saved, 1)) {
        for (const std::uint64_t index : ps::get<"index">(batch).flat()) ++read[index];
        tokens[batch.number() * ranks / 4].push_back(ps::get<"tokens">(batch).values().size());
        if ((batch.number() + 1) * ranks == end) break;
      }
      next = loader.state();  // equal on all ranks
    }
    require(next.batch == end, "a part ended elsewhere");
    saved = next;
  }
  require(std::count(read.begin(), read.end(), 1) == 20'000, "a text was lost or came twice");
  for (const auto& [step, all] : tokens) {
    const auto [min, max] = std::minmax_element(all.begin(), all.end());
    require(all.size() == 4 && *max <= 16'384 && *min > *max * 9 / 10, "a step is uneven");
  }
  std::cout << "each text once, on 4, 2 and 1 ranks; " << tokens.size() << " even steps\n";
}
