// Stops in the middle of an epoch and goes on from there in a second loader, as after a restart, with
// another number of workers. How many batches are done is the whole state: order and random bits follow
// from seed, epoch and sample, so the batches are the same to the last bit as without the stop.
#include <penstock/penstock.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <vector>

namespace ps = penstock;

struct noise {  // random while reading: the third argument is keyed by (seed, epoch, index)
  using record_type = ps::record<ps::field<"x", float, 8>>;
  std::uint64_t size() const { return 1000; }
  void read(std::uint64_t, ps::sample<record_type> out, ps::sample_generator& rng) const {
    for (float& x : ps::get<"x">(out).flat()) x = ps::normal(rng, 0.0F, 1.0F);
  }
};

auto loader_with(std::size_t workers) {
  return ps::loader{noise{}, ps::shuffled{.seed = 1},
                    ps::loader_options{.batch_size = 32, .workers = workers, .seed = 2}};
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
  std::uint64_t done = 0;  // the checkpoint
  auto second = loader_with(2);
  for (auto& batch : second.epochs(0, epochs)) {
    append(with_stop, batch);
    if (++done == 49) break;  // reading ahead ends here too
  }

  auto third = loader_with(4);
  const std::uint64_t per_epoch = third.batches_per_epoch();
  const ps::batch_position next{.epoch = done / per_epoch, .batch = done % per_epoch};
  std::cout << "going on at epoch " << next.epoch << ", batch " << next.batch << '\n';
  for (auto& batch : third.batches(next, epochs)) append(with_stop, batch);

  const bool same = with_stop == without_stop && with_stop.size() == std::size_t{3} * 1000 * 8;
  std::cout << with_stop.size() << " values, " << (same ? "the same" : "not the same") << '\n';
  return same ? 0 : 1;
}
