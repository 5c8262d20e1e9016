// SPDX-License-Identifier: BSL-1.0
// One dataset, split at random into two parts. `map` with a random generator adds noise to the
// training part. The validation part is unchanged. Five epochs fit a line to the training part, and
// the validation part checks the result. The noise depends only on (seed, epoch, sample). The noise
// differs in every epoch, and is the same for any number of workers.
#include <penstock/penstock.hpp>

#include <cmath>
#include <cstdint>
#include <iostream>

namespace ps = penstock;

// Points on the line y = 3 x + 1.
struct points {
  using record_type = ps::record<ps::field<"x", float>, ps::field<"y", float>>;
  std::uint64_t size() const { return 10'000; }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    const float x = static_cast<float>(i % 200) / 100.0F - 1.0F;
    ps::get<"x">(out) = x;
    ps::get<"y">(out) = 3.0F * x + 1.0F;
  }
};
using point = ps::sample<points::record_type>;

int main() {
  const auto noise = [](point p, ps::sample_generator& rng) {
    ps::get<"y">(p) += ps::normal(rng, 0.0F, 0.1F);
  };
  const points all;
  const auto [learned, held_out] = ps::random_split(all, {0.8, 0.2}, 1);
  const ps::cpu_device device;
  // The stream that runs the steps. The loop bodies only launch work on this stream.
  auto stream = device.make_stream();
  ps::loader train{learned | ps::map(noise),
                   ps::shuffled{.seed = 1},
                   device,
                   {.batch_size = 64, .workers = 2, .seed = 1}};
  ps::loader validation{held_out, ps::sequential{}, device, {.batch_size = 256}};
  ps::transfer train_feed{train, stream};
  ps::transfer validation_feed{validation, stream};

  float slope = 0, offset = 0, worst = 0;
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    for (auto& batch : train_feed.epoch(epoch)) {
      stream.launch([&slope, &offset, x = ps::get<"x">(batch), y = ps::get<"y">(batch)] {
        for (std::size_t i = 0; i < x.size(); ++i) {
          const float error = slope * x[i] + offset - y[i];
          slope -= 0.01F * error * x[i], offset -= 0.01F * error;
        }
      });
    }
    stream.launch([&worst] { worst = 0; });
    // Always uses epoch 0, because nothing here depends on the epoch.
    for (auto& batch : validation_feed.epoch(0)) {
      stream.launch([&, x = ps::get<"x">(batch), y = ps::get<"y">(batch)] {
        for (std::size_t i = 0; i < x.size(); ++i)
          worst = std::fmax(worst, std::fabs(slope * x[i] + offset - y[i]));
      });
    }
  }
  stream.synchronize();
  std::cout << "y = " << slope << " x + " << offset << ", off by at most " << worst << '\n';
  return worst < 0.1F ? 0 : 1;
}
