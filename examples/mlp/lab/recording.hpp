// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "options.hpp"
#include "results.hpp"
#include "same_run.hpp"
#include "timeline.hpp"
#include "train.hpp"
#include "trainer.hpp"

/// Records when the first batches of a loop were read, copied and computed. The loops are those of
/// modes.hpp as they are: a dataset, a device and a backend stand around the real ones and note
/// what passes through them. Without --svg and --utilisation none of this runs.
namespace mlp {

/// The notes of one run of a loop. All memory is taken at construction. Reads may come from many
/// threads at once, copies and steps from the training thread, which gives them in the order of the
/// batches.
template <class Backend>
class recorder {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// For the first epoch of a loop over the `samples` samples that `order` gives, and of that for
  /// the first `most` batches.
  template <class Order>
  recorder(const device_type& device, std::size_t samples, const Order& order,
           std::size_t batch_size, std::size_t most = recorded_batches)
      : device_(device),
        batches_(std::min(most, (samples + batch_size - 1) / batch_size)),
        batch_of_(samples),
        reads_(batches_ * batch_size),
        copies_(batches_),
        steps_(batches_) {
    std::vector<std::uint64_t> all(samples);
    order.fill(0, all);
    for (std::size_t i = 0; i < samples; ++i) batch_of_[all[i]] = i / batch_size;
  }
  recorder(recorder&&) = delete;

  /// The loop's clock starts now: what came before was rehearsal.
  void begin(stream_ref stream) {
    // The device's clock and the host's meet in the middle of a round trip. The first one warms up.
    for (int i = 0; i < 2; ++i) {
      begin_ = clock::now();
      device_begin_.set(device_, stream);
      device_.synchronize(stream);
      begin_ += (clock::now() - begin_) / 2;
    }
    is_open_.store(true, std::memory_order_release);
  }

  /// Runs `read`, which reads the samples `indices`, all of one batch.
  template <class Read>
  void note_read(std::span<const std::uint64_t> indices, const Read& read) {
    const bool is_noted = is_open_.load(std::memory_order_acquire);
    const auto begin = clock::now();
    read();
    const auto end = clock::now();
    const std::size_t batch = batch_of_[indices.front()];
    if (!is_noted || batch >= batches_) return;
    const std::size_t place = reads_noted_.fetch_add(1, std::memory_order_relaxed);
    if (place < reads_.size()) reads_[place] = {std::this_thread::get_id(), batch, begin, end};
  }
  /// Runs `copy`, which gives the copy of the next batch to `stream`.
  template <class Copy>
  void note_copy(stream_ref stream, const Copy& copy) {
    note(copies_, copies_noted_, stream, copy);
  }
  /// Runs `step`, which gives the next training step to `stream`.
  template <class Step>
  void note_step(stream_ref stream, const Step& step) {
    note(steps_, steps_noted_, stream, step);
  }

  /// What was noted, when loop and device are done: a lane for each reader, in the order in which
  /// they came, one for the copies, one for the steps.
  [[nodiscard]] std::vector<lane> lanes(const std::vector<std::string>& readers,
                                        const std::string& copies, const std::string& steps) const {
    std::vector<lane> all;
    for (const std::string& name : readers) all.push_back({name, stage::read, {}});
    std::map<std::thread::id, std::size_t> known;
    const std::size_t noted = std::min(reads_noted_.load(), reads_.size());
    for (const read_note& note : std::span{reads_.data(), noted}) {
      const std::size_t reader = known.emplace(note.thread, known.size()).first->second;
      all.at(reader).spans.push_back(
          {note.batch, microseconds(note.begin - begin_), microseconds(note.end - begin_)});
    }
    all.push_back({copies, stage::copy, spans_of(copies_, copies_noted_)});
    all.push_back({steps, stage::compute, spans_of(steps_, steps_noted_)});
    return all;
  }

 private:
  using clock = std::chrono::steady_clock;
  using stamp = typename Backend::stamp;

  struct read_note {
    std::thread::id thread;
    std::size_t batch;
    clock::time_point begin;
    clock::time_point end;
  };
  struct stream_note {
    stamp begin;
    stamp end;
  };

  template <class Work>
  void note(std::vector<stream_note>& notes, std::size_t& noted, stream_ref stream,
            const Work& work) {
    if (!is_open_.load(std::memory_order_relaxed) || noted == notes.size()) return work();
    stream_note& to = notes[noted++];
    to.begin.set(device_, stream);
    work();
    to.end.set(device_, stream);
  }

  [[nodiscard]] std::vector<span> spans_of(const std::vector<stream_note>& notes,
                                           std::size_t noted) const {
    std::vector<span> spans;
    for (std::size_t i = 0; i < noted; ++i) {
      spans.push_back({i, notes[i].begin.microseconds_since(device_begin_),
                       notes[i].end.microseconds_since(device_begin_)});
    }
    return spans;
  }

  [[nodiscard]] static double microseconds(clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  }

  device_type device_;
  std::size_t batches_;
  std::vector<std::size_t> batch_of_;  // by sample
  std::vector<read_note> reads_;
  std::vector<stream_note> copies_;
  std::vector<stream_note> steps_;
  std::atomic<bool> is_open_{false};
  std::atomic<std::size_t> reads_noted_{0};
  std::size_t copies_noted_ = 0;
  std::size_t steps_noted_ = 0;
  clock::time_point begin_;
  stamp device_begin_;
};

/// The device of a backend, whose copies are noted.
template <class Backend>
class recording_device : public Backend::device_type {
  using base = typename Backend::device_type;

 public:
  recording_device(const base& device, recorder<Backend>& notes) : base(device), notes_(&notes) {}

  void copy_async(void* to, const void* from, std::size_t bytes,
                  typename base::stream_ref stream) const {
    notes_->note_copy(stream, [&] { base::copy_async(to, from, bytes, stream); });
  }

 private:
  recorder<Backend>* notes_;
};

/// A backend whose steps are noted.
template <class Backend>
class recording_backend : public Backend {
 public:
  using device_type = recording_device<Backend>;
  static_assert(penstock::device<device_type>);

  recording_backend(const Backend& backend, recorder<Backend>& notes)
      : Backend(backend), notes_(&notes) {}

  template <class Work>
  void replay(std::size_t slot, std::size_t size, typename Backend::stream_ref stream,
              const Work& work) const {
    notes_->note_step(stream, [&] { Backend::replay(slot, size, stream, work); });
  }

 private:
  recorder<Backend>* notes_;
};

/// A dataset whose reads are noted; refers to the real one.
template <class Data, class Backend>
class recording_dataset {
 public:
  using record_type = typename Data::record_type;

  recording_dataset(const Data& data, recorder<Backend>& notes) : data_(&data), notes_(&notes) {}

  [[nodiscard]] std::uint64_t size() const { return data_->size(); }
  [[nodiscard]] penstock::record_extents<record_type> extents() const {
    return penstock::extents_of(*data_);
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return penstock::scratch_bytes_of(*data_); }
  void read_run(std::span<const std::uint64_t> indices, penstock::batch_view<record_type> out,
                const penstock::run_context& context) const {
    notes_->note_read(indices, [&] { penstock::read_run(*data_, indices, out, context); });
  }

 private:
  const Data* data_;
  recorder<Backend>* notes_;
};

/// Stands in the place of the progress bar, because it is told when the clock starts.
template <class Backend>
class recording_progress final : public observer {
 public:
  recording_progress(recorder<Backend>& notes, typename Backend::stream_ref stream)
      : notes_(&notes), stream_(stream) {}
  void begin() override { notes_->begin(stream_); }

 private:
  recorder<Backend>* notes_;
  typename Backend::stream_ref stream_;
};

/// The lanes of the workers; without workers the training thread reads.
[[nodiscard]] inline std::vector<std::string> names_of_readers(std::size_t workers) {
  if (workers <= 1) return {"read"};
  std::vector<std::string> names;
  for (std::size_t i = 1; i <= workers; ++i) names.push_back("read, worker " + std::to_string(i));
  return names;
}

/// Runs the serial and the overlapped loop over one epoch, and records the first `most` batches.
/// Throws if their losses differ.
template <class Data, class Backend>
std::array<recorded_loop, 2> record_loops(const Data& data,
                                          const typename Backend::device_type& device,
                                          const Backend& backend,
                                          typename Backend::stream_ref stream, options chosen,
                                          std::size_t most = recorded_batches) {
  chosen.epochs = 1;
  const auto order = order_of(chosen).order(data.size(), 0);
  // The trace as well: a recording is of the loop that it shows, or none.
  const auto record = [&](const auto& train, const std::vector<std::string>& readers,
                          const std::string& copies, const std::string& steps) {
    recorder<Backend> notes{device, data.size(), order, chosen.batch, most};
    const recording_device<Backend> on{device, notes};
    const recording_backend<Backend> computes{backend, notes};
    trainer<recording_backend<Backend>> trained{
        on, computes, stream, chosen.batch, chosen.epochs, data.size(), chosen.seed};
    recording_progress<Backend> progress{notes, stream};
    train(recording_dataset<Data, Backend>{data, notes}, on, trained, progress);
    return std::pair{notes.lanes(readers, copies, steps), trained.trace()};
  };
  auto serial = record(
      [&](const auto& samples, const auto& on, auto& trained, auto& progress) {
        static_cast<void>(train_serially(samples, on, trained, chosen, progress));
      },
      {"read"}, "copy", "compute");
  auto overlapped = record(
      [&](const auto& samples, const auto& on, auto& trained, auto& progress) {
        static_cast<void>(train_overlapped(samples, on, trained, chosen, progress));
      },
      names_of_readers(chosen.workers), "copy", "compute");
  require_same(serial.second, technique::serial, overlapped.second, technique::overlapped);
  return {recorded_loop{technique::serial, std::move(serial.first)},
          recorded_loop{technique::overlapped, std::move(overlapped.first)}};
}

}  // namespace mlp
