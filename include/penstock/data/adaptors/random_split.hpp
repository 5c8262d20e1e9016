// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/adaptor_base.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Labels by which `random_split` stratifies (see `stratified`).
template <class Labels>
struct stratification {
  Labels labels;
};

/// Labels read from a field of each sample.
template <name Field>
struct field_labels {};

/// The default: `random_split` does not stratify.
struct no_labels {};

/// The exact quotient and remainder of `whole * part / total`.
struct share {
  share(std::uint64_t whole, std::uint64_t part, std::uint64_t total) noexcept {
    __extension__ using wide = unsigned __int128;
    const wide product = wide{whole} * part;
    quotient = static_cast<std::uint64_t>(product / total);
    rest = static_cast<std::uint64_t>(product % total);
  }
  std::uint64_t quotient;
  std::uint64_t rest;
};

/// Returns the part sizes, computed by the method of largest remainders. Ties go to the earlier
/// part. Fractions are rounded to multiples of 10^-15, so that decimal fractions are exact. Throws
/// `option_error` if the fractions are invalid.
[[nodiscard]] inline std::vector<std::uint64_t> split_sizes(std::uint64_t samples,
                                                            std::span<const double> fractions) {
  constexpr double units = 1e15;
  constexpr double tolerance = 1e-6;
  if (fractions.empty()) throw_option_error("fractions", {"must not be empty"});
  std::vector<std::uint64_t> weights;
  double sum = 0;
  for (const double fraction : fractions) {
    if (!(fraction >= 0 && fraction <= 1)) {
      throw_option_error("fractions", {"must lie in [0, 1], found ", to_text(fraction),
                                       " for part ", weights.size()});
    }
    // Rounds with llround. Adding 0.5 to the product would be fused by some compilers, and the
    // sizes would then differ between machines.
    weights.push_back(static_cast<std::uint64_t>(__builtin_llround(fraction * units)));
    sum += fraction;
  }
  if (!(std::abs(sum - 1) <= tolerance)) {
    throw_option_error("fractions", {"must have the sum 1, found ", to_text(sum),
                                     ": divide each weight by that sum"});
  }
  const std::uint64_t total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> rests;
  std::uint64_t left = samples;
  for (const std::uint64_t weight : weights) {
    const share one{samples, weight, total};
    sizes.push_back(one.quotient);
    rests.push_back(one.rest);
    left -= one.quotient;
  }
  std::vector<std::size_t> parts(sizes.size());
  std::iota(parts.begin(), parts.end(), std::size_t{0});
  std::nth_element(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(left), parts.end(),
                   [&](std::size_t a, std::size_t b) {
                     return rests[a] != rests[b] ? rests[a] > rests[b] : a < b;
                   });
  for (std::size_t i = 0; i < left; ++i) ++sizes[parts[i]];
  return sizes;
}

/// The samples at positions [first, first + size) of a random order, computed without an index
/// list.
class drawn_range {
 public:
  drawn_range(const permutation& order, std::uint64_t seed, std::uint64_t first,
              std::uint64_t size) noexcept
      : order_(order), seed_(seed), first_(first), size_(size) {}

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Returns the index of sample `i` in the whole dataset.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept {
    return order_(first_ + i);
  }
  /// Adds the selection to `hash`.
  void add_to(word_hash& hash) const noexcept {
    hash.add_all({4 /* of a random order */, seed_, order_.size(), first_});
  }
  /// Does nothing, because the range was created for this dataset.
  void check(std::uint64_t) const noexcept {}

 private:
  permutation order_;
  std::uint64_t seed_;
  std::uint64_t first_;
  std::uint64_t size_;
};

/// Returns parts of the given sizes, each with its share of every label. `labelled` contains pairs
/// of label and index.
///
/// For the first part, each class in order contributes the rounded cumulative share of all classes
/// so far, minus the samples that the part already has. Therefore each class contributes its share,
/// rounded up or down, and the part has its exact size. The remaining samples are distributed to
/// the next parts in the same way. The function is a template, so that only programs that stratify
/// compile it.
template <class Label>
[[nodiscard]] std::vector<index_list> stratified_parts(
    std::vector<std::pair<Label, std::uint64_t>> labelled, std::span<const std::uint64_t> sizes,
    std::uint64_t seed) {
  struct progress {
    std::uint64_t rest;         // samples of all classes for this part and later parts
    std::uint64_t counted = 0;  // samples of the previous classes for these parts
    std::uint64_t dealt = 0;
  };
  std::sort(labelled.begin(), labelled.end());
  std::vector<index_list> parts(sizes.size());
  std::vector<progress> steps;
  std::uint64_t rest = labelled.size();
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    parts[part].indices.reserve(static_cast<std::size_t>(sizes[part]));
    steps.push_back({rest});
    rest -= sizes[part];
  }
  for (std::size_t begin = 0; begin < labelled.size();) {
    const Label label = labelled[begin].first;
    std::size_t end = begin;
    while (end < labelled.size() && labelled[end].first == label) ++end;
    const permutation order{
        end - begin,
        {.seed = seed, .epoch = static_cast<std::uint64_t>(label), .stage = split_stage}};
    std::uint64_t next = 0;
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      progress& at = steps[part];
      at.counted += end - begin - next;
      if (at.rest == 0) continue;
      const share due{at.counted, sizes[part], at.rest};
      const std::uint64_t wanted = due.quotient + (due.rest >= at.rest - due.rest ? 1 : 0);
      for (; at.dealt < wanted; ++at.dealt, ++next) {
        parts[part].indices.push_back(labelled[begin + order(next)].second);
      }
    }
    begin = end;
  }
  // Shuffles each part. Otherwise its samples would be grouped by class, and a subset of the part
  // would miss most classes.
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    const std::vector<std::uint64_t> sorted = std::move(parts[part].indices);
    auto& indices = parts[part].indices;
    indices.resize(sorted.size());
    if (sorted.empty()) continue;
    const permutation order{sorted.size(),
                            {.seed = seed, .epoch = part, .stage = part_order_stage}};
    order.fill(0, indices);
    for (std::uint64_t& index : indices) index = sorted[static_cast<std::size_t>(index)];
  }
  return parts;
}

/// Calls `use(index, label)` for each sample of `data`.
template <dataset D, class Labels, class Use>
void each_label(const D& data, const Labels& labels, const Use& use) {
  for (std::uint64_t i = 0, size = data.size(); i < size; ++i) {
    use(i, static_cast<std::int64_t>(labels(i)));
  }
}

/// Reads labels from a field, through `view` if the dataset has it, otherwise 64 samples at a time.
template <dataset D, name Field, class Use>
void each_label(const D& data, const field_labels<Field>&, const Use& use) {
  using record = typename D::record_type;
  const auto label_of = [](const auto& one) { return static_cast<std::int64_t>(get<Field>(one)); };
  const std::uint64_t size = data.size();
  if constexpr (views_samples<D>) {
    for (std::uint64_t i = 0; i < size; ++i) use(i, label_of(data.view(i)));
  } else {
    std::array<std::uint64_t, 64> indices;
    const batch_layout<record> layout{extents_of(data), indices.size()};
    struct alignas(256) block {
      std::array<std::byte, 256> bytes;
    };
    std::vector<block> memory(layout.bytes() / sizeof(block) + 1);
    const batch_view<record> batch{memory.front().bytes.data(), layout, 0, indices.size()};
    reader<D> from{data};
    for (std::uint64_t first = 0; first < size; first += indices.size()) {
      const auto count =
          static_cast<std::size_t>((std::min)(size - first, std::uint64_t{indices.size()}));
      std::iota(indices.begin(), indices.end(), first);
      from.read(std::span{indices}.first(count), batch.subchunk(0, count), {});
      for (std::size_t i = 0; i < count; ++i) use(first + i, label_of(batch[i]));
    }
  }
}

/// True if the dataset has the labels. If a field cannot be a label, a static_assert reports it in
/// a readable sentence.
template <class D, class Labels>
inline constexpr bool has_labels = std::invocable<const Labels&, std::uint64_t>;
template <class D, name Field>
inline constexpr bool has_labels<D, field_labels<Field>> = [] {
  using record = typename D::record_type;
  static_assert(record::template has_field<Field>,
                "penstock::stratified: the record has no field of that name");
  if constexpr (record::template has_field<Field>) {
    using field = typename record::template field_at<record::template index_of<Field>()>;
    constexpr bool is_label = std::integral<typename field::value_type>;
    static_assert(is_label && field::extents_type::rank == 0,
                  "penstock::stratified: the field must be a single integer");
    static_assert(record::ragged_fields == 0,
                  "penstock::stratified: the fields of a ragged record cannot be read here: pass a "
                  "function of the index");
    return is_label && field::extents_type::rank == 0 && record::ragged_fields == 0;
  }
  return false;
}();

/// Returns the dataset that the parts of a split wrap: a reference to an lvalue, or a dataset that
/// shares ownership of an rvalue.
template <class Data>
[[nodiscard]] auto split_base(Data&& data) {
  if constexpr (std::is_lvalue_reference_v<Data>) {
    return stored_dataset_t<Data>(data);
  } else {
    using dataset_type = std::remove_cvref_t<Data>;
    return shared_dataset<dataset_type>{
        std::make_shared<const dataset_type>(std::forward<Data>(data))};
  }
}

/// Returns the parts of `base` selected by `chosen`.
template <std::size_t Parts, class Base, class Selection>
[[nodiscard]] auto split_into(const Base& base, std::vector<Selection> chosen) {
  using part = subset_dataset<Base, Selection>;
  if constexpr (Parts != 0) {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return std::array<part, Parts>{part{base, std::move(chosen[Is])}...};
    }(std::make_index_sequence<Parts>{});
  } else {
    std::vector<part> parts;
    parts.reserve(chosen.size());
    for (Selection& one : chosen) parts.emplace_back(base, std::move(one));
    return parts;
  }
}

/// Splits `data`. Returns the parts in an array of `Parts` elements, or in a vector if `Parts` is
/// 0.
template <std::size_t Parts, class Data, class Labels>
[[nodiscard]] auto split(Data&& data, std::span<const double> fractions, std::uint64_t seed,
                         const stratification<Labels>& by) {
  using dataset_type = std::remove_cvref_t<Data>;
  require_dataset<dataset_type>();
  reject_batch_maps<dataset_type>();
  if constexpr (dataset<dataset_type>) {
    const std::uint64_t all = data.size();
    const auto sizes = split_sizes(all, fractions);
    if constexpr (std::same_as<Labels, no_labels>) {
      const permutation order{(std::max)(all, std::uint64_t{1}),
                              {.seed = seed, .stage = split_stage}};
      std::vector<drawn_range> parts;
      std::uint64_t first = 0;
      for (const std::uint64_t size : sizes) {
        parts.emplace_back(order, seed, first, size);
        first += size;
      }
      return split_into<Parts>(split_base(std::forward<Data>(data)), std::move(parts));
    } else if constexpr (has_labels<dataset_type, Labels>) {
      std::vector<std::pair<std::int64_t, std::uint64_t>> labelled;
      labelled.reserve(static_cast<std::size_t>(all));
      each_label(std::as_const(data), by.labels, [&](std::uint64_t index, std::int64_t label) {
        labelled.emplace_back(label, index);
      });
      return split_into<Parts>(split_base(std::forward<Data>(data)),
                               stratified_parts(std::move(labelled), sizes, seed));
    }
  }
}

}  // namespace detail

/// Makes `random_split` assign to each part its share of each label. The label is the field
/// `Field`, a single integer. The calling thread reads each sample once, unless the dataset has
/// `view`. For images, pass a function instead to avoid decoding.
template <name Field>
[[nodiscard]] constexpr detail::stratification<detail::field_labels<Field>> stratified() {
  return {};
}

/// Stratifies by a function `label_of(index)` that returns the integer label of a sample, as in
/// `stratified([&](std::uint64_t i) { return photos.label(i); })`. Calls the function once for each
/// sample.
template <std::invocable<std::uint64_t> F>
  requires std::integral<std::invoke_result_t<const std::decay_t<F>&, std::uint64_t>>
[[nodiscard]] detail::stratification<std::decay_t<F>> stratified(F&& label_of) {
  return {std::forward<F>(label_of)};
}

/// Splits a dataset randomly into parts with the given fractions of its samples. With `stratified`,
/// each part has its share of each label:
///
///     auto [train, test] = ps::random_split(photos, {0.8, 0.2}, 1);
///     auto [fit, check, test] = ps::random_split(photos, {0.7, 0.1, 0.2}, 1,
///                                                ps::stratified<"label">());
///
/// Each sample is in exactly one part. The sizes are computed from the fractions by the method of
/// largest remainders. A part may be empty. The samples of a part are in random order. If storage
/// is much faster at sequential reads, split its files instead. Equal sizes, fractions and seeds
/// result in equal parts on every machine. A loader rejects a `loader_state` saved with different
/// values.
///
/// A part is a dataset like the result of `subset`, with about 250 bytes and no index list. A
/// stratified part has a list with 8 bytes for each sample, and its creation needs 16 bytes for
/// each sample of the whole dataset. With two parts, the number of samples of each class is the
/// exact share, rounded up or down. With three parts, it differs from the exact share by less than
/// 2.
///
/// An lvalue is referenced and must outlive the parts. An rvalue is moved in, and the parts share
/// its ownership. Throws `option_error` "fractions" if a fraction is not in [0, 1] or their sum
/// differs from 1 by more than 10^-6. Exceptions of the dataset and of the label function
/// propagate.
template <class Data, std::size_t Parts, class Labels = detail::no_labels>
[[nodiscard]] auto random_split(Data&& data, const double (&fractions)[Parts], std::uint64_t seed,
                                const detail::stratification<Labels>& by = {}) {
  return detail::split<Parts>(std::forward<Data>(data), fractions, seed, by);
}

/// Splits by fractions whose number is known only at run time, and returns a vector. Otherwise
/// behaves like the other overload.
template <class Data, class Labels = detail::no_labels>
[[nodiscard]] auto random_split(Data&& data, std::span<const double> fractions, std::uint64_t seed,
                                const detail::stratification<Labels>& by = {}) {
  return detail::split<0>(std::forward<Data>(data), fractions, seed, by);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
