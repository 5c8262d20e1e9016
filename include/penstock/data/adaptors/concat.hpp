// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Datasets can't be concatenated: their extents differ, or their total size does not fit into 64
/// bits. `part()` is the first dataset that does not fit, counted from 0.
class [[gnu::visibility("default")]] concat_mismatch : public error {
 public:
  concat_mismatch(std::size_t part, const std::string& problem)
      : error(detail::joined({"concat: part ", part, ": ", problem})), part_(part) {}
  /// The dataset that does not fit, counted from 0.
  [[nodiscard]] std::size_t part() const noexcept { return part_; }

 private:
  std::size_t part_;
};

namespace detail {

/// Throws `concat_mismatch` where field `Field` of part `part` has other extents than in part 0.
template <std::size_t Field, record_type Record>
void require_same_field(std::size_t part, const record_extents<Record>& first,
                        const record_extents<Record>& lengths) {
  using field = typename Record::template field_at<Field>;
  if constexpr (!field::is_ragged) {
    const auto expected = first.template at<Field>();
    const auto found = lengths.template at<Field>();
    for (std::size_t d = 0; d != field::extents_type::rank; ++d) {
      if (found[d] == expected[d]) continue;
      throw concat_mismatch(
          part, joined({"field \"", field::key.str(), "\": expected extent ", expected[d],
                        " in dimension ", d, " as in part 0, found ", found[d]}));
    }
  }
}

/// The common extents of field `Field`; for a ragged field the largest bounds.
template <std::size_t Field, record_type Record>
[[nodiscard]] auto joint_field(std::span<const record_extents<Record>> parts) {
  auto joint = parts.front().template at<Field>();
  if constexpr (Record::template field_at<Field>::is_ragged) {
    for (const record_extents<Record>& part : parts) {
      const auto one = part.template at<Field>();
      joint.longest = (std::max)(joint.longest, one.longest);
      const bool are_bounded = joint.values_per_batch != 0 && one.values_per_batch != 0;
      joint.values_per_batch =
          are_bounded ? (std::max)(joint.values_per_batch, one.values_per_batch) : 0;
    }
    if (joint.values_per_batch != 0) {
      joint.values_per_batch = (std::max)(joint.values_per_batch, joint.longest);
    }
  }
  return joint;
}

/// The common extents of the datasets. Throws `concat_mismatch`.
template <record_type Record, dataset... Parts>
[[nodiscard]] record_extents<Record> joint_extents(const std::tuple<Parts...>& parts) {
  const auto all = std::apply(
      [](const Parts&... each) {
        return std::array<record_extents<Record>, sizeof...(Parts)>{extents_of(each)...};
      },
      parts);
  return [&]<std::size_t... Fields>(std::index_sequence<Fields...>) {
    for (std::size_t part = 0; part < all.size(); ++part) {
      (require_same_field<Fields>(part, all[0], all[part]), ...);
    }
    return record_extents<Record>{
        joint_field<Fields>(std::span<const record_extents<Record>>{all})...};
  }(std::make_index_sequence<Record::size>{});
}

/// The concatenation of several datasets, see `concat`.
template <dataset... Parts>
  requires(sizeof...(Parts) > 0)
class concat_dataset {
  using first_part = std::tuple_element_t<0, std::tuple<Parts...>>;

 public:
  using record_type = typename first_part::record_type;
  static_assert((std::same_as<typename Parts::record_type, record_type> && ...),
                "penstock::concat: all datasets must have the same record");
  static constexpr bool borrows = (detail::borrows<Parts> || ...);

  /// Throws `concat_mismatch`.
  explicit concat_dataset(Parts... parts)
      : parts_(std::move(parts)...), lengths_(joint_extents<record_type>(parts_)) {
    std::size_t part = 0;
    for_each([&](const auto& data) {
      const std::uint64_t count = data.size();
      if (count > (std::numeric_limits<std::uint64_t>::max)() - begins_[part]) {
        throw concat_mismatch(part,
                              detail::joined({"its ", count, " samples and the ", begins_[part],
                                              " before it are more than 64 bits count"}));
      }
      begins_[part + 1] = begins_[part] + count;
      bases_[part + 1] = bases_[part] + base_sizes_of(data).size();
      ++part;
    });
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return begins_[sizeof...(Parts)]; }
  [[nodiscard]] const record_extents<record_type>& extents() const noexcept { return lengths_; }
  [[nodiscard]] sample_lengths<record_type> lengths(std::uint64_t index) const
    requires(record_type::ragged_fields > 0)
  {
    return of_sample(index, [](const auto& data, auto local) { return lengths_of(data, local); });
  }
  [[nodiscard]] std::size_t scratch_bytes() const {
    return std::apply(
        [](const Parts&... parts) { return (std::max)({scratch_bytes_of(parts)...}); }, parts_);
  }

  [[nodiscard]] std::uint32_t stages() const {
    return std::apply([](const Parts&... parts) { return (std::max)({stages_of(parts)...}); },
                      parts_);
  }
  [[nodiscard]] std::uint64_t fingerprint() const {
    word_hash hash;
    bool is_chosen = false;
    for_each([&](const auto& data) {
      const std::uint64_t of_part = fingerprint_of(data);
      is_chosen = is_chosen || of_part != 0;
      hash.add(of_part);
    });
    return is_chosen ? hash.value() : 0;
  }

  /// Reads maximal stretches of the chunk from one part each. Throws `index_error`, and what the
  /// parts throw.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    std::size_t prefetched = 0;
    const auto begins = [&](std::size_t begin) { context.at(begin); };
    each_stretch(indices, begins,
                 [&](const auto& data, std::span<const std::uint64_t> local, std::size_t begin) {
                   if constexpr ((prefetches<Parts> && ...)) {
                     // Shuffled indices give stretches too short for the parts to prefetch within.
                     const std::size_t end = begin + local.size();
                     const std::size_t until = (std::min)(end + prefetch_distance, indices.size());
                     for (prefetched = (std::max)(prefetched, end); prefetched < until;
                          ++prefetched) {
                       prefetch(indices[prefetched]);
                     }
                   }
                   penstock::read_chunk(data, local, out.subrun(begin, local.size()),
                                        context.subrun(begin, local.size()));
                 });
  }

  [[nodiscard]] const_sample<record_type> view(std::uint64_t index) const
    requires(views_samples<Parts> && ...)
  {
    return of_sample(index, [](const auto& data, auto local) { return data.view(local); });
  }

  void prefetch(std::uint64_t index) const noexcept
    requires(prefetches<Parts> && ...)
  {
    if (index >= size()) return;
    of_sample(index, [](const auto& data, auto local) { data.prefetch(local); });
  }

  /// Tells each part of its own, in their order.
  void prefetch_hint(std::span<const std::uint64_t> indices) const
    requires(accepts_hints<Parts> || ...)
  {
    each_stretch(indices, no_begin, [](const auto& data, const auto& local, std::size_t) {
      give_prefetch_hint(data, local);
    });
  }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    return of_sample(index,
                     [](const auto& data, auto local) { return storage_size_of(data, local); });
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const {
    std::uint64_t most = 0;
    for_each([&](const auto& data) { most = least_ahead(most, prefetch_capacity_of(data)); });
    return most;
  }
  void access_plan(std::span<const std::uint64_t> indices) const
    requires(accepts_access_plans<Parts> || ...)
  {
    if (indices.empty()) {
      for_each([&](const auto& data) { extend_access_plan(data, indices); });
    }
    each_stretch(indices, no_begin, [](const auto& data, const auto& local, std::size_t) {
      extend_access_plan(data, local);
    });
  }
  [[nodiscard]] std::uint64_t plan_capacity() const {
    std::uint64_t most = 0;
    for_each([&](const auto& data) { most = least_ahead(most, plan_capacity_of(data)); });
    return most;
  }

  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    if (index >= size()) return {index, 0};
    const auto in_part = [](const auto& data, auto local) { return origin_of(data, local); };
    sample_origin found = of_sample(index, in_part);
    found.part += bases_[part_of(index)];
    return found;
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const {
    std::vector<std::uint64_t> all;
    for_each([&](const auto& data) {
      const auto of_part = base_sizes_of(data);
      all.insert(all.end(), of_part.begin(), of_part.end());
    });
    return all;
  }
  [[nodiscard]] std::vector<std::string> warnings() const {
    std::vector<std::string> all;
    for_each([&](const auto& data) {
      for (auto& text : warnings_of(data)) all.push_back(std::move(text));
    });
    return all;
  }

 private:
  static constexpr auto no_begin = [](std::size_t) {};

  template <class Function>
  void for_each(const Function& function) const {
    std::apply([&](const Parts&... parts) { (function(parts), ...); }, parts_);
  }

  template <std::size_t Part = 0, class Function>
  auto visit(std::size_t part, const Function& function) const {
    if constexpr (Part + 1 < sizeof...(Parts)) {
      if (part != Part) return visit<Part + 1>(part, function);
    }
    return function(std::get<Part>(parts_));
  }
  // What `function(data, local)` returns: the sample's part, and its index there.
  template <class Function>
  auto of_sample(std::uint64_t index, const Function& function) const {
    const std::size_t part = part_of(index);
    return visit(part, [&](const auto& data) { return function(data, index - begins_[part]); });
  }

  // For each maximal stretch of `indices` within one part, calls `begins(begin)`, then `use(data,
  // local, begin)`: the stretch begins at `begin`, and `local` are its indices in that part.
  template <class Begins, class Use>
  void each_stretch(std::span<const std::uint64_t> indices, const Begins& begins,
                    const Use& use) const {
    std::array<std::uint64_t, 64> local;
    for (std::size_t begin = 0; begin < indices.size();) {
      begins(begin);
      const std::size_t part = part_of(indices[begin]);
      std::size_t count = 0;
      while (begin + count < indices.size() && count < local.size() &&
             lies_in(part, indices[begin + count])) {
        local[count] = indices[begin + count] - begins_[part];
        ++count;
      }
      visit(part, [&](const auto& data) {
        use(data, std::span<const std::uint64_t>{local}.first(count), begin);
      });
      begin += count;
    }
  }

  [[nodiscard]] bool lies_in(std::size_t part, std::uint64_t index) const noexcept {
    return index >= begins_[part] && index < begins_[part + 1];
  }

  [[nodiscard]] std::size_t part_of(std::uint64_t index) const {
    if (index >= size()) throw index_error("concat", index, size());
    std::size_t part = 0;
    while (index >= begins_[part + 1]) ++part;
    return part;
  }

  std::tuple<Parts...> parts_;
  record_extents<record_type> lengths_;
  // begins_[p] is the index of part p's first sample, the last entry the total size; bases_[p] is
  // the number of datasets at the bottom of the parts before p.
  std::array<std::uint64_t, sizeof...(Parts) + 1> begins_{};
  std::array<std::uint64_t, sizeof...(Parts) + 1> bases_{};
};

}  // namespace detail

/// Concatenates datasets: `concat(train, extra) | map(f)`. All must have the same record; throws
/// `concat_mismatch` if their dynamic extents differ. The bounds of a ragged field are the largest
/// of all parts. Lvalues are referred to and must outlive the result, rvalues are moved in.
///
/// Constrained to arguments of which at least one has a record: libraries that bind C++ to Python
/// make unqualified calls to a `concat` of their own, and argument-dependent lookup would find this
/// one.
template <class... Parts>
  requires(detail::has_record<std::remove_cvref_t<Parts>> || ...)
[[nodiscard]] auto concat(Parts&&... parts) {
  (detail::require_dataset<std::remove_cvref_t<Parts>>(), ...);
  (detail::refuse_batch_maps<std::remove_cvref_t<Parts>>(), ...);
  // One sentence, and no page of unmet constraints after it.
  if constexpr ((dataset<std::remove_cvref_t<Parts>> && ...)) {
    return detail::concat_dataset<stored_dataset_t<Parts>...>{
        stored_dataset_t<Parts>(std::forward<Parts>(parts))...};
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
