// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The complement of a list of indices. Uses 8 bytes for each excluded sample.
class index_complement {
 public:
  /// Excludes the indices `out` from `whole` samples. `out` must be sorted without duplicates.
  index_complement(std::vector<std::uint64_t> out, std::uint64_t whole)
      : gaps_(std::move(out)), size_(whole - gaps_.size()) {
    // Computes the number of remaining samples before each excluded sample, which `operator[]`
    // searches.
    for (std::size_t i = 0; i < gaps_.size(); ++i) gaps_[i] -= i;
  }

  /// Returns the number of remaining samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Returns the index of remaining sample `i` in the whole dataset, in O(log n) time for n
  /// excluded samples.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept {
    const auto after = std::upper_bound(gaps_.begin(), gaps_.end(), i);
    return i + static_cast<std::uint64_t>(after - gaps_.begin());
  }
  /// Adds the selection to a hash.
  void add_to(word_hash& hash) const noexcept {
    hash.add(3);  // identifies a complement
    hash.add_all(gaps_);
  }
  /// Does nothing, because the complement was created for this dataset.
  void check(std::uint64_t) const noexcept {}

 private:
  std::vector<std::uint64_t> gaps_;
  std::uint64_t size_;
};

/// Returns the indices in `data` of samples whose index in the underlying dataset `part` is in
/// `out`. `out` must be sorted. Throws `index_error` if `part` or an index in `out` is out of
/// range.
template <dataset D>
[[nodiscard]] std::vector<std::uint64_t> indices_from(const D& data,
                                                      const std::vector<std::uint64_t>& out,
                                                      std::uint64_t part) {
  const std::vector<std::uint64_t> bottom = base_sizes_of(data);
  if (part >= bottom.size()) {
    throw index_error(part, bottom.size(),
                      "exclude: there is no part " + std::to_string(part) + ": the pipeline has " +
                          std::to_string(bottom.size()) + " base datasets, counted from 0");
  }
  if (!out.empty() && out.back() >= bottom[static_cast<std::size_t>(part)]) {
    throw index_error("exclude: the largest entry of the list", out.back(),
                      bottom[static_cast<std::size_t>(part)]);
  }
  if constexpr (!has_origins<D> && !has_bases<D>) {
    return out;
  } else {
    std::vector<std::uint64_t> found;
    if (out.empty()) return found;
    for (std::uint64_t i = 0, size = data.size(); i < size; ++i) {
      const sample_origin from = origin_of(data, i);
      if (from.part == part && std::binary_search(out.begin(), out.end(), from.index)) {
        found.push_back(i);
      }
    }
    return found;
  }
}

/// The adaptor returned by `exclude`, as in `data | exclude(bad)`.
class exclude_adaptor : public adaptor<exclude_adaptor> {
 public:
  exclude_adaptor(std::vector<std::uint64_t> out, std::uint64_t part)
      : out_(std::move(out)), part_(part) {
    std::sort(out_.begin(), out_.end());
    out_.erase(std::unique(out_.begin(), out_.end()), out_.end());
  }

  /// Returns the dataset `data` without the listed samples.
  template <class Data>
  [[nodiscard]] auto operator()(Data&& data) && {
    using base = stored_dataset_t<Data>;
    base whole(std::forward<Data>(data));
    index_complement rest{indices_from(whole, out_, part_), whole.size()};
    return subset_dataset<base, index_complement>{std::move(whole), std::move(rest)};
  }

 private:
  std::vector<std::uint64_t> out_;
  std::uint64_t part_;
};

}  // namespace detail

/// Excludes listed samples and preserves the order of the others: `data | exclude(bad)`. `bad` may
/// be the result of `read_quarantine`.
///
/// Like a quarantine list, the list contains indices of the underlying dataset, which `subset`,
/// `map` and `concat` wrap. If `concat` joins several datasets, the list is for dataset `part`,
/// counted from 0. Therefore the same list can be used for a dataset and its subsets, which ignore
/// indices that they do not contain. The list may be unsorted and contain duplicates. For an
/// adapted dataset, queries the origin of each sample once.
///
/// Each access is a binary search in the list. Memory use depends only on the number of excluded
/// samples. The size, order and fingerprint in a `loader_state` depend on the list, so a state
/// saved with a different list is rejected. To exclude samples during training, see
/// `error_policy::quarantine_list`.
///
/// Applying the adaptor throws `index_error` if an index is out of range in the underlying dataset,
/// or if `part` does not exist.
[[nodiscard]] inline detail::exclude_adaptor exclude(std::vector<std::uint64_t> indices,
                                                     std::uint64_t part = 0) {
  return {std::move(indices), part};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
