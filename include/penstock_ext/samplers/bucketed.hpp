// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/permutation.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Windows of a shuffled order, each grouped into batches of similar lengths. Caches the last few
/// windows, because each window has many batches. Results depend only on the arguments.
/// Thread-safe.
template <class Lengths>
class length_windows {
 public:
  /// Creates an empty cache for windows of `batches` batches of `batch_size` samples.
  /// `lengths(index)` returns a sample length.
  length_windows(Lengths lengths, std::size_t batch_size, std::size_t batches)
      : lengths_(std::move(lengths)), batch_size_(batch_size), ranked_(batch_size * batches) {
    for (window& one : retained_) one.samples.resize(ranked_.size());
  }
  length_windows(length_windows&&) = delete;

  /// Returns the length function.
  [[nodiscard]] const Lengths& lengths() const noexcept { return lengths_; }

  /// Writes the samples at the positions starting at `first`, in the order of `shuffled` with
  /// `key`.
  void fill(const permutation& shuffled, const random_key& key, std::uint64_t first,
            std::span<std::uint64_t> out) noexcept {
    fill_by_rows(ranked_.size(), first, out, [&](auto which, auto at, auto part) {
      const std::lock_guard lock{mutex_};
      std::copy_n(find(shuffled, key, which).samples.begin() + static_cast<std::ptrdiff_t>(at),
                  part.size(), part.begin());
    });
  }

 private:
  struct window {
    std::vector<std::uint64_t> samples = {};
    std::uint64_t total = 0;  ///< number of samples in the dataset, or 0 for an empty entry
    std::uint64_t epoch = 0;
    std::uint64_t which = 0;
  };
  struct ranked {
    std::uint64_t length;
    std::uint64_t sample;
    std::uint32_t place;  // position in the shuffled order, which breaks ties at random
  };

  window& find(const permutation& shuffled, const random_key& key, std::uint64_t which) noexcept {
    auto found = std::find_if(retained_.begin(), retained_.end(), [&](const window& one) {
      return one.total == shuffled.size() && one.epoch == key.epoch && one.which == which;
    });
    if (found == retained_.end()) make(*--found, shuffled, key, which);
    std::rotate(retained_.begin(), found, found + 1);
    return retained_.front();
  }

  void make(window& one, const permutation& shuffled, const random_key& key,
            std::uint64_t which) noexcept {
    one.total = shuffled.size();
    one.epoch = key.epoch;
    one.which = which;
    const std::uint64_t begin = which * ranked_.size();
    const auto count = static_cast<std::size_t>(
        (std::min)(std::uint64_t{ranked_.size()}, shuffled.size() - begin));
    const std::span<std::uint64_t> samples{one.samples.data(), count};
    shuffled.fill(begin, samples);
    // The samples after the last full batch form an unsorted batch, so that dropping it does not
    // favor any length.
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
    const permutation dealt = drawn_permutation(batches, key, which);
    for (std::size_t batch = 0; batch < batches; ++batch) {
      const std::size_t from = static_cast<std::size_t>(dealt(batch)) * batch_size_;
      for (std::size_t i = 0; i < batch_size_; ++i) {
        samples[batch * batch_size_ + i] = all[from + i].sample;
      }
    }
  }

  Lengths lengths_;
  std::size_t batch_size_;
  // Guards the members below. Held while a window is made, so threads that need the window wait.
  std::mutex mutex_;
  std::vector<ranked> ranked_;  // samples of the window under construction
  // The most recently used windows, latest first. Batches in flight use fewer windows than this, so
  // no window is made twice.
  std::array<window, 4> retained_;
};

/// The order of `bucketed` in one epoch. References the windows of the sampler that created the
/// order.
template <class Lengths>
class bucketed_order {
 public:
  /// Creates the order of `n` samples for `seed` and `epoch`. Throws std::invalid_argument unless 1
  /// <= n <= 2^63.
  bucketed_order(length_windows<Lengths>& windows, std::uint64_t n, std::uint64_t seed,
                 std::uint64_t epoch)
      : windows_(&windows),
        shuffled_(n, seed, epoch),
        key_{.seed = seed, .epoch = epoch, .stage = bucketed_stage} {}

  /// Writes the samples at the positions starting at `first`.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    windows_->fill(shuffled_, key_, first, out);
  }

 private:
  length_windows<Lengths>* windows_;
  permutation shuffled_;
  random_key key_;
};

}  // namespace detail

/// Options of `bucketed`. Invalid values cause `option_error` at construction.
struct bucketed_options {
  /// Seed that determines the order, together with the epoch.
  std::uint64_t seed = 0;
  /// Number of samples in a batch: the loader's `batch_size`, or the `global_batch` of an enclosing
  /// `sharded`.
  std::size_t batch_size = 0;
  /// Number of batches in a window. A larger window wastes less on padding but is less random: a
  /// batch contains samples of nearly equal length among `window * batch_size` random samples. At
  /// most 2^24 samples.
  std::size_t window = 64;
};

namespace detail {

/// A function that returns a sample length by index.
template <class Function>
concept length_function =
    std::move_constructible<Function> && requires(const Function& length, std::uint64_t index) {
      { length(index) } noexcept -> std::convertible_to<std::uint64_t>;
    };

/// A non-owning array of sample lengths.
template <std::integral Length>
class length_array {
 public:
  /// References `lengths`, which must be an lvalue or a view.
  template <std::ranges::contiguous_range Range>
  length_array(Range&& lengths) noexcept  // NOLINT: implicit, so that an array is accepted
      : lengths_(std::ranges::data(lengths), std::ranges::size(lengths)) {
    static_assert(std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>,
                  "penstock::bucketed: it refers to the lengths, and a temporary array is "
                  "destroyed before the first epoch");
  }

  /// Returns the length of sample `index`.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t index) const noexcept {
    return static_cast<std::uint64_t>(lengths_[static_cast<std::size_t>(index)]);
  }
  /// Returns the number of lengths.
  [[nodiscard]] std::uint64_t size() const noexcept { return lengths_.size(); }

 private:
  std::span<const Length> lengths_;
};

}  // namespace detail

/// Shuffles samples into batches of similar lengths, for models that pad a batch to its longest
/// sample. Each sample appears once. The order depends on `seed` and differs in each epoch.
///
///     std::vector<std::uint32_t> lengths = ...;  // one for each sample
///     ps::bucketed order{lengths, {.seed = 1, .batch_size = 64}};
///     ps::loader loader{texts, order, {.batch_size = 64}};
///
/// The order of `shuffled` is split into windows of `window` batches. Each window is sorted by
/// length and split into batches in random order. Therefore the lengths of successive batches are
/// random. Any batch can be computed without the previous batches, so a loop can resume anywhere.
/// The incomplete batch of the last window is last and unsorted, so that `last_batch::drop` does
/// not favor any length. (Sorting within a pool of batches: Morishita et al., "An empirical study
/// of mini-batch creation strategies for neural machine translation", 2017.)
///
/// The lengths are an array that must outlive the sampler (a temporary is a compile-time error), or
/// a noexcept function of the index such as
/// `[&](std::uint64_t i) noexcept { return texts.length(i); }`. The function is called once for
/// each sample and epoch, by one thread at a time. Memory use is 56 bytes for each sample in a
/// window, independent of the dataset size. Copies share the memory. Thread-safe. Each chunk of
/// samples acquires a lock, which is also held while a window is made.
///
/// PyTorch has no counterpart in core. `group_by_length` of Hugging Face's Trainer is similar. An
/// order references the sampler, so the sampler or a copy must outlive its orders. A loader ensures
/// this. Calling `order` on a temporary is a compile-time error. Throws `option_error` for a batch
/// size or window of 0, and for a window of more than 2^24 samples. `size` and `order` throw
/// `option_error` if the sizes of array and dataset differ, and std::invalid_argument unless 1 <= n
/// <= 2^63.
template <detail::length_function Lengths>
class bucketed {
 public:
  /// True because the sampler does not own the lengths.
  static constexpr bool borrows = true;

  /// Groups samples by `lengths`.
  bucketed(Lengths lengths, const bucketed_options& options)
      : options_(checked(options)),
        windows_(std::make_shared<detail::length_windows<Lengths>>(
            std::move(lengths), options.batch_size, options.window)) {}

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    require_size(n);
    return n;
  }
  [[nodiscard]] detail::bucketed_order<Lengths> order(std::uint64_t n, std::uint64_t epoch) const& {
    require_size(n);
    return {*windows_, n, options_.seed, epoch};
  }
  detail::bucketed_order<Lengths> order(std::uint64_t n, std::uint64_t epoch) && = delete;

  /// Returns the options.
  [[nodiscard]] const bucketed_options& options() const noexcept { return options_; }

 private:
  static const bucketed_options& checked(const bucketed_options& options) {
    constexpr std::size_t max = std::size_t{1} << 24;
    if (options.batch_size == 0) {
      throw option_error("batch_size", "must be the loader's batch_size, at least 1, but is 0");
    }
    if (options.window == 0) throw option_error("window", "must be at least 1, but is 0");
    if (options.window > max / options.batch_size) {
      detail::throw_option_error("window", {options.window, " batches of ", options.batch_size,
                                            " samples exceed 2^24 samples"});
    }
    return options;
  }

  void require_size(std::uint64_t n) const {
    if constexpr (requires { windows_->lengths().size(); }) {
      detail::require_one_each("lengths", n, windows_->lengths().size());
    }
  }

  bucketed_options options_;
  std::shared_ptr<detail::length_windows<Lengths>> windows_;
};

/// Deduces an array of lengths, which must outlive the sampler.
template <std::ranges::contiguous_range Range>
  requires(std::ranges::sized_range<Range> && std::integral<std::ranges::range_value_t<Range>>)
bucketed(Range&&, const bucketed_options&)
    -> bucketed<detail::length_array<std::ranges::range_value_t<Range>>>;

static_assert(epoch_order<detail::bucketed_order<detail::length_array<std::uint32_t>>>);
static_assert(sampler<bucketed<detail::length_array<std::uint32_t>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
