// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
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
#include "parallel_result.hpp"
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

/// Whether it holds on any of the ranks. All have to ask.
template <collective Collective>
[[nodiscard]] bool any_of(Collective& ranks, bool holds_here) {
  const std::array mine{static_cast<std::byte>(holds_here)};
  std::vector<std::byte> all(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(mine, all);
  return std::find(all.begin(), all.end(), std::byte{1}) != all.end();
}

/// Trains from the checkpoint on, if there is one, to the last epoch, on a stream of this rank's
/// device. Throws `run_mismatch` on all ranks where they would not train as one, and
/// `checkpoint_error`.
template <class Data, class Backend, collective Collective>
parallel_result train_in_parallel(const Data& data, const penstock::world& w,
                                  const typename Backend::device_type& device,
                                  const Backend& backend, typename Backend::stream_ref stream,
                                  Collective& ranks, const rank_options& chosen) {
  namespace ps = penstock;
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

  parallel_step step{device, backend, stream, ranks, chosen.global_batch, chosen.how};
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
  const bool is_logged = any_of(ranks, chosen.log.has_value());
  std::vector<std::uint64_t> samples(chosen.global_batch);
  ps::transfer feed{loader, stream};
  const std::uint64_t per_epoch = loader.batches_per_epoch();
  const auto save = [&](std::uint64_t number) {
    step.wait();
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
    step.differentiate(ps::get<"image">(batch).data(), ps::get<"label">(batch).data(),
                       batch.size());
    death.at(number, death_moment::reduced);
    step.update();
    death.at(number, death_moment::learnt);
    const bool is_last = number + 1 == chosen.epochs * per_epoch;
    result.batches = hash_of(samples, result.batches);
    if (is_logged || is_last) {  // the host waits for a step's losses
      result.last_loss = mean_of(step.losses());
      log.add(where, result.last_loss, samples);
    }
    if (chosen.checkpoint && (is_last || (number + 1) % chosen.every == 0)) save(number);
    ++result.steps;
  }
  step.wait();
  result.parameters = step.net().saved(stream).parameters;
  // A file that names a step is there when any rank says that it is done.
  ranks.barrier();
  return result;
}

}  // namespace mlp
