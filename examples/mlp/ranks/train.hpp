// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock/ranks/require_same_run.hpp>
#include <penstock/ranks/world.hpp>

#include "checkpoint.hpp"
#include "collective.hpp"
#include "host_backend.hpp"
#include "parallel_step.hpp"
#include "rank_options.hpp"
#include "step_log.hpp"
#include "trainer.hpp"

/// The loop of one rank: sharded, compared with the others', and gone on with from a checkpoint.
namespace mlp {

/// Kills this process, or throws, where a test has asked for it.
class appointed_death {
 public:
  appointed_death(const rank_options& chosen, int rank)
      : dies_(chosen.dies && chosen.dies->rank == rank ? chosen.dies : std::nullopt) {}
  void at(std::uint64_t step, death_moment moment) const {
    if (!dies_ || dies_->step != step || dies_->moment != moment) return;
    if (moment == death_moment::throwing) throw std::runtime_error("it fails as it was told to");
    std::raise(SIGKILL);
  }
  void at(std::uint64_t step, save_moment moment) const {
    at(step, static_cast<death_moment>(static_cast<int>(death_moment::half_written) +
                                       static_cast<int>(moment)));
  }

 private:
  std::optional<death> dies_;
};

/// What a run leaves behind, the same on all ranks.
struct parallel_result {
  std::uint64_t steps = 0;    ///< of this run, without those before its checkpoint
  double last_loss = 0;       ///< the mean over the last global batch
  std::uint64_t batches = 0;  ///< a hash of the samples of all global batches in order
  std::vector<float> parameters;
  std::string resumed;  ///< the checkpoint it went on from; "" for none
};

/// Trains from the checkpoint on, if there is one, to the last epoch. Throws `run_mismatch` on all
/// ranks where they would not train as one, and `checkpoint_error`.
template <class Data, collective Collective>
parallel_result train_in_parallel(const Data& data, const penstock::world& w, Collective& ranks,
                                  const rank_options& chosen) {
  namespace ps = penstock;
  const ps::cpu_device device;
  const auto stream = device.inline_stream();
  const ps::sharded order{ps::shuffled{.seed = chosen.seed},
                          {.rank = w.rank, .world = w.size, .global_batch = chosen.global_batch}};
  ps::loader loader{data,
                    order,
                    device,
                    {.batch_size = order.batch_size(),
                     .workers = chosen.workers,
                     .seed = chosen.seed,
                     .indices = true}};
  const auto exchange = [&](auto mine, auto all) { ranks.all_gather(mine, all); };
  ps::require_same_run(w, loader, exchange);

  parallel_step step{device, host_backend{}, stream, ranks, chosen.global_batch, chosen.how};
  parallel_result result;
  auto at = loader.state_at({});
  step.net().assign(initial_parameters(chosen.seed), stream);
  if (chosen.checkpoint) {
    if (const auto found = newest_checkpoint(*chosen.checkpoint)) {
      at = found->what.state;
      step.net().restore(found->what.net, stream);
      result.resumed = (found->passed_over.empty() ? "" : found->passed_over + "; ") +
                       "going on from " + found->file.string();
    }
    // Each rank has read the file by itself.
    ps::require_same_run(w, at, exchange);
  }

  const appointed_death death{chosen, w.rank};
  step_log log{w.rank == 0 ? chosen.log : std::nullopt};
  std::vector<std::uint64_t> samples(chosen.global_batch);
  ps::transfer feed{loader, stream};
  const std::uint64_t per_epoch = loader.batches_per_epoch();
  const auto save = [&](std::uint64_t number) {
    if (w.rank == 0) {
      write_checkpoint(*chosen.checkpoint, {feed.state(), step.net().saved(stream)},
                       [&](save_moment moment) { death.at(number, moment); });
    }
  };
  for (auto& batch : feed.resume(at, chosen.epochs)) {
    const auto where = batch.position();
    const std::uint64_t number = where.epoch * per_epoch + where.batch;
    ranks.all_gather(std::as_bytes(batch.indices()), std::as_writable_bytes(std::span{samples}));
    death.at(number, death_moment::reading);
    death.at(number, death_moment::throwing);
    const auto losses = step.differentiate(ps::get<"image">(batch).data(),
                                           ps::get<"label">(batch).data(), batch.size());
    death.at(number, death_moment::reduced);
    step.update();
    death.at(number, death_moment::learnt);
    result.last_loss = mean_of(losses);
    result.batches = hash_of(samples, result.batches);
    log.add(where, result.last_loss, samples);
    const bool is_last = number + 1 == chosen.epochs * per_epoch;
    if (chosen.checkpoint && (is_last || (number + 1) % chosen.every == 0)) save(number);
    ++result.steps;
  }
  result.parameters = step.net().saved(stream).parameters;
  // A file that names a step is there when any rank says that it is done.
  ranks.barrier();
  return result;
}

}  // namespace mlp
