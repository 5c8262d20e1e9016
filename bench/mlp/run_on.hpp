// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/observe/diagnose.hpp>
#include <penstock/penstock.hpp>
#include <penstock/report/trace_files.hpp>

#include "augment.hpp"
#include "data.hpp"
#include "modes.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "recording.hpp"
#include "results.hpp"
#include "same_run.hpp"
#include "stage_costs.hpp"
#include "travel.hpp"
#include "wide.hpp"

namespace mlp {

/// The mean losses of the first steps of a run.
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

/// The seconds of a batch that no feed can beat, as far as is known yet: the resident loop's, else
/// the bound by what each stage costs; 0: not known.
[[nodiscard]] inline double floor_of(const options& chosen, const results& found,
                                     const stage_samples& costs) {
  for (const mode_result& mode : found.modes) {
    if (mode.fed_by != technique::resident || mode.seconds.empty()) continue;
    return median(mode.seconds) / static_cast<double>(chosen.epochs * found.batches_per_epoch);
  }
  if (costs.compute.empty()) return 0;
  return bound_of(costs.medians(), chosen.workers, found.cores, found.device.on_cores())
             .microseconds *
         1e-6;
}

/// Rings that hold the whole loop, if that takes no more than some megabytes a thread.
[[nodiscard]] inline penstock::trace_options trace_options_of(const options& chosen,
                                                              const results& found) {
  constexpr std::size_t events = 8;  // of a thread, at most, a batch
  const std::size_t wanted = std::bit_ceil(events * chosen.epochs * found.batches_per_epoch);
  return {.capacity = std::clamp<std::size_t>(wanted, 1024, 65536)};
}

/// Writes a trace, for which viewer its file's name says.
inline void write_trace(const penstock::trace_recorder& recorder,
                        const std::filesystem::path& file) {
  if (file.extension() == ".json") {
    penstock::write_chrome_trace(recorder, file.string());
  } else {
    penstock::write_perfetto(recorder, file.string());
  }
}

/// The experiment on a device, on samples of `train` and `test`, which may be augmented or widened.
template <class Backend, class Train, class Test>
void run_modes(const typename Backend::device_type& device, const Backend& backend,
               const Train& train, const Test& test_data, const options& chosen, results& found) {
  using device_type = typename Backend::device_type;
  using pixel = pixel_of<Train>;
  device.make_current();
  const auto stream = Backend::make_stream(device);

  trainer<Backend> trained{device,        backend,      stream,      chosen.batch,
                           chosen.epochs, train.size(), chosen.seed, chosen.step};
  sample_store<device_type, pixel> test{device, test_data.size()};
  test.fill(0, test_data, {}, stream);
  std::optional<resident_set<Backend, pixel>> resident;

  std::optional<run_trace> first;
  stage_samples costs;
  mode_result told;            // of the feed that ran last
  std::vector<double> floors;  // microseconds of a step in its feed, with nothing beside it
  const std::size_t steps = chosen.epochs * found.batches_per_epoch;
  const auto live = [&]() -> progress_options {
    return {.shown = !chosen.json, .floor = floor_of(chosen, found, costs)};
  };
  const auto run = [&](technique fed_by) {
    progress_bar progress{name_of(fed_by), steps, live()};
    switch (fed_by) {
      case technique::serial:
        return train_serially(train, device, trained, chosen, progress);
      case technique::workers:
        return train_with_workers(train, device, trained, chosen, progress);
      case technique::overlapped: {
        std::optional<penstock::trace_recorder> recorder;
        if (chosen.trace) progress.record_to(recorder.emplace(trace_options_of(chosen, found)));
        const double seconds = train_travelling(train, device, trained, chosen, progress);
        if (recorder) write_trace(*recorder, *chosen.trace);
        told.limit = progress.said()->str();
        told.explained = penstock::explain(*progress.said());
        told.stats = penstock::to_json(*progress.during());
        if (progress.said()->floor > 0) floors.push_back(1e6 * progress.said()->floor);
        return seconds;
      }
      case technique::resident:
        break;
    }
    if (!resident) {
      resident.emplace(device, stream, train, chosen.augment, order_of(chosen), chosen.batch,
                       chosen.epochs, chosen.seed);
    }
    return train_resident(*resident, train.size(), device, trained, chosen, progress);
  };
  // The two floors beneath a feed, where there is one to hold against them.
  const auto is_chosen = [&](technique t) {
    return std::find(chosen.modes.begin(), chosen.modes.end(), t) != chosen.modes.end();
  };
  const bool repeats_one_batch = is_chosen(technique::overlapped) && is_chosen(technique::resident);

  for (const technique fed_by : chosen.modes) found.modes.push_back({.fed_by = fed_by});
  for (std::size_t i = 0; i < chosen.repeat; ++i) {
    if (chosen.costs) measure_stages(costs, train, device, trained, chosen);
    for (mode_result& mode : found.modes) {
      mode.seconds.push_back(run(mode.fed_by));
      run_trace trace = trained.trace();
      if (first) require_same(*first, chosen.modes.front(), trace, mode.fed_by);
      if (!first) first = std::move(trace);
      if (i > 0) continue;
      mode.first_losses = first_losses_of(*first, chosen);
      mode.limit = std::exchange(told.limit, {});
      mode.explained = std::exchange(told.explained, {});
      mode.stats = std::exchange(told.stats, {});
      mode.epoch_losses = trained.epoch_losses();
      mode.accuracy = trained.accuracy(test.images.data(), test.labels.data(), test_data.size());
    }
    if (repeats_one_batch) {
      progress_bar progress{"one batch", steps, live()};
      found.one_batch.push_back(
          repeat_one_batch(*resident, train.size(), device, trained, chosen, progress));
    }
    if (chosen.svg) {
      for (auto& loop : record_loops(train, device, backend, stream, chosen)) {
        found.recorded.push_back(std::move(loop));
      }
    }
    if (chosen.utilisation) {
      for (auto& loop :
           record_loops(train, device, backend, stream, chosen, found.batches_per_epoch)) {
        found.epochs.push_back(std::move(loop));
      }
    }
    if (chosen.costs) measure_stages(costs, train, device, trained, chosen);
  }
  if (chosen.costs) found.costs = costs.medians();
  if (!floors.empty()) found.costs.compute = median(floors);
}

/// The first samples of a set of digits, where they lie.
[[nodiscard]] inline penstock::memory_dataset<penstock::digit_record> first_of(
    const penstock::idx_dataset<>& digits, std::uint64_t asked) {
  const std::uint64_t count = asked == 0 ? digits.size() : std::min(asked, digits.size());
  if (count == 0) throw std::runtime_error("there are no samples to train or to test on");
  const auto first = digits.view(0);
  return penstock::memory_dataset<penstock::digit_record>{
      std::span{penstock::get<"image">(first).data(), count * shape::inputs},
      std::span{&penstock::get<"label">(first), count}};
}

/// The experiment that `chosen` asks for on a device. Fills all of `found` but what is known of the
/// device.
template <class Backend>
void run_on(const typename Backend::device_type& device, const Backend& backend,
            const options& chosen, const digit_data& data, results& found) {
  const auto train = first_of(data.train, chosen.samples);
  found.data_name = data.name;
  found.data_directory = data.directory.string();
  found.train_samples = train.size();
  const auto test = first_of(data.test, chosen.test_samples);
  found.test_samples = test.size();
  found.cores = std::max(1U, std::thread::hardware_concurrency());
  found.batches_per_epoch = (train.size() + chosen.batch - 1) / chosen.batch;
  if (chosen.fed == workload::wide) {
    run_modes(device, backend, train | penstock::map<wide_record>(widen{}),
              test | penstock::map<wide_record>(widen{}), chosen, found);
  } else if (chosen.augment) {
    run_modes(device, backend, train | penstock::map<penstock::digit_record>(augment{}), test,
              chosen, found);
  } else {
    run_modes(device, backend, train, test, chosen, found);
  }
}

}  // namespace mlp
