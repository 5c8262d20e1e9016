// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "augment.hpp"
#include "data.hpp"
#include "options.hpp"
#include "results.hpp"
#include "stage_costs.hpp"
#include "train.hpp"
#include "trainer.hpp"
#include "wide.hpp"

namespace mlp {

/// Returns the mean losses of the first steps of a run.
[[nodiscard]] inline std::vector<double> first_losses_of(const run_trace& trace,
                                                         const options& chosen) {
  constexpr std::size_t steps = 5;
  std::vector<double> means;
  for (std::size_t i = 0; i < steps && (i + 1) * chosen.batch <= trace.losses.size(); ++i) {
    double sum = 0.0;
    for (std::size_t s = i * chosen.batch; s < (i + 1) * chosen.batch; ++s) sum += trace.losses[s];
    means.push_back(sum / static_cast<double>(chosen.batch));
  }
  return means;
}

/// Runs the experiment on a device, with the samples of `train` and `test`, which may be augmented
/// or widened. A mode that fails, or whose results are not bit-identical to those of the first
/// mode, is recorded as failed. The other modes are not affected. Throws an exception if all modes
/// fail, and `context_lost`.
template <class Backend, class Train, class Test>
void run_modes(const typename Backend::device_type& device, const Backend& backend,
               const Train& train, const Test& test_data, const options& chosen, results& found,
               const row_done& done) {
  using device_type = typename Backend::device_type;
  using pixel = pixel_of<Train>;
  device.make_current();
  const auto stream = Backend::make_stream(device);

  trainer<Backend> trained{device,        backend,      stream,     chosen.batch,
                           chosen.epochs, train.size(), chosen.seed};
  sample_store<device_type, pixel> test{device, test_data.size()};
  test.fill(0, test_data, {}, stream);
  std::optional<resident_set<Backend, pixel>> resident;

  const auto guarded = [&](std::string_view what, const auto& work) {
    const auto is_it = [&](const failure& one) { return one.what == what; };
    if (std::any_of(found.failed.begin(), found.failed.end(), is_it)) return;
    try {
      work();
    } catch (const typename Backend::context_lost& error) {
      throw context_lost(std::string{what}, error.what());
    } catch (const std::exception& error) {
      found.failed.push_back({std::string{what}, error.what()});
    }
  };

  std::optional<run_trace> first;
  technique first_mode{};
  stage_samples costs;
  std::vector<double> floors;  // microseconds of a step inside its feed, without other work
  const auto measure = [&] {
    measure_stages(costs, train, device, trained, chosen);
    found.costs = costs.medians();
    if (!floors.empty()) found.costs->compute = median(floors);
  };
  const auto run = [&](mode_result& mode) {
    switch (mode.fed_by) {
      case technique::serial:
        return train_serially(train, device, trained, chosen);
      case technique::workers:
        return train_with_workers(train, device, trained, chosen);
      case technique::overlapped: {
        const fed_run fed = train_overlapped(train, device, trained, chosen);
        if (mode.limit.empty()) mode.limit = fed.said.str();
        if (fed.said.floor > 0) floors.push_back(1e6 * fed.said.floor);
        return fed.seconds;
      }
      case technique::resident:
        break;
    }
    if (!resident) {
      resident.emplace(device, stream, train, chosen.augment, order_of(chosen), chosen.batch,
                       chosen.epochs, chosen.seed);
    }
    return train_resident(*resident, train.size(), device, trained, chosen);
  };
  // Measures the floor of a feed only if both the overlapped and the resident loop were chosen.
  const auto is_chosen = [&](technique t) {
    return std::find(chosen.modes.begin(), chosen.modes.end(), t) != chosen.modes.end();
  };
  const bool repeats_one_batch = is_chosen(technique::overlapped) && is_chosen(technique::resident);

  const auto run_row = [&](technique by) {
    const auto had = std::find_if(found.modes.begin(), found.modes.end(),
                                  [&](const mode_result& one) { return one.fed_by == by; });
    const bool is_new = had == found.modes.end();
    mode_result row{.fed_by = by};
    mode_result& mode = is_new ? row : *had;
    const double seconds = run(mode);
    run_trace trace = trained.trace();
    if (first) require_same(*first, first_mode, trace, by);
    if (!first) first_mode = by;
    if (!first) first = std::move(trace);
    mode.seconds.push_back(seconds);
    if (is_new) {
      mode.first_losses = first_losses_of(*first, chosen);
      mode.epoch_losses = trained.epoch_losses();
      mode.accuracy = trained.accuracy(test.images.data(), test.labels.data(), test_data.size());
      found.modes.push_back(std::move(row));
    }
    done(found, is_new ? found.modes.back() : mode);
  };

  for (std::size_t i = 0; i < chosen.repeat; ++i) {
    if (chosen.costs) guarded("costs", measure);
    for (const technique by : chosen.modes) guarded(name_of(by), [&] { run_row(by); });
    if (repeats_one_batch && resident) {
      guarded("one batch", [&] {
        found.one_batch.push_back(
            repeat_one_batch(*resident, train.size(), device, trained, chosen));
      });
    }
    if (chosen.costs) guarded("costs", measure);
  }
  if (found.modes.empty()) throw std::runtime_error(found.failed.front().why);
}

/// Runs the experiment that `chosen` specifies on a device. Fills all of `found` except the device
/// information.
template <class Backend>
void run_on(const typename Backend::device_type& device, const Backend& backend,
            const options& chosen, const digit_data& data, results& found, const row_done& done) {
  const auto train = data.train.first(chosen.samples);
  const auto test = data.test.first(chosen.test_samples);
  found.data_name = data.name;
  found.data_directory = data.directory;
  found.train_samples = train.size();
  found.test_samples = test.size();
  found.cores = std::max(1U, std::thread::hardware_concurrency());
  found.batches_per_epoch = (train.size() + chosen.batch - 1) / chosen.batch;
  if (chosen.fed == workload::wide) {
    run_modes(device, backend, train | penstock::map<wide_record>(widen{}),
              test | penstock::map<wide_record>(widen{}), chosen, found, done);
  } else if (chosen.augment) {
    run_modes(device, backend, train | penstock::map<penstock::digit_record>(augment{}), test,
              chosen, found, done);
  } else {
    run_modes(device, backend, train, test, chosen, found, done);
  }
}

}  // namespace mlp
