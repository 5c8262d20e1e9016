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
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/guarded_reader.hpp>
#include <penstock/load/detail/lookahead_thread.hpp>
#include <penstock/load/detail/plan.hpp>
#include <penstock/load/detail/ragged_batches.hpp>
#include <penstock/load/detail/read_guard.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a dataset and a sampler can do, of what a loader need not ask where they can't.
struct source_facts {
  bool borrows = false;           ///< reading needs memory of another owner
  bool is_ragged = false;         ///< batches have ragged fields
  bool is_placed = false;         ///< `place` has to be called before samples are read
  bool finishes_batches = false;  ///< there is a `map_batch`
};

/// All that a loader's core asks of its dataset and sampler, whose types it does not know. A chunk
/// costs two virtual calls, `fill` and `chunk_reader::read`, and a batch one more, `bind_order`.
/// The loops over samples run inside these calls and are inlined there.
class source_ops {
 public:
  source_ops() = default;
  source_ops(source_ops&&) = delete;
  virtual ~source_ops() = default;

  [[nodiscard]] virtual source_facts facts() const noexcept = 0;
  /// For a `read_guard`.
  [[nodiscard]] virtual guarded_data guarded() const = 0;
  /// The way of one thread to the dataset.
  [[nodiscard]] virtual std::unique_ptr<chunk_reader> make_reader() const = 0;
  /// Announces coming samples to the dataset; null if it takes no announcements.
  [[nodiscard]] virtual std::unique_ptr<look_ahead> make_teller(
      const schedule& batches, const loader_options& options, loader_observer& observer) const = 0;
  /// A hash of the order, and of what adaptors choose. From any thread.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  /// Over how many ranks the sampler divides an epoch.
  [[nodiscard]] virtual std::uint64_t world() const noexcept = 0;
  /// Over all ranks, of a sampler that cuts batches itself; 0: it does not.
  [[nodiscard]] virtual std::uint64_t batches_per_step() const noexcept = 0;
  /// How many samples the dataset had when the loader was made.
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  /// See `warnings_of`.
  [[nodiscard]] virtual std::vector<std::string> warnings() const = 0;

  /// Before there are batches: they lie in so many slots.
  virtual void take_slots(std::size_t count) = 0;
  /// Opener: the batches that are bound from now on have the order of `epoch`. Throws what the
  /// sampler and the dataset do, and `dataset_changed`; there is no order then.
  virtual void make_order(std::uint64_t epoch) = 0;
  /// Opener: the batch in `slot` has the order that was made last; false where there is none.
  virtual bool bind_order(std::uint32_t slot) noexcept = 0;
  /// The dataset indices at the positions from `first` on of the order of the batch in `slot`.
  virtual void fill(std::uint32_t slot, std::uint64_t first,
                    std::span<std::uint64_t> out) const noexcept = 0;

  /// Opener: gives the batch in `slot` the number of samples that its order says, and the samples
  /// of a ragged one their places in `slab`. What is thrown stays with the batch.
  virtual void place(std::uint32_t slot, const epoch_plan& plan, batch_work& batch,
                     std::byte* slab) const noexcept = 0;
  /// Does with a batch that is read what the dataset does with whole batches, see `map_batch`. What
  /// that throws stays with the batch.
  virtual void finish_batch(batch_work& batch, std::byte* slab,
                            std::uint64_t seed) const noexcept = 0;
};

/// The order of the batch in a slot, as `pick_samples` asks for it.
struct order_in_slot {
  const source_ops* source;
  std::uint32_t slot;
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    source->fill(slot, first, out);
  }
};

/// Those of a dataset and a sampler, which it owns, with the plan and the layout of their batches.
template <dataset Dataset, sampler Sampler>
class source_of final : public source_ops {
 public:
  using record_type = typename Dataset::record_type;
  using order_type = order_of<Sampler>;
  static_assert(std::is_trivially_copyable_v<order_type>, "copied for each batch, never throws");

  /// For batches by resolved options. Throws what the two throw, `empty_dataset`, `option_error`,
  /// and `layout_error`.
  template <class Data>
  source_of(Data&& data, const Sampler& order, const loader_options& options)
      : data_(std::forward<Data>(data)),
        size_(data_.size()),
        sampler_(order),
        plan_(sampler_.size(size_), options.batch_size, options.last_batch),
        layout_(extents_for(extents_of(data_), options), options.batch_size) {}

  /// How epochs are cut into batches.
  [[nodiscard]] const epoch_plan& plan() const noexcept { return plan_; }
  /// Where their fields lie.
  [[nodiscard]] const batch_layout<record_type>& layout() const noexcept { return layout_; }

  [[nodiscard]] source_facts facts() const noexcept override {
    return {.borrows = borrows<Dataset> || borrows<Sampler>,
            .is_ragged = tells_lengths<Dataset>,
            .is_placed = tells_lengths<Dataset> || cuts_batches<Sampler>,
            .finishes_batches = finishes_batches<Dataset>};
  }
  [[nodiscard]] guarded_data guarded() const override { return facts_of(data_, size_); }
  [[nodiscard]] std::unique_ptr<chunk_reader> make_reader() const override {
    return std::make_unique<chunk_reader_of<Dataset>>(data_, layout_);
  }
  [[nodiscard]] std::unique_ptr<look_ahead> make_teller(
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
    order_.emplace(sampler_.order(size_, epoch));
  }
  bool bind_order(std::uint32_t slot) noexcept override {
    orders_[slot].value = order_;
    return order_.has_value();
  }
  void fill(std::uint32_t slot, std::uint64_t first,
            std::span<std::uint64_t> out) const noexcept override {
    std::as_const(orders_[slot].value)->fill(first, out);
  }

  void place([[maybe_unused]] std::uint32_t slot, [[maybe_unused]] const epoch_plan& plan,
             [[maybe_unused]] batch_work& batch,
             [[maybe_unused]] std::byte* slab) const noexcept override {
    if (batch.has_order) cut_batch(*orders_[slot].value, batch.info);
    if constexpr (tells_lengths<Dataset>) {
      place_samples(data_, order_in_slot{this, slot}, plan, batch,
                    batch_view<record_type>{slab, layout_, 0, batch.info.size});
    }
  }
  // A function of its own, so that no arithmetic moves out of what flushes denormals around its
  // call.
  [[gnu::noinline]] void finish_batch([[maybe_unused]] batch_work& batch,
                                      [[maybe_unused]] std::byte* slab,
                                      [[maybe_unused]] std::uint64_t seed) const noexcept override {
    if constexpr (finishes_batches<Dataset>) {
      if (!batch.has_order || batch.failed() || batch.info.size == 0) return;
      try {
        sample_generator rng{{seed, batch.info.epoch, batch_stage}, batch.info.batch};
        data_.finish_batch({slab, layout_, 0, batch.info.size}, rng);
      } catch (...) {
        batch.note_failed(
            {std::current_exception(), failure{"batch", batch.info.epoch, batch.info.batch}});
      }
    }
  }

 private:
  // On a cache line of its own: the opener writes the next one while workers read this one.
  struct alignas(cache_line) slot_order {
    std::optional<order_type> value;
  };

  Dataset data_;
  std::uint64_t size_;  // when the plan was made: what it has to be in every epoch
  Sampler sampler_;
  epoch_plan plan_;
  batch_layout<record_type> layout_;
  std::optional<order_type> order_;       // of the opener; empty where making it has thrown
  std::unique_ptr<slot_order[]> orders_;  // by slot
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
