// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <penstock/core/layout.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/support/mean_bytes.hpp>
#include <penstock/load/detail/ahead/plan_follower.hpp>
#include <penstock/load/detail/plan/schedule.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/float_mode.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Tells a dataset what is read, ahead of the workers: what it is to fetch, and further ahead what
/// it had better keep; see `loader_options::read_ahead`. One thread tells, the consumer's where
/// there are no workers. Nobody waits for the dataset or the sampler: what is told too late, or not
/// at all, is read all the same.
template <dataset Dataset, sampler Sampler>
class teller {
 public:
  /// See `plan_follower`.
  teller(const Dataset& data, std::uint64_t size, const Sampler& order, const schedule& batches,
         const batch_layout<typename Dataset::record_type>& layout, const loader_options& options,
         loader_observer& observer)
      : has_thread_(options.workers != 0),
        seen_(&observer.of_teller()),
        fetched_(data, size, order, batches, layout, options, observer, read_),
        foreseen_(data, size, order, batches, layout, options, observer, read_) {}
  teller(teller&&) = delete;

  /// Whether there is anything to tell.
  [[nodiscard]] bool is_on() const noexcept { return fetched_.is_on() || foreseen_.is_on(); }

  /// The thread that tells, until `end`.
  void work() {
    flushed_denormals::keep_on();  // a sampler is to see what it sees on a worker
    while (fetched_.ledger().wait()) tell();
  }
  /// Ends it, permanently.
  void end() noexcept {
    foreseen_.ledger().end();
    fetched_.ledger().end();
  }
  /// After `end`: waits for the thread's call of the dataset or the sampler, at most so long;
  /// whether it has returned.
  [[nodiscard]] bool wait_until_silent(std::chrono::milliseconds most) {
    return fetched_.ledger().wait_until_silent(most);
  }

  /// Opener: the batch with this number is read from now on. Without workers this tells.
  void note_opened(std::uint64_t number) noexcept {
    if (!is_on()) return;
    foreseen_.ledger().note_opened(number);
    fetched_.ledger().note_opened(number);  // which wakes the thread
    if (!has_thread_) tell();
  }
  /// A worker: the batch with this number is read.
  void note_read(std::uint64_t number) noexcept {
    if (!is_on()) return;
    foreseen_.ledger().note_read(number);
    fetched_.ledger().note_read(number);
  }
  /// A worker: the samples of a batch with ragged fields have so many bytes.
  void note_values(std::uint64_t samples, std::uint64_t bytes) noexcept {
    if (is_on() && samples != 0) read_.add(bytes, samples);
  }

 private:
  static constexpr std::size_t most_inline = 64;  // calls of the dataset

  // Tells what there is room for, and at any time first what is to be fetched: that is needed first.
  // Without a thread, a batch waits for no more than some of what is foreseen.
  void tell() noexcept {
    fetch();
    for (std::size_t i = 0; (has_thread_ || i < most_inline) && foreseen_.tell_some(); ++i) fetch();
    seen_->bytes_now.set(fetched_.ledger().bytes());
  }
  void fetch() noexcept {
    while (fetched_.tell_some()) {
    }
  }

  mean_bytes read_;  // of records with ragged fields
  bool has_thread_;
  ahead_meter* seen_;
  plan_follower<fetched_ahead, Dataset, Sampler> fetched_;
  plan_follower<foreseen_ahead, Dataset, Sampler> foreseen_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
