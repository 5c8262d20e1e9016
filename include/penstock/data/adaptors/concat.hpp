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

/// Thrown if datasets cannot be concatenated, because their extents differ or their total size
/// exceeds 64 bits. `part()` returns the index of the first mismatched dataset.
class [[gnu::visibility("default")]] concat_mismatch : public error {
 public:
  concat_mismatch(std::size_t part, const std::string& problem)
      : error(detail::str_cat({"concat: part ", part, ": ", problem})), part_(part) {}
  /// Returns the index of the first mismatched dataset.
  [[nodiscard]] std::size_t part() const noexcept { return part_; }

 private:
  std::size_t part_;
};

namespace detail {

/// Throws `concat_mismatch` if the extents of field `Field` in part `part` differ from those in
/// part 0.
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
          part, str_cat({"field \"", field::key.str(), "\": expected extent ", expected[d],
                         " in dimension ", d, " as in part 0, found ", found[d]}));
    }
  }
}

/// Returns the common extents of field `Field`, or the largest bounds if the field is ragged.
template <std::size_t Field, record_type Record>
[[nodiscard]] auto joint_field(std::span<const record_extents<Record>> parts) {
  auto joint = parts.front().template at<Field>();
  if constexpr (Record::template field_at<Field>::is_ragged) {
    for (const record_extents<Record>& part : parts) {
      const auto one = part.template at<Field>();
      joint.longest = (std::max)(joint.longest, one.longest);
      const bool are_bounded = joint.max_values_per_batch != 0 && one.max_values_per_batch != 0;
      joint.max_values_per_batch =
          are_bounded ? (std::max)(joint.max_values_per_batch, one.max_values_per_batch) : 0;
    }
    if (joint.max_values_per_batch != 0) {
      joint.max_values_per_batch = (std::max)(joint.max_values_per_batch, joint.longest);
    }
  }
  return joint;
}

/// A fixed list of datasets of different types.
template <dataset... Parts>
  requires(sizeof...(Parts) > 0)
class part_tuple {
 public:
  using record_type = typename std::tuple_element_t<0, std::tuple<Parts...>>::record_type;
  static_assert((std::same_as<typename Parts::record_type, record_type> && ...),
                "penstock::concat: all datasets must have the same record");
  static constexpr bool borrow = (detail::borrows<Parts> || ...);
  static constexpr bool look_ahead = (detail::looks_ahead<Parts> || ...);
  static constexpr bool view_samples = (views_samples<Parts> && ...);
  static constexpr bool prefetch = (prefetches<Parts> && ...);

  explicit part_tuple(Parts... parts) : parts_(std::move(parts)...) {}

  [[nodiscard]] static constexpr std::size_t size() noexcept { return sizeof...(Parts); }
  /// Calls `function(part)` for all parts, in order.
  template <class Function>
  void for_each(const Function& function) const {
    std::apply([&](const Parts&... parts) { (function(parts), ...); }, parts_);
  }
  /// Returns `function` applied to the part with index `part`, which must be less than size().
  template <std::size_t Part = 0, class Function>
  auto visit(std::size_t part, const Function& function) const {
    if constexpr (Part + 1 < sizeof...(Parts)) {
      if (part != Part) return visit<Part + 1>(part, function);
    }
    return function(std::get<Part>(parts_));
  }

 private:
  std::tuple<Parts...> parts_;
};

/// A list of datasets of the same type. Has the members of `part_tuple`.
template <dataset Part>
class part_list {
 public:
  using record_type = typename Part::record_type;
  static constexpr bool borrow = detail::borrows<Part>;
  static constexpr bool look_ahead = detail::looks_ahead<Part>;
  static constexpr bool view_samples = views_samples<Part>;
  static constexpr bool prefetch = prefetches<Part>;

  explicit part_list(std::vector<Part> parts) : parts_(std::move(parts)) {}

  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }
  /// Calls `function(part)` for all parts, in order.
  template <class Function>
  void for_each(const Function& function) const {
    for (const Part& part : parts_) function(part);
  }
  /// Returns `function` applied to the part with index `part`, which must be less than size().
  template <class Function>
  auto visit(std::size_t part, const Function& function) const {
    return function(parts_[part]);
  }

 private:
  std::vector<Part> parts_;
};

/// Returns the common extents of the datasets. Throws `concat_mismatch` if the list of datasets is
/// empty or the extents differ.
template <class Parts>
[[nodiscard]] auto joint_extents(const Parts& parts) {
  using record = typename Parts::record_type;
  std::vector<record_extents<record>> all;
  all.reserve(parts.size());
  parts.for_each([&](const auto& data) { all.push_back(extents_of(data)); });
  if (all.empty()) throw concat_mismatch(0, "expected at least one dataset, found an empty list");
  return [&]<std::size_t... Fields>(std::index_sequence<Fields...>) {
    for (std::size_t part = 0; part < all.size(); ++part) {
      (require_same_field<Fields>(part, all[0], all[part]), ...);
    }
    return record_extents<record>{
        joint_field<Fields>(std::span<const record_extents<record>>{all})...};
  }(std::make_index_sequence<record::size>{});
}

/// The concatenation of the datasets in `Parts`, a `part_tuple` or a `part_list` (see `concat`).
template <class Parts>
class concat_dataset {
 public:
  using record_type = typename Parts::record_type;
  static constexpr bool borrows = Parts::borrow;
  static constexpr bool looks_ahead = Parts::look_ahead;

  /// Concatenates `parts`. `name` identifies the dataset in messages about an index. Throws
  /// `concat_mismatch` if the parts cannot be concatenated.
  explicit concat_dataset(Parts parts, const char* name = "concat")
      : parts_(std::move(parts)), lengths_(joint_extents(parts_)), name_(name) {
    begins_.reserve(parts_.size() + 1);
    first_bases_.reserve(parts_.size());
    std::uint64_t bases = 0;
    parts_.for_each([&](const auto& data) {
      const std::uint64_t count = data.size();
      if (count > (std::numeric_limits<std::uint64_t>::max)() - begins_.back()) {
        throw concat_mismatch(first_bases_.size(),
                              detail::str_cat({"its ", count, " samples and the ", begins_.back(),
                                               " before it exceed 64 bits"}));
      }
      begins_.push_back(begins_.back() + count);
      first_bases_.push_back(bases);
      bases += base_count_of(data);
    });
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return begins_.back(); }
  [[nodiscard]] const record_extents<record_type>& extents() const noexcept { return lengths_; }
  [[nodiscard]] sample_lengths<record_type> lengths(std::uint64_t index) const
    requires(record_type::ragged_fields > 0)
  {
    return of_sample(index, [](const auto& data, auto local) { return lengths_of(data, local); });
  }
  [[nodiscard]] std::size_t scratch_bytes() const {
    std::size_t max = 0;
    parts_.for_each([&](const auto& data) { max = (std::max)(max, scratch_bytes_of(data)); });
    return max;
  }

  [[nodiscard]] std::uint32_t stages() const {
    std::uint32_t max = 0;
    parts_.for_each([&](const auto& data) { max = (std::max)(max, stages_of(data)); });
    return max;
  }
  [[nodiscard]] std::uint64_t fingerprint() const {
    word_hash hash;
    bool is_chosen = false;
    parts_.for_each([&](const auto& data) {
      const std::uint64_t of_part = fingerprint_of(data);
      is_chosen = is_chosen || of_part != 0;
      hash.add(of_part);
    });
    return is_chosen ? hash.value() : 0;
  }

  /// Splits the chunk into runs within one part, and reads each run from its part. Throws
  /// `index_error` if an index is out of range. Exceptions of the parts propagate.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    std::size_t prefetched = 0;
    const auto begins = [&](std::size_t begin) { context.at(begin); };
    each_stretch(indices, begins,
                 [&](const auto& data, std::span<const std::uint64_t> local, std::size_t begin) {
                   if constexpr (Parts::prefetch) {
                     // If the indices are shuffled, the runs are too short for prefetching by the
                     // parts, so the concatenation prefetches.
                     const std::size_t end = begin + local.size();
                     const std::size_t until = (std::min)(end + prefetch_distance, indices.size());
                     for (prefetched = (std::max)(prefetched, end); prefetched < until;
                          ++prefetched) {
                       prefetch(indices[prefetched]);
                     }
                   }
                   penstock::read_chunk(data, local, out.subchunk(begin, local.size()),
                                        context.subchunk(begin, local.size()));
                 });
  }

  [[nodiscard]] const_sample<record_type> view(std::uint64_t index) const
    requires Parts::view_samples
  {
    return of_sample(index, [](const auto& data, auto local) { return data.view(local); });
  }

  void prefetch(std::uint64_t index) const noexcept
    requires(Parts::prefetch)
  {
    if (index >= size()) return;
    of_sample(index, [](const auto& data, auto local) { data.prefetch(local); });
  }

  /// Calls `f(part, local)` for each run of at most 64 `indices` within one part. `local` contains
  /// the indices in that part. If `indices` is empty, calls `f` for all parts with an empty list.
  template <class F>
  void each_base(std::span<const std::uint64_t> indices, const F& f) const {
    if (indices.empty()) {
      parts_.for_each([&](const auto& data) { f(data, std::span<const std::uint64_t>{}); });
    }
    std::array<std::uint64_t, 64> memory;
    while (!indices.empty()) {
      std::size_t count = 1;
      if (indices.front() < size()) {
        const std::size_t part = part_of(indices.front());
        const auto local = first_in(part, indices, memory);
        parts_.visit(part, [&](const auto& data) { f(data, local); });
        count = local.size();
      }
      indices = indices.subspan(count);
    }
  }
  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    if (index >= size()) return {index, 0};
    const std::size_t part = part_of(index);
    sample_origin found = parts_.visit(
        part, [&](const auto& data) { return origin_of(data, index - begins_[part]); });
    found.part += first_bases_[part];
    return found;
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const {
    std::vector<std::uint64_t> all;
    parts_.for_each([&](const auto& data) {
      const auto some = base_sizes_of(data);
      all.insert(all.end(), some.begin(), some.end());
    });
    return all;
  }

 private:
  // Returns `function(data, local)` for the part that contains the sample. `local` is the sample
  // index in that part.
  template <class Function>
  auto of_sample(std::uint64_t index, const Function& function) const {
    const std::size_t part = part_of(index);
    return parts_.visit(part,
                        [&](const auto& data) { return function(data, index - begins_[part]); });
  }

  // Splits `indices` into runs of at most 64 samples within one part. For each run, calls
  // `begins(begin)` and then `use(data, local, begin)`. `begin` is the position of the run in
  // `indices`, and `local` contains the indices in the part.
  template <class Begins, class Use>
  void each_stretch(std::span<const std::uint64_t> indices, const Begins& begins,
                    const Use& use) const {
    std::array<std::uint64_t, 64> memory;
    for (std::size_t begin = 0; begin < indices.size();) {
      begins(begin);
      const std::size_t part = part_of(indices[begin]);
      const auto local = first_in(part, indices.subspan(begin), memory);
      parts_.visit(part, [&](const auto& data) { use(data, local, begin); });
      begin += local.size();
    }
  }

  // Translates the leading `indices` that lie in `part`, at most 64, to indices in that part.
  // Writes them to `memory`.
  [[nodiscard]] std::span<const std::uint64_t> first_in(
      std::size_t part, std::span<const std::uint64_t> indices,
      std::array<std::uint64_t, 64>& memory) const noexcept {
    std::size_t count = 0;
    while (count < indices.size() && count < memory.size() && lies_in(part, indices[count])) {
      memory[count] = indices[count] - begins_[part];
      ++count;
    }
    return std::span<const std::uint64_t>{memory}.first(count);
  }

  [[nodiscard]] bool lies_in(std::size_t part, std::uint64_t index) const noexcept {
    return index >= begins_[part] && index < begins_[part + 1];
  }

  [[nodiscard]] std::size_t part_of(std::uint64_t index) const {
    if (index >= size()) throw index_error(name_, index, size());
    const auto ends = begins_.begin() + 1;
    return static_cast<std::size_t>(std::upper_bound(ends, begins_.end(), index) - ends);
  }

  Parts parts_;
  record_extents<record_type> lengths_;
  const char* name_;
  // begins_[p] is the index of the first sample in part p. The last element is the total size.
  std::vector<std::uint64_t> begins_{0};
  // first_bases_[p] is the number of source datasets in the parts before part p.
  std::vector<std::uint64_t> first_bases_;
};

}  // namespace detail

/// Concatenates datasets: `concat(train, extra) | map(f)`. All datasets must have the same record.
/// Throws `concat_mismatch` if their dynamic extents differ. The bounds of a ragged field are the
/// largest of all parts. Lvalues are referenced and must outlive the result, and rvalues are moved
/// in.
///
/// At least one argument must have a record. Otherwise, argument-dependent lookup could find this
/// function when a Python binding library makes an unqualified call to its own `concat`.
template <class... Parts>
  requires(detail::has_record<std::remove_cvref_t<Parts>> || ...)
[[nodiscard]] auto concat(Parts&&... parts) {
  (detail::require_dataset<std::remove_cvref_t<Parts>>(), ...);
  (detail::reject_batch_maps<std::remove_cvref_t<Parts>>(), ...);
  // A static_assert reports the error in one sentence instead of a page of unsatisfied constraints.
  if constexpr ((dataset<std::remove_cvref_t<Parts>> && ...)) {
    return detail::concat_dataset{detail::part_tuple<stored_dataset_t<Parts>...>{
        stored_dataset_t<Parts>(std::forward<Parts>(parts))...}};
  }
}

/// Concatenates a list of datasets of the same type, such as shards. Finds the part that contains a
/// sample in O(log parts) time. Parts may be empty. Throws `concat_mismatch` if the extents of the
/// parts differ or the list is empty. The vector is moved in.
template <class Part>
  requires detail::has_record<Part>
[[nodiscard]] auto concat(std::vector<Part>&& parts) {
  detail::require_dataset<Part>();
  detail::reject_batch_maps<Part>();
  if constexpr (dataset<Part>) {
    return detail::concat_dataset{detail::part_list<Part>{std::move(parts)}};
  }
}

/// Concatenates the datasets in a vector without copying them. The vector must outlive the result
/// and must not reallocate.
template <class Part>
  requires detail::has_record<Part>
[[nodiscard]] auto concat(const std::vector<Part>& parts) {
  detail::require_dataset<Part>();
  detail::reject_batch_maps<Part>();
  if constexpr (dataset<Part>) {
    using stored = stored_dataset_t<const Part&>;
    std::vector<stored> references;
    references.reserve(parts.size());
    for (const Part& part : parts) references.push_back(stored(part));
    return detail::concat_dataset{detail::part_list<stored>{std::move(references)}};
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
