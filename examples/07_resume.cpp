// SPDX-License-Identifier: BSL-1.0
// Stops in the middle of an epoch, and resumes with a second loader that has a different number of
// workers, as after a restart. In the second loader, a step fails and is repeated. The state is 64
// bytes, or one line of text. Order and random bits depend only on seed, epoch and sample, so the
// batches are bit-identical to an uninterrupted run.
#include <penstock/penstock.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ps = penstock;

// Draws random numbers while reading. The third argument is a generator keyed by (seed, epoch,
// index).
struct noise {
  using record_type = ps::record<ps::field<"x", float, 8>>;
  std::uint64_t size() const { return 1000; }
  void read(std::uint64_t, ps::sample<record_type> out, ps::sample_generator& rng) const {
    for (float& x : ps::get<"x">(out).flat()) x = ps::normal(rng, 0.0F, 1.0F);
  }
};

auto loader_with(std::size_t workers) {
  return ps::loader{
      noise{}, ps::shuffled{.seed = 1}, {.batch_size = 32, .workers = workers, .seed = 2}};
}

int main() {
  constexpr std::uint64_t epochs = 3;
  const auto append = [](std::vector<float>& to, auto& batch) {
    const auto x = ps::get<"x">(batch).flat();
    to.insert(to.end(), x.begin(), x.end());
  };

  std::vector<float> without_stop;
  auto first = loader_with(1);
  for (auto& batch : first.epochs(0, epochs)) append(without_stop, batch);

  std::vector<float> with_stop;
  std::string checkpoint;
  std::uint64_t done = 0;
  auto second = loader_with(2);
  for (auto& batch : second.epochs(0, epochs)) {
    append(with_stop, batch);
    checkpoint = ps::to_text(second.state());
    // Leaving the loop also ends prefetching.
    if (++done == 49) break;
  }

  auto third = loader_with(4);
  std::cout << "going on at " << checkpoint << '\n';
  auto at = ps::from_text<ps::loader_state>(checkpoint);
  for (bool is_done = false, has_failed = false; !is_done;) {
    try {
      for (auto& batch : third.resume(at, epochs)) {
        // The state before this batch, from which the failed step is repeated.
        at = third.state_at(batch.position());
        if (batch.number() == 20 && !has_failed) {
          has_failed = true;
          throw std::runtime_error("a step has failed");
        }
        append(with_stop, batch);
        at = third.state();
      }
      is_done = true;
    } catch (const std::runtime_error& error) {
      std::cout << error.what() << " at batch " << at.batch << " of epoch " << at.epoch << '\n';
    }
  }

  const bool same = with_stop == without_stop && with_stop.size() == std::size_t{3} * 1000 * 8;
  std::cout << with_stop.size() << " values, " << (same ? "the same" : "not the same") << '\n';
  return same ? 0 : 1;
}
