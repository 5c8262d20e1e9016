// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/adaptor_base.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The samples [first, last) of a dataset.
struct index_range {
  /// First index of the subset.
  std::uint64_t first = 0;
  /// One past the last index of the subset.
  std::uint64_t last = 0;

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return last - first; }
  /// Returns the index of sample `i` in the whole dataset.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept { return first + i; }

  /// Adds the selection to `hash`.
  void add_to(word_hash& hash) const noexcept { hash.add_all({1 /* of a range */, first, last}); }

  /// Throws `index_error` if the range exceeds a dataset of `size` samples.
  void check(std::uint64_t size) const {
    if (first > last) {
      throw index_error(
          first, last,
          str_cat({"subset: the range from ", first, " to ", last, " ends before its beginning"}));
    }
    if (last > size) throw index_error("subset: the end of the range", last, size);
  }
};

/// Samples selected by index, in any order and with duplicates.
struct index_list {
  /// Selected indices, in order.
  std::vector<std::uint64_t> indices;

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return indices.size(); }
  /// Returns the index of sample `i` in the whole dataset.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept { return indices[i]; }

  /// Adds the selection to `hash`.
  void add_to(word_hash& hash) const noexcept {
    hash.add(2);  // identifies a list
    hash.add_all(indices);
  }

  /// Throws `index_error` if an index is out of range for a dataset of `size` samples.
  void check(std::uint64_t size) const {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < size) continue;
      throw index_error(str_cat({"subset: entry ", i, " of the list"}), indices[i], size);
    }
  }
};

/// A subset of a dataset (see `subset`).
template <class Base, class Selection>
class subset_dataset : public adaptor_base<Base> {
 public:
  using record_type = typename Base::record_type;
  static constexpr bool borrows = detail::borrows<Base>;

  /// Selects samples of `base`. Throws `index_error` if the selection exceeds the dataset.
  subset_dataset(Base base, Selection selection)
      : adaptor_base<Base>(std::move(base)), selection_(std::move(selection)) {
    selection_.check(base_.size());
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return selection_.size(); }
  [[nodiscard]] sample_lengths<record_type> lengths(std::uint64_t index) const
    requires reports_lengths<Base>
  {
    return lengths_of(base_, translate(index));
  }
  [[nodiscard]] std::uint64_t fingerprint() const {
    word_hash hash{fingerprint_of(base_)};
    selection_.add_to(hash);
    hash.add(selection_.size());  // so that nested lists differ from a single combined list
    return hash.value();
  }

  /// Reads the samples from the underlying dataset. Throws `index_error` if an index is out of
  /// range. Exceptions of the dataset propagate.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    // Reads in pieces of a fixed size to avoid allocation.
    std::array<std::uint64_t, 64> below;
    for (std::size_t begin = 0; begin < indices.size(); begin += below.size()) {
      const std::size_t count = (std::min)(below.size(), indices.size() - begin);
      for (std::size_t i = 0; i < count; ++i) {
        context.at(begin + i);
        below[i] = translate(indices[begin + i]);
      }
      penstock::read_chunk(base_, std::span<const std::uint64_t>{below}.first(count),
                           out.subchunk(begin, count), context.subchunk(begin, count));
    }
  }

  [[nodiscard]] const_sample<record_type> view(std::uint64_t index) const
    requires views_samples<Base>
  {
    return base_.view(translate(index));
  }

  void prefetch(std::uint64_t index) const noexcept
    requires prefetches<Base>
  {
    if (index < size()) base_.prefetch(selection_[index]);
  }

  /// Calls `f` with the underlying dataset and the sample indices in that dataset, up to 64 at a
  /// time.
  template <class F>
  void each_base(std::span<const std::uint64_t> indices, const F& f) const {
    std::array<std::uint64_t, 64> selected;
    do {
      const auto some = indices.first((std::min)(selected.size(), indices.size()));
      std::size_t count = 0;
      for (const std::uint64_t index : some) {
        if (index < size()) selected[count++] = selection_[index];
      }
      f(base_, std::span<const std::uint64_t>{selected}.first(count));
      indices = indices.subspan(some.size());
    } while (!indices.empty());
  }

 private:
  [[nodiscard]] std::uint64_t translate(std::uint64_t index) const {
    if (index >= size()) throw index_error("subset", index, size());
    return selection_[index];
  }

  using adaptor_base<Base>::base_;
  Selection selection_;
};

/// The adaptor returned by `subset`.
template <class Selection>
using subset_adaptor = holding_adaptor<subset_dataset, Selection>;

}  // namespace detail

/// Selects samples by index, in list order: `data | subset({3, 1, 3})`. The list is moved in.
/// Applying the adaptor throws `index_error` if an index is out of range.
[[nodiscard]] inline detail::subset_adaptor<detail::index_list> subset(
    std::vector<std::uint64_t> indices) {
  return detail::subset_adaptor<detail::index_list>{detail::index_list{std::move(indices)}};
}

/// Selects the samples [first, last): `data | subset(0, 50'000)`. Applying the adaptor throws
/// `index_error` if the range exceeds the dataset.
[[nodiscard]] inline detail::subset_adaptor<detail::index_range> subset(std::uint64_t first,
                                                                        std::uint64_t last) {
  return detail::subset_adaptor<detail::index_range>{
      detail::index_range{.first = first, .last = last}};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
