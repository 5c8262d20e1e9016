// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <penstock/order/random.hpp>
#include <penstock/order/support/draw.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/stages.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Windows of a shuffled order, each put into batches of similar lengths, and the last few of them
/// kept: a window serves all its batches once it is made. What it gives is a function of the
/// arguments alone; for any number of threads.
template <class Lengths>
class length_windows {
 public:
  /// For windows of `batches` batches of `batch_size` samples, whose lengths `lengths(index)` says.
  length_windows(Lengths lengths, std::size_t batch_size, std::size_t batches)
      : lengths_(std::move(lengths)), batch_size_(batch_size), ranked_(batch_size * batches) {
    for (window& one : kept_) one.samples.resize(ranked_.size());
  }
  length_windows(length_windows&&) = delete;

  /// What says the lengths.
  [[nodiscard]] const Lengths& lengths() const noexcept { return lengths_; }

  /// The samples from the place `first` on of the order that `shuffled` has under `key`.
  void fill(const permutation& shuffled, const random_key& key, std::uint64_t first,
            std::span<std::uint64_t> out) noexcept {
    const std::uint64_t size = ranked_.size();
    while (!out.empty()) {
      const std::uint64_t at = first % size;
      const auto count = static_cast<std::size_t>((std::min)(std::uint64_t{out.size()}, size - at));
      {
        const std::lock_guard lock{mutex_};
        const window& one = find(shuffled, key, first / size);
        std::copy_n(one.samples.begin() + static_cast<std::ptrdiff_t>(at), count, out.begin());
      }
      out = out.subspan(count);
      first += count;
    }
  }

 private:
  struct window {
    std::vector<std::uint64_t> samples = {};
    std::uint64_t total = 0;  ///< samples of the dataset; 0: nothing is kept here
    std::uint64_t epoch = 0;
    std::uint64_t which = 0;
    std::uint64_t used = 0;  ///< when, counted in calls
  };
  struct ranked {
    std::uint64_t length;
    std::uint64_t sample;
    std::uint32_t
        place;  // in the shuffled order: among equal lengths chance decides, not the dataset
  };

  window& find(const permutation& shuffled, const random_key& key, std::uint64_t which) noexcept {
    ++calls_;
    window* oldest = kept_.data();
    for (window& one : kept_) {
      if (one.total == shuffled.size() && one.epoch == key.epoch && one.which == which) {
        one.used = calls_;
        return one;
      }
      if (one.used < oldest->used) oldest = &one;
    }
    make(*oldest, shuffled, key, which);
    oldest->total = shuffled.size();
    oldest->epoch = key.epoch;
    oldest->which = which;
    oldest->used = calls_;
    return *oldest;
  }

  void make(window& one, const permutation& shuffled, const random_key& key,
            std::uint64_t which) noexcept {
    const std::uint64_t begin = which * ranked_.size();
    const auto count = static_cast<std::size_t>(
        (std::min)(std::uint64_t{ranked_.size()}, shuffled.size() - begin));
    const std::span<std::uint64_t> samples{one.samples.data(), count};
    shuffled.fill(begin, samples);
    // The samples after the last full batch stay a batch of their own, as chance has put them
    // together: a loader that drops it drops no length more than another.
    const std::size_t batches = count / batch_size_;
    if (batches == 0) return;
    const std::span<ranked> all{ranked_.data(), batches * batch_size_};
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = {static_cast<std::uint64_t>(lengths_(samples[i])), samples[i],
                static_cast<std::uint32_t>(i)};
    }
    std::sort(all.begin(), all.end(), [](const ranked& a, const ranked& b) {
      return a.length != b.length ? a.length < b.length : a.place < b.place;
    });
    sample_generator gen{key, which};
    const std::uint64_t seed = draw64(gen);
    const permutation dealt{batches, seed, draw64(gen)};
    for (std::size_t batch = 0; batch < batches; ++batch) {
      const std::size_t from = static_cast<std::size_t>(dealt(batch)) * batch_size_;
      for (std::size_t i = 0; i < batch_size_; ++i) {
        samples[batch * batch_size_ + i] = all[from + i].sample;
      }
    }
  }

  Lengths lengths_;
  std::size_t batch_size_;
  // Guards all that follows. Held while a window is made: a thread that needs it waits.
  std::mutex mutex_;
  std::vector<ranked> ranked_;  // of the window that is being made
  std::array<window, 4> kept_;  // more than the batches under way touch, or they would be made anew
  std::uint64_t calls_ = 0;
};

/// The order of one epoch of `bucketed`. Refers to the windows of the sampler that made it.
template <class Lengths>
class bucketed_order {
 public:
  /// The order of `n` samples under `seed` in `epoch`. Throws std::invalid_argument unless
  /// 1 <= n <= 2^63.
  bucketed_order(length_windows<Lengths>& windows, std::uint64_t n, std::uint64_t seed,
                 std::uint64_t epoch)
      : windows_(&windows),
        shuffled_(n, seed, epoch),
        key_{.seed = seed, .epoch = epoch, .stage = bucketed_stage} {}

  /// The samples from the place `first` of the order on.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    windows_->fill(shuffled_, key_, first, out);
  }

 private:
  length_windows<Lengths>* windows_;
  permutation shuffled_;
  random_key key_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
