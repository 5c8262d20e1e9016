#include "experiment.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "augment.hpp"
#include "host_backend.hpp"
#include "modes.hpp"
#include "stage_costs.hpp"

namespace mlp {

namespace {

std::string build_description() {
#if defined(__clang__)
  const std::string compiler = "clang++ " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return compiler + ", " MLP_BUILD_FLAGS;
}

/// Throws if a run's trace is not that of the first one.
void require_same(const run_trace& first, technique first_mode, const run_trace& other,
                  technique other_mode) {
  if (other == first) return;
  const std::string modes{std::string{name_of(other_mode)} + " and " +
                          std::string{name_of(first_mode)}};
  for (std::size_t i = 0; i < first.losses.size(); ++i) {
    if (other.losses[i] == first.losses[i]) continue;
    throw std::runtime_error(modes + " differ: the loss of sample " + std::to_string(i) +
                             " of the run is " + std::to_string(other.losses[i]) + " and " +
                             std::to_string(first.losses[i]));
  }
  throw std::runtime_error(modes + " differ: equal losses, but not the same parameters");
}

/// The experiment on samples of `train`, which may be augmented ones.
template <class Data>
void run_on(const Data& train, const options& chosen, const digit_data& data, results& found) {
  using device_type = host_backend::device_type;
  const device_type device{};
  const host_backend backend{};
  // Nothing can run ahead of this thread but other threads of the same cores: it computes itself.
  const auto stream = device.inline_stream();
  device.enter_thread();

  trainer<host_backend> trained{device,        backend,      stream,     chosen.batch,
                                chosen.epochs, train.size(), chosen.seed};
  sample_store<device_type> test{device, data.test.size()};
  test.fill(0, data.test, {}, stream);
  std::optional<resident_set<host_backend>> resident;

  const auto run = [&](technique fed_by) {
    progress_bar progress{name_of(fed_by), chosen.epochs * found.batches_per_epoch};
    switch (fed_by) {
      case technique::serial:
        return train_serially(train, device, trained, chosen, progress);
      case technique::workers:
        return train_with_workers(train, device, trained, chosen, progress);
      case technique::overlapped:
        return train_overlapped(train, device, trained, chosen, progress);
      case technique::resident:
        break;
    }
    if (!resident) {
      resident.emplace(device, stream, train, chosen.augment, order_of(chosen), chosen.batch,
                       chosen.epochs, chosen.seed);
    }
    return train_resident(*resident, train.size(), device, trained, chosen, progress);
  };

  for (const technique fed_by : chosen.modes) found.modes.push_back({.fed_by = fed_by});
  std::optional<run_trace> first;
  stage_samples costs;
  for (std::size_t i = 0; i < chosen.repeat; ++i) {
    measure_stages(costs, train, device, trained, chosen);
    for (mode_result& mode : found.modes) {
      mode.seconds.push_back(run(mode.fed_by));
      run_trace trace = trained.trace();
      if (first) require_same(*first, chosen.modes.front(), trace, mode.fed_by);
      if (!first) first = std::move(trace);
      if (i > 0) continue;
      mode.epoch_losses = trained.epoch_losses();
      mode.accuracy = trained.accuracy(test.images.data(), test.labels.data(), data.test.size());
    }
    measure_stages(costs, train, device, trained, chosen);
  }
  found.costs = costs.medians();
}

}  // namespace

results run_experiment(const options& chosen, const digit_data& data) {
  results found;
  found.data_name = data.name;
  found.data_directory = data.directory.string();
  found.train_samples = data.train.size();
  found.test_samples = data.test.size();
  found.device = "host device";
  found.build = build_description();
  found.cores = std::max(1U, std::thread::hardware_concurrency());
  found.batches_per_epoch = (data.train.size() + chosen.batch - 1) / chosen.batch;
  if (chosen.augment) {
    run_on(data.train | penstock::map<penstock::digit_record>(augment{}), chosen, data, found);
  } else {
    run_on(data.train, chosen, data, found);
  }
  return found;
}

}  // namespace mlp
