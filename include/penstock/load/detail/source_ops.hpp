// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/adaptor_base.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/lookahead_thread.hpp>
#include <penstock/load/detail/read_supervisor.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/load/support/ragged_batches.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// True if a failed chunk always identifies the failed sample, because `read_chunk` reads samples
/// one by one. A dataset that reads whole chunks, wrapped in an adaptor, reports the first sample
/// of the chunk if the failed sample is unknown.
template <dataset D>
inline constexpr bool names_failed_sample = !reads_chunks<D> && !reads_chunks_in_context<D>;
template <dataset D>
inline constexpr bool names_failed_sample<dataset_ref<D>> = names_failed_sample<D>;

/// The capabilities of a dataset and a sampler. A loader skips calls for absent capabilities.
struct source_facts {
  bool borrows = false;           ///< true if reads need memory that the dataset does not own
  bool is_ragged = false;         ///< true if batches have ragged fields
  bool is_placed = false;         ///< true if `place` must be called before samples are read
  bool finishes_batches = false;  ///< true if there is a `map_batch`
};

/// The type-erased interface of the loader core to the dataset and the sampler. A chunk costs two
/// virtual calls, `pick` and `read`, and a batch one more, `bind_order`. The loops over samples run
/// inside these calls and are inlined there.
class source_ops {
 public:
  source_ops() = default;
  source_ops(source_ops&&) = delete;
  virtual ~source_ops() = default;

  [[nodiscard]] virtual source_facts facts() const noexcept = 0;
  /// Returns the dataset properties for a `read_supervisor`. Valid for the lifetime of this object.
  [[nodiscard]] virtual supervised_data guarded() const = 0;
  /// Returns the scratch memory size of one reading thread in bytes.
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  /// Reads `samples` into the batch in `slab`, starting at position `first`, with the random bits
  /// of `key` and the thread's `memory`. Samples are timed unless `times` is null. Exceptions of
  /// the dataset propagate, in which case `memory.progress()` is the chunk position of the failure.
  /// Several threads may call this concurrently.
  virtual void read(std::span<const std::uint64_t> samples, std::byte* slab, std::size_t first,
                    const random_key& key, chunk_memory& memory, sample_clock* times) const = 0;
  /// Creates the object that announces upcoming samples to the dataset. Returns null if the dataset
  /// does not accept announcements.
  [[nodiscard]] virtual std::unique_ptr<look_ahead> make_lookahead(
      const schedule& batches, const loader_options& options, loader_observer& observer) const = 0;
  /// Returns a hash of the order and the selections made by adaptors. Any thread may call this.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  /// Returns the total number of samples that all ranks draw in an epoch.
  [[nodiscard]] virtual std::uint64_t total_samples() const noexcept = 0;
  /// Returns the number of ranks over which the sampler divides an epoch.
  [[nodiscard]] virtual std::uint64_t world() const noexcept = 0;
  /// Returns the number of batches in a step over all ranks if the sampler specifies batch sizes,
  /// and otherwise 0.
  [[nodiscard]] virtual std::uint64_t batches_per_step() const noexcept = 0;
  /// Returns the size of the dataset when the loader was created.
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  /// Returns the warnings of the dataset (see `warnings_of`).
  [[nodiscard]] virtual std::vector<std::string> warnings() const = 0;

  /// Allocates the orders of `count` slots. Called once, before the first batch.
  virtual void take_slots(std::size_t count) = 0;
  /// Creates the order of `epoch`, which later calls to `bind_order` use. Propagates exceptions
  /// from the sampler and the dataset. Throws `dataset_changed`. After an exception, `bind_order`
  /// returns false. Called by the opener.
  virtual void make_order(std::uint64_t epoch) = 0;
  /// Assigns the last created order to the batch in `slot`. Returns false if that order could not
  /// be created. Called by the opener.
  virtual bool bind_order(std::uint32_t slot) noexcept = 0;
  /// Sets `out` to the dataset indices of `batch` in `slot`, starting at position `begin` in the
  /// batch.
  virtual void pick(std::uint32_t slot, const batch_info& batch, std::size_t begin,
                    std::span<std::uint64_t> out) const noexcept = 0;

  /// Sets the size of the batch in `slot` to the size that its order specifies. Assigns positions
  /// in `slab` to the samples of a ragged batch. An exception is stored with the batch. Called by
  /// the opener.
  virtual void place(std::uint32_t slot, batch_work& batch, std::byte* slab) const noexcept = 0;
  /// Applies the batch transformations of the dataset (see `map_batch`) to a batch that has been
  /// read. An exception is stored with the batch.
  virtual void finish_batch(batch_work& batch, std::byte* slab,
                            std::uint64_t seed) const noexcept = 0;
};

/// The operations of a dataset and a sampler, and the plan and layout of their batches. Owns the
/// dataset and the sampler.
template <dataset Dataset, sampler Sampler>
class source_of final : public source_ops {
 public:
  using record_type = typename Dataset::record_type;
  using order_type = order_of<Sampler>;
  static_assert(std::is_trivially_copyable_v<order_type>, "copied for each batch, never throws");

  /// Creates the operations for batches with resolved options. Propagates exceptions from the
  /// dataset and the sampler. Throws `empty_dataset`, `option_error` and `layout_error`.
  template <class Data>
  source_of(Data&& data, const Sampler& order, const loader_options& options)
      : data_(std::forward<Data>(data)),
        size_(size_of(data_)),
        lengths_(extents_of(data_)),
        sampler_(order),
        total_(total_size(sampler_, size_)),
        plan_(sampler_.size(size_), options.batch_size, options.last_batch, total_),
        layout_(extents_for(lengths_, options), options.batch_size) {}

  /// Returns the plan that divides epochs into batches.
  [[nodiscard]] const epoch_plan& plan() const noexcept { return plan_; }
  /// Returns the layout of the batches.
  [[nodiscard]] const batch_layout<record_type>& layout() const noexcept { return layout_; }

  [[nodiscard]] source_facts facts() const noexcept override {
    return {.borrows = borrows<Dataset> || borrows<Sampler>,
            .is_ragged = reports_lengths<Dataset>,
            .is_placed = reports_lengths<Dataset> || cuts_batches<Sampler>,
            .finishes_batches = finishes_batches<Dataset>};
  }
  [[nodiscard]] supervised_data guarded() const override {
    return {.size = size_,
            .base_sizes = base_sizes_of(data_),
            .names_failed_sample = names_failed_sample<Dataset>,
            .origin = [this](std::uint64_t sample) { return origin_of(data_, sample); }};
  }
  [[nodiscard]] std::size_t scratch_bytes() const override { return scratch_bytes_of(data_); }
  // Creates the context in this function instead of the caller, so that the loop over the samples
  // keeps it in registers.
  void read(std::span<const std::uint64_t> samples, std::byte* slab, std::size_t first,
            const random_key& key, chunk_memory& memory, sample_clock* times) const override {
    read_chunk(data_, samples, {slab, layout_, first, samples.size()},
               memory.begin(samples, key, times));
  }
  [[nodiscard]] std::unique_ptr<look_ahead> make_lookahead(
      [[maybe_unused]] const schedule& batches, [[maybe_unused]] const loader_options& options,
      [[maybe_unused]] loader_observer& observer) const override {
    if constexpr (looks_ahead<Dataset>) {
      auto made = std::make_unique<lookahead_thread<Dataset, Sampler>>(
          data_, size_, sampler_, batches, layout_, options, observer);
      if (made->is_on()) return made;
    }
    return nullptr;
  }
  [[nodiscard]] std::uint64_t fingerprint() const override {
    const std::uint64_t order = order_fingerprint(global_sampler(sampler_), size_);
    const std::uint64_t chosen = fingerprint_of(data_);
    if (chosen == 0) return order;
    word_hash both{order};
    both.add(chosen);
    return both.value();
  }
  [[nodiscard]] std::uint64_t total_samples() const noexcept override { return total_; }
  [[nodiscard]] std::uint64_t world() const noexcept override { return world_size(sampler_); }
  [[nodiscard]] std::uint64_t batches_per_step() const noexcept override {
    if constexpr (cuts_batches<Sampler>) return sampler_.batches_per_step();
    return 0;
  }
  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  [[nodiscard]] std::vector<std::string> warnings() const override { return warnings_of(data_); }

  void take_slots(std::size_t count) override { orders_ = std::make_unique<slot_order[]>(count); }
  void make_order(std::uint64_t epoch) override {
    order_.reset();
    const std::uint64_t now = data_.size();
    if (now != size_) throw dataset_changed(size_, now, epoch);
    if (const auto lengths = extents_of(data_); lengths != lengths_) {
      throw dataset_changed(shape_text<record_type>(lengths_), shape_text<record_type>(lengths),
                            size_, epoch);
    }
    order_.emplace(sampler_.order(size_, epoch));
  }
  bool bind_order(std::uint32_t slot) noexcept override {
    orders_[slot].value = order_;
    return order_.has_value();
  }
  void pick(std::uint32_t slot, const batch_info& batch, std::size_t begin,
            std::span<std::uint64_t> out) const noexcept override {
    pick_samples(std::as_const(*orders_[slot].value), plan_, batch, begin, out);
  }

  void place([[maybe_unused]] std::uint32_t slot, [[maybe_unused]] batch_work& batch,
             [[maybe_unused]] std::byte* slab) const noexcept override {
    if (batch.has_order) cut_batch(*orders_[slot].value, batch.info);
    if constexpr (reports_lengths<Dataset>) {
      place_samples(data_, std::as_const(*orders_[slot].value), plan_, batch,
                    batch_view<record_type>{slab, layout_, 0, batch.info.size});
    }
  }
  // Not inlined, so that the compiler does not move arithmetic across the code that sets
  // flush-to-zero around the call.
  [[gnu::noinline]] void finish_batch([[maybe_unused]] batch_work& batch,
                                      [[maybe_unused]] std::byte* slab,
                                      [[maybe_unused]] std::uint64_t seed) const noexcept override {
    if constexpr (finishes_batches<Dataset>) {
      if (!batch.has_order || batch.failed() || batch.info.size == 0) return;
      try {
        sample_generator rng{{seed, batch.info.epoch, batch_stage}, batch.info.batch};
        data_.finish_batch({slab, layout_, 0, batch.info.size}, rng);
      } catch (...) {
        batch.record_failed(
            {std::current_exception(), failure{"batch", batch.info.epoch, batch.info.batch}});
      }
    }
  }

 private:
  // Returns the size of `data`. If the size is 0, throws `empty_dataset` with the warnings of the
  // dataset.
  [[nodiscard]] static std::uint64_t size_of(const Dataset& data) {
    const std::uint64_t size = data.size();
    if (size != 0) return size;
    std::string text = "loader: the dataset has 0 samples";
    for (const std::string& why : warnings_of(data)) text += "; " + why;
    throw empty_dataset(text + ": check the files that it reads");
  }

  // Each order is on a separate cache line, because the opener writes the order of one slot while
  // workers read the order of another slot.
  struct alignas(cache_line) slot_order {
    std::optional<order_type> value;
  };

  Dataset data_;
  // Size at construction, which must be the same in every epoch.
  std::uint64_t size_;
  // Extents at construction, which must be the same in every epoch.
  record_extents<record_type> lengths_;
  Sampler sampler_;
  std::uint64_t total_;
  epoch_plan plan_;
  batch_layout<record_type> layout_;
  // The order that the opener created last. Empty if it could not be created.
  std::optional<order_type> order_;
  std::unique_ptr<slot_order[]> orders_;  // indexed by slot
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
