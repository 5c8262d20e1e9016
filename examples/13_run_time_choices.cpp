// SPDX-License-Identifier: BSL-1.0
// The flags of this program choose the pipeline. The training loop does not depend on the flags,
// because all pipelines have the same loader type. A header can declare this type. Without flags
// the program augments and shuffles.
//
//   penstock_13_run_time_choices [augment] [shuffle] [progress]
//
// The quarantine list of an earlier run names two bad samples, which the loader skips without
// reading. The batches carry the indices of their samples, so the program can print the hardest
// sample.
#include <penstock/load/any_loader.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/quarantine/quarantine.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ps = penstock;

// ---- the contents of a header

using point = ps::record<ps::field<"x", float>, ps::field<"y", float>>;

struct flags {
  bool augment = true;
  bool shuffle = true;
  bool progress = false;
};

ps::any_loader<point> make_loader(const flags& chosen);
using feed_type = ps::transfer<ps::any_loader<point>>;

// ---- the pipelines

// Points on the line y = 3 x + 1, except for one outlier and two samples that cannot be read.
struct line {
  using record_type = point;
  std::uint64_t size() const { return 2000; }
  void read(std::uint64_t i, ps::sample<point> out) const {
    if (i == 1114 || i == 1213) throw std::runtime_error("sample " + std::to_string(i));
    const float x = static_cast<float>(i % 100) * 0.01F;
    ps::get<"x">(out) = x;
    ps::get<"y">(out) = i == 777 ? 50 : 3 * x + 1;
  }
};

ps::any_loader<point> make_loader(const flags& chosen) {
  std::istringstream list{"# penstock quarantine: dataset of 2000 samples\n1114\n1213 # skipped\n"};
  const ps::loader_options options{
      .batch_size = 50,
      .workers = 2,
      .faults = {.on_error = {.action = ps::error_action::skip,
                              .quarantine_list = ps::read_quarantine(list)}},
      .instrumentation = {.indices = true}};
  ps::any_dataset<point> data = line{};
  if (chosen.augment) {
    data = data | ps::map([](ps::sample<point> p, ps::sample_generator& rng) {
             ps::get<"y">(p) += ps::normal(rng, 0.0F, 0.01F);
           });
  }
  if (chosen.shuffle) return ps::loader{data, ps::shuffled{.seed = 1}, options};
  return ps::loader{data, ps::sequential{}, options};
}

// ---- the loop

int main(int argc, char** argv) {
  flags chosen;
  if (argc > 1) chosen = {.augment = false, .shuffle = false};
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "augment") chosen.augment = true;
    if (flag == "shuffle") chosen.shuffle = true;
    if (flag == "progress") chosen.progress = true;
  }

  feed_type feed{make_loader(chosen)};
  float slope = 0;
  float offset = 0;
  float worst = 0;
  std::uint64_t hardest = 0;
  for (auto& batch : feed.epochs(0, 8)) {
    const auto x = ps::get<"x">(batch);
    const auto y = ps::get<"y">(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const float off = slope * x(i) + offset - y(i);
      if (off * off > worst) {
        worst = off * off;
        hardest = batch.indices()[i];
      }
      if (off * off > 100) continue;
      slope -= 0.1F * off * x(i);
      offset -= 0.1F * off;
    }
    if (chosen.progress) {
      std::cerr << "\repoch " << batch.epoch() << ", " << batch.number() + 1 << " of "
                << feed.batches_per_epoch() << ' ';
    }
  }
  if (chosen.progress) std::cerr << '\n';
  const auto failures = feed.source().failures();
  std::cout << "hardest: sample " << hardest << "; skipped " << failures.skipped << ", read "
            << failures.failed_reads << " of them\n";
  const bool is_right = hardest == 777 && failures.skipped == 16 && failures.failed_reads == 0 &&
                        slope > 2.8F && slope < 3.2F && offset > 0.9F && offset < 1.1F;
  return is_right ? 0 : 1;
}
