// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>

#include "checkpoint.hpp"
#include "network.hpp"

/// The training loop of a rank. The loop shards the data, checks that all ranks agree, and resumes
/// from a checkpoint.
namespace data_parallel {

/// Options of a training run. Every rank must have the same values.
struct options {
  std::uint64_t epochs = 1;
  std::size_t global_batch = 64;
  std::size_t workers = 1;
  std::uint64_t seed = 1;
  bool deterministic = false;          ///< sums the gradients of each eighth of the global batch,
                                       ///< and then adds the eighths in order
  std::filesystem::path checkpoint{};  ///< if empty, no checkpoint is written
  std::uint64_t every = 100;           ///< steps between checkpoints
  std::filesystem::path log{};         ///< if not empty, rank 0 writes one line per step to this
                                       ///< file
  int dying_rank = -1;                 ///< for tests: this rank gets SIGKILL before it updates its
                                       ///< parameters
  std::uint64_t dying_step = 0;
};

/// The result of a run. All ranks return the same result.
struct result {
  std::uint64_t steps = 0;  ///< steps of this run, without the steps before its checkpoint
  float last_loss = 0;      ///< mean loss over the last global batch
  std::uint64_t next = 0;   ///< steps before this run, according to the checkpoint
  std::vector<float> weights{};
};

/// Returns the values `mine` of all ranks, concatenated in rank order. All ranks must call this
/// function.
template <class T, class Ranks>
[[nodiscard]] std::vector<T> gathered(std::span<const T> mine, Ranks& ranks) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  ranks.gather(std::as_bytes(mine), std::as_writable_bytes(std::span{all}));
  return all;
}

/// A training step on all ranks. Each rank computes the gradients of its part of the global batch,
/// and the ranks' `sum` adds them during the backward pass. With `deterministic`, the host adds the
/// gradients of each eighth of the global batch in order, which gives the same bits for 1, 2, 4 and
/// 8 ranks.
template <class Device, class Ranks>
class shared_step {
 public:
  using stream_ref = typename Device::stream_ref;

  shared_step(const Device& device, stream_ref stream, Ranks& ranks, const options& chosen)
      : stream_(stream),
        ranks_(ranks),
        is_ordered_(chosen.deterministic),
        scale_(1.0F / static_cast<float>(chosen.global_batch)),
        share_(chosen.global_batch / static_cast<std::size_t>(ranks.size())),
        parts_(parts_of(chosen, ranks)),
        net_(device, share_ / parts_),
        gradients_(device, parameters),
        losses_(device, share_) {}

  [[nodiscard]] network<Device>& net() { return net_; }

  template <class Batch>
  void differentiate(const Batch& batch) {
    const std::uint8_t* images = penstock::get<"image">(batch).data();
    const std::uint8_t* labels = penstock::get<"label">(batch).data();
    if (!is_ordered_) {
      net_.differentiate(images, labels, share_, scale_, losses_.data(), gradients_.data(), stream_,
                         [&](std::size_t place, std::size_t length) {
                           ranks_.sum({gradients_.data() + place, length}, stream_);
                         });
      ranks_.join(stream_);
      return;
    }
    const std::size_t part = share_ / parts_;
    std::vector<float> mine;
    for (std::size_t p = 0; p < share_; p += part) {
      net_.differentiate(images + p * inputs, labels + p, part, scale_, losses_.data() + p,
                         gradients_.data(), stream_, [](std::size_t, std::size_t) {});
      const auto made = gradients_.get(stream_);
      mine.insert(mine.end(), made.begin(), made.end());
    }
    const auto all = gathered<float>(mine, ranks_);
    std::vector<float> sum(parameters);
    for (std::size_t i = 0; i < all.size(); ++i) sum[i % parameters] += all[i];
    gradients_.put(sum, stream_);
  }
  void update() { net_.update(gradients_.data(), stream_); }

  /// Returns the mean loss of the last global batch, before its step. All ranks must call this
  /// function.
  [[nodiscard]] float loss() {
    float sum = 0;
    for (const float each : gathered<float>(losses_.get(stream_), ranks_)) sum += each;
    return sum * scale_;
  }

 private:
  static constexpr std::size_t eighths = 8;

  static std::size_t parts_of(const options& chosen, const Ranks& ranks) {
    if (!chosen.deterministic) return 1;
    const auto size = static_cast<std::size_t>(ranks.size());
    if (chosen.global_batch % eighths == 0 && eighths % size == 0) return eighths / size;
    throw std::invalid_argument(
        "--deterministic adds up by eighths of the global batch: take 1, 2, 4 or 8 ranks, which "
        "are " +
        std::to_string(size) + ", and a multiple of 8 for --batch, which is " +
        std::to_string(chosen.global_batch));
  }

  stream_ref stream_;
  Ranks& ranks_;
  bool is_ordered_;
  float scale_;
  std::size_t share_;
  std::size_t parts_;  // number of parts in a rank's share
  network<Device> net_;
  array<float, Device> gradients_;
  array<float, Device> losses_;
};

/// Trains to the last epoch on a stream of this rank's device, starting at the checkpoint if one
/// exists. Throws `run_mismatch` on all ranks if their runs do not match, and `std::runtime_error`
/// if they end with different parameters.
template <class Data, class Device, class Ranks>
result train(const Data& data, const penstock::world& w, const Device& device,
             typename Device::stream_ref stream, Ranks& ranks, const options& chosen) {
  namespace ps = penstock;
  const ps::sharded order{ps::shuffled{.seed = chosen.seed},
                          {.rank = w.rank, .world = w.size, .global_batch = chosen.global_batch}};
  ps::loader loader{data,
                    order,
                    device,
                    {.batch_size = order.batch_size(),
                     .workers = chosen.workers,
                     .seed = chosen.seed,
                     .instrumentation = {.indices = true}}};
  const auto exchange = [&](auto mine, auto all) { ranks.gather(mine, all); };
  ps::require_same_run(w, loader, exchange);

  shared_step<Device, Ranks> step{device, stream, ranks, chosen};
  step.net().assign(chosen.seed, stream);
  auto at = loader.state_at({});
  if (!chosen.checkpoint.empty()) {
    if (const auto found = read_checkpoint(chosen.checkpoint, parameters)) {
      at = found->next;
      step.net().weights.put(found->weights, stream);
      step.net().momenta.put(found->momenta, stream);
    }
    ps::require_same_run(w, at, exchange);  // each rank has read its own file
  }

  const std::uint64_t per_epoch = loader.batches_per_epoch();
  result found{.next = at.epoch * per_epoch + at.batch};
  const auto close = [](std::FILE* file) { std::fclose(file); };
  std::unique_ptr<std::FILE, decltype(close)> log{nullptr, close};
  if (!chosen.log.empty() && w.rank == 0) {
    log.reset(std::fopen(chosen.log.c_str(), "a"));
    if (!log) throw std::system_error(errno, std::generic_category(), chosen.log.string());
  }
  ps::transfer feed{loader, stream};
  for (auto& batch : feed.resume(at, chosen.epochs)) {
    const auto where = batch.position();
    const std::uint64_t number = where.epoch * per_epoch + where.batch;
    const bool is_last = number + 1 == chosen.epochs * per_epoch;
    step.differentiate(batch);
    if (w.rank == chosen.dying_rank && number == chosen.dying_step) std::raise(SIGKILL);
    step.update();
    if (!chosen.log.empty() || is_last) found.last_loss = step.loss();
    if (!chosen.log.empty()) {  // writes epoch, batch, loss, and the samples of the global batch
      const auto samples = gathered<std::uint64_t>(batch.indices(), ranks);
      if (log) {
        std::fprintf(log.get(), "%llu %llu %a:", static_cast<unsigned long long>(where.epoch),
                     static_cast<unsigned long long>(where.batch),
                     static_cast<double>(found.last_loss));
        for (const std::uint64_t sample : samples) {
          std::fprintf(log.get(), " %llu", static_cast<unsigned long long>(sample));
        }
        std::fputc('\n', log.get());
        std::fflush(log.get());
      }
    }
    if (!chosen.checkpoint.empty() && (is_last || (number + 1) % chosen.every == 0)) {
      const checkpoint here{feed.state(), step.net().weights.get(stream),
                            step.net().momenta.get(stream)};
      if (w.rank == 0) write_checkpoint(chosen.checkpoint, here);
    }
    ++found.steps;
  }
  found.weights = step.net().weights.get(stream);
  // Compares bits instead of values: equal NaNs match, and zeros of different sign do not.
  const auto all = gathered<float>(found.weights, ranks);
  for (std::size_t i = 0; i < all.size(); i += parameters) {
    if (std::memcmp(all.data() + i, found.weights.data(), parameters * sizeof(float)) == 0)
      continue;
    throw std::runtime_error("rank " + std::to_string(i / parameters) +
                             " has other parameters than rank " + std::to_string(w.rank));
  }
  return found;
}

}  // namespace data_parallel
