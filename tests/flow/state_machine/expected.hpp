// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

#include "flow/state_machine/mismatch.hpp"
#include "flow/state_machine/setup.hpp"

namespace stress {

namespace ps = penstock;

/// The expected contents of a batch, or the sample that makes the batch fail.
struct expected {
  ps::batch_position at;
  std::size_t valid = 0;
  std::size_t skipped = 0;
  std::vector<std::uint64_t> labels;
  std::vector<std::uint32_t> bits;
  std::optional<std::uint64_t> bad;  // position of the bad sample in the batch
  std::uint64_t bad_sample = 0;
};

/// Returns the substitute of a bad sample: the first of eight random draws that is readable.
inline std::optional<std::uint64_t> substitute_of(const setup& how, std::uint64_t epoch,
                                                  std::uint64_t sample) {
  if (how.who.samples < 2) return std::nullopt;
  ps::sample_generator draws{
      {.seed = how.who.seed, .epoch = epoch, .stage = ps::detail::substitute_stage}, sample};
  for (int draw = 0; draw < 8; ++draw) {
    auto other = ps::uniform(draws, std::uint64_t{0}, how.who.samples - 2);
    other += other >= sample ? 1 : 0;
    if (!how.data.is_bad(other)) return other;
  }
  return std::nullopt;
}

/// Returns the batch that a loader with the setup `how` must deliver at a position. The result is
/// computed sample by sample from the sampler's order and the error policy.
inline expected expect(const setup& how, const ps::batch_position& at) {
  expected batch;
  batch.at = at;
  const auto order = ps::shuffled{.seed = how.who.order_seed}.order(how.who.samples, at.epoch);
  const std::uint64_t begin = at.batch * how.who.batch_size;
  const std::uint64_t full = begin + how.who.batch_size;
  const std::uint64_t end =
      how.who.last == ps::last_batch::pad ? full : (std::min)(full, how.who.samples);
  for (std::uint64_t k = begin; k < end; ++k) {
    std::uint64_t sample = 0;
    order.fill(k % how.who.samples, std::span{&sample, 1});
    const bool fills_up = k >= how.who.samples;
    if (how.data.is_bad(sample)) {
      const auto then = how.options.faults.on_error.action;
      if (then == ps::error_action::skip) {
        ++batch.skipped;
        continue;
      }
      std::optional<std::uint64_t> other;
      if (then == ps::error_action::replace) other = substitute_of(how, at.epoch, sample);
      if (!other) {
        batch.bad = k - begin;
        batch.bad_sample = sample;
        return batch;
      }
      sample = *other;
    }
    batch.valid += fills_up ? 0 : 1;
    batch.labels.push_back(sample);
    ps::sample_generator rng{{.seed = how.who.seed, .epoch = at.epoch}, sample};
    for (int i = 0; i < 3; ++i) batch.bits.push_back(rng());
  }
  return batch;
}

/// Compares a batch bit by bit with the expected contents.
template <class Batch>
void look_at(const Batch& batch, const expected& must) {
  require(batch.epoch() == must.at.epoch && batch.number() == must.at.batch, "another batch");
  require(batch.size() == must.labels.size(), "a batch of another size");
  require(batch.valid() == must.valid, "another number of valid samples");
  require(batch.info().skipped == must.skipped, "another number of skipped samples");
  const auto labels = ps::get<"label">(batch).flat();
  const auto bits = ps::get<"bits">(batch).flat();
  require(std::equal(labels.begin(), labels.end(), must.labels.begin(), must.labels.end()),
          "other samples");
  require(std::equal(bits.begin(), bits.end(), must.bits.begin(), must.bits.end()), "other bits");
}

}  // namespace stress
