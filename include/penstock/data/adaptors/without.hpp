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
#include <penstock/data/adaptors/detail/subset_dataset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// All samples of a dataset but some. Takes 8 bytes for each that is left out.
class index_complement {
 public:
  /// Leaves `out`, which is sorted and has each index once, out of `whole` samples.
  index_complement(std::vector<std::uint64_t> out, std::uint64_t whole)
      : gaps_(std::move(out)), size_(whole - gaps_.size()) {
    // How many samples stay below each one that is left out: what `operator[]` looks for.
    for (std::size_t i = 0; i < gaps_.size(); ++i) gaps_[i] -= i;
  }

  /// How many samples are in.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The index in the whole of sample `i` of the part; its time grows with the logarithm of the
  /// number of those left out.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept {
    const auto after = std::upper_bound(gaps_.begin(), gaps_.end(), i);
    return i + static_cast<std::uint64_t>(after - gaps_.begin());
  }
  /// Hashes what makes this selection differ from others.
  void add_to(word_hash& hash) const noexcept {
    hash.add(3);  // of a complement
    for (const std::uint64_t gap : gaps_) hash.add(gap);
  }
  /// It is made for the dataset that it is given.
  void check(std::uint64_t) const noexcept {}

 private:
  std::vector<std::uint64_t> gaps_;
  std::uint64_t size_;
};

/// The indices in `data` of the samples that its dataset `part` at the bottom calls by an index of
/// `out`, which is sorted. Throws `index_error`.
template <dataset D>
[[nodiscard]] std::vector<std::uint64_t> indices_from(const D& data,
                                                      const std::vector<std::uint64_t>& out,
                                                      std::uint64_t part) {
  const std::vector<std::uint64_t> bottom = base_sizes_of(data);
  if (part >= bottom.size()) {
    throw index_error(part, bottom.size(),
                      "without: there is no part " + std::to_string(part) + ": the pipeline has " +
                          std::to_string(bottom.size()) + " at its bottom, counted from 0");
  }
  if (!out.empty() && out.back() >= bottom[static_cast<std::size_t>(part)]) {
    throw index_error("without: the largest entry of the list", out.back(),
                      bottom[static_cast<std::size_t>(part)]);
  }
  if constexpr (!has_origins<D>) {
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

/// What `without(...)` returns: `data | without(bad)`.
class without_adaptor : public adaptor<without_adaptor> {
 public:
  /// Holds the list until a dataset comes.
  without_adaptor(std::vector<std::uint64_t> out, std::uint64_t part)
      : out_(std::move(out)), part_(part) {
    std::sort(out_.begin(), out_.end());
    out_.erase(std::unique(out_.begin(), out_.end()), out_.end());
  }

  /// The rest of the dataset `data`.
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

/// The samples of a dataset but those of a list, in their order: `data | without(bad)`, where `bad`
/// is what `read_quarantine` reads.
///
/// The list names samples as the dataset at the bottom of the pipeline does, below `subset`, `map`
/// and `concat`, as a quarantine list has them; where `concat` joins several, as dataset `part` of
/// them does, counted from 0. So one list serves a whole dataset and any part of it; what a part
/// does not have is passed over. In any order, also twice. Over a dataset that adapts nothing, the
/// list counts; else each sample is asked once for where it comes from.
///
/// Access takes a search in the list, and nothing is held for samples that stay. Sizes, orders and
/// the fingerprint in a `loader_state` are others without than with these samples: a state is
/// refused where the lists differ. To leave samples out of a run that is under way, see
/// `error_policy::known_bad`.
///
/// Applied to a dataset it throws `index_error` where an index is not below that dataset's size, or
/// there is no such part.
[[nodiscard]] inline detail::without_adaptor without(std::vector<std::uint64_t> indices,
                                                     std::uint64_t part = 0) {
  return {std::move(indices), part};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
