// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/adaptor_base.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Additional arguments of a `map` function after its samples.
enum class map_form {
  none,            ///< not callable with the samples
  plain,           ///< no additional argument
  random,          ///< a generator
  indexed,         ///< the sample index
  indexed_random,  ///< the sample index, followed by a generator
};

/// Returns the first form in which an `F`, with its qualifiers, is callable with `Args`. Later
/// forms are tried only if earlier forms do not fit, because trying a form may instantiate the
/// function body.
template <class F, class... Args>
consteval map_form form_of() {
  if constexpr (std::invocable<F, Args..., sample_generator&>) {
    return map_form::random;
  } else if constexpr (std::invocable<F, Args...>) {
    return map_form::plain;
  } else if constexpr (std::invocable<F, Args..., std::uint64_t, sample_generator&>) {
    return map_form::indexed_random;
  } else if constexpr (std::invocable<F, Args..., std::uint64_t>) {
    return map_form::indexed;
  } else {
    return map_form::none;
  }
}

/// The form in which a map calls `F`. The function is called through a const reference, because
/// several threads call it concurrently.
template <class F, class... Args>
inline constexpr map_form map_form_of = form_of<const F&, Args...>();
/// True if `F` would be callable if it were not const.
template <class F, class... Args>
inline constexpr bool maps_mutably = form_of<F&, Args...>() != map_form::none;

/// Returns true if a function of this form uses random bits.
constexpr bool draws(map_form form) noexcept {
  return form == map_form::random || form == map_form::indexed_random;
}

/// A chunk that a map reads: the sample indices, and the context with their random bits.
struct mapped_chunk {
  std::span<const std::uint64_t> indices;
  const chunk_context& context;
  std::uint32_t stage;  ///< stage of the random bits

  /// Calls `function` with `args`, the samples at position `i`, and the additional arguments of its
  /// form.
  template <map_form Form, class F, class... Args>
  void call(const F& function, std::size_t i, Args... args) const {
    if constexpr (draws(Form)) {
      auto generator = context.generator(i, stage);
      if constexpr (Form == map_form::random) {
        function(args..., generator);
      } else {
        function(args..., indices[i], generator);
      }
    } else if constexpr (Form == map_form::plain) {
      function(args...);
    } else {
      function(args..., indices[i]);
    }
  }
};

/// Returns the index, among the ragged fields of `In`, of the field with the same name as the
/// ragged field `Index` of `Out`. Returns `In::ragged_fields` if `In` has no such field.
template <class Out, class In, std::size_t Index>
consteval std::size_t ragged_namesake() {
  constexpr name key = Out::template field_at<Index>::key;
  if constexpr (In::template has_field<key>) {
    constexpr std::size_t place = In::template index_of<key>();
    if constexpr (In::template field_at<place>::is_ragged) {
      return In::template ragged_index<place>();
    }
  }
  return In::ragged_fields;
}

/// True if each ragged field of `Out` has the name, and therefore the length, of a ragged field of
/// `In`.
template <class Out, class In>
inline constexpr bool lengths_are_known = [] {
  bool are_known = true;
  for_each_ragged<Out>([&]<std::size_t Index>() {
    are_known = are_known && ragged_namesake<Out, In, Index>() != In::ragged_fields;
  });
  return are_known;
}();

/// Returns the lengths of a sample of `Out` that is computed from a sample of `In` with lengths
/// `below`.
template <record_type Out, record_type In>
[[nodiscard]] constexpr sample_lengths<Out> same_lengths(const sample_lengths<In>& below) noexcept {
  sample_lengths<Out> found{};
  for_each_ragged<Out>([&]<std::size_t Index>() {
    found[Out::template ragged_index<Index>()] = below[ragged_namesake<Out, In, Index>()];
  });
  return found;
}

/// Places the only sample of a batch. Throws `layout_error` if the sample exceeds the declared
/// maximum length. The loader does not check this, because it checks only lengths in its own
/// record.
template <record_type Record>
void place_alone(const batch_view<Record>& one, const sample_lengths<Record>& lengths) {
  if (place_sample(one, 0, lengths) == Record::size) return;
  throw layout_error(
      "map: the sample has more values of a ragged field than the longest sample according to the "
      "dataset's extents(): raise longest in extents()");
}

/// A dataset whose samples are transformed in place after reading (see `map`).
template <class Base, class F>
class map_dataset : public adaptor_base<Base> {
  using below = adaptor_base<Base>;
  using below::base_;

 public:
  using typename below::record_type;
  /// The form of the function.
  static constexpr map_form form = map_form_of<F, sample<record_type>>;
  static constexpr bool borrows = detail::borrows<Base> || function_borrows<F>;

  static_assert(form != map_form::none || !maps_mutably<F, sample<record_type>>,
                "penstock::map: the function must be callable as const, because several threads "
                "call it: remove mutable from the lambda");
  static_assert(form != map_form::none || maps_mutably<F, sample<record_type>>,
                "penstock::map: the function must take (sample<Record>) of the dataset's own "
                "record, and may take the sample's index, a sample_generator&, or first the index "
                "and then the generator, after it");

  /// Transforms the samples of `base` with `function`.
  map_dataset(Base base, F function) : below(std::move(base)), function_(std::move(function)) {}

  [[nodiscard]] std::uint32_t stages() const { return stages_of(base_) + (draws(form) ? 1 : 0); }

  /// Reads the chunk from the underlying dataset, and then calls the function for each sample.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    penstock::read_chunk(base_, indices, out, context);
    const mapped_chunk chunk{indices, context, stages()};
    const transform_scope timed = context.transform();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      chunk.template call<form>(function_, i, out[i]);
    }
  }

 private:
  F function_;
};

/// A dataset whose samples are computed from the samples of another dataset (see `map`).
template <dataset Base, penstock::record_type Out, class F>
class map_into_dataset : public adaptor_base<Base> {
  using below = adaptor_base<Base>;
  using below::base_;

 public:
  using record_type = Out;
  /// The record of the underlying dataset.
  using base_record_type = typename Base::record_type;
  /// The form of the function.
  static constexpr map_form form = map_form_of<F, const_sample<base_record_type>, sample<Out>>;
  static constexpr bool borrows = detail::borrows<Base> || function_borrows<F>;

  static_assert(lengths_are_known<Out, base_record_type>,
                "penstock::map: each ragged field of the new record must have the name of a ragged "
                "field of the dataset, whose number of values it takes");
  static_assert(form != map_form::none ||
                    !maps_mutably<F, const_sample<base_record_type>, sample<Out>>,
                "penstock::map: the function must be callable as const, because several threads "
                "call it: remove mutable from the lambda");
  static_assert(
      form != map_form::none || maps_mutably<F, const_sample<base_record_type>, sample<Out>>,
      "penstock::map: the function must take (const_sample<In>, sample<Out>), where In is the "
      "dataset's record, and may take the sample's index, a sample_generator&, or first the index "
      "and then the generator, after them");

  /// Reads samples from `base`, and calls `function` to write samples with the extents `lengths`.
  map_into_dataset(Base base, F function, const record_extents<Out>& lengths)
      : below(std::move(base)),
        function_(std::move(function)),
        lengths_(lengths),
        base_layout_(extents_of(base_), 1) {}

  [[nodiscard]] const record_extents<Out>& extents() const noexcept { return lengths_; }
  [[nodiscard]] sample_lengths<Out> lengths(std::uint64_t index) const
    requires(Out::ragged_fields > 0 && reports_lengths<Base>)
  {
    return same_lengths<Out, base_record_type>(lengths_of(base_, index));
  }
  [[nodiscard]] std::uint32_t stages() const { return stages_of(base_) + (draws(form) ? 1 : 0); }

  /// Returns the size in bytes of the scratch memory for a sample of the underlying dataset, or 0
  /// if that dataset has `view`.
  [[nodiscard]] std::size_t scratch_bytes() const {
    if constexpr (views_samples<Base>) {
      return 0;
    } else {
      return base_layout_.bytes() + scratch_bytes_of(base_);
    }
  }

  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Out> out,
                  const chunk_context& context) const {
    const mapped_chunk chunk{indices, context, stages()};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      prefetch_ahead(base_, indices, i);
      if constexpr (views_samples<Base>) {
        const transform_scope timed = context.transform();
        chunk.template call<form>(function_, i,
                                  const_sample<base_record_type>{base_.view(indices[i])}, out[i]);
      } else {
        const batch_view<base_record_type> one{context.scratch().data(), base_layout_, 0, 1};
        if constexpr (reports_lengths<Base>) place_alone(one, lengths_of(base_, indices[i]));
        penstock::read_chunk(base_, indices.subspan(i, 1), one,
                             context.subchunk(i, 1).below(base_layout_.bytes()));
        const transform_scope timed = context.transform();
        chunk.template call<form>(function_, i, const_sample<base_record_type>{one[0]}, out[i]);
      }
    }
  }

 private:
  F function_;
  record_extents<Out> lengths_;
  batch_layout<base_record_type> base_layout_;
};

/// The adaptor returned by `map(f)`.
template <class F>
using map_adaptor = holding_adaptor<map_dataset, F>;

/// The adaptor returned by `map<Out>(f)`.
template <record_type Out, class F>
class map_into_adaptor : public adaptor<map_into_adaptor<Out, F>> {
 public:
  map_into_adaptor(F function, const record_extents<Out>& lengths)
      : function_(std::move(function)), lengths_(lengths) {}

  /// Returns a mapped dataset over `data`.
  template <class Data>
  [[nodiscard]] auto operator()(Data&& data) && {
    using base = stored_dataset_t<Data>;
    return map_into_dataset<base, Out, F>{base(std::forward<Data>(data)), std::move(function_),
                                          lengths_};
  }

 private:
  F function_;
  record_extents<Out> lengths_;
};

}  // namespace detail

/// Transforms each sample in place after it is read: `data | map(f)` with `f(sample<R> s)`, where R
/// is the record of the dataset. The function may have two more parameters, in this order: the
/// sample index in `data` (`std::uint64_t`), and a generator (`sample_generator&`). The generator
/// is keyed by seed, epoch, sample index, and the position of this map among the random maps.
/// Therefore the result does not depend on the number of threads or on random bits used by other
/// maps.
///
/// The function is moved in. Several threads call it concurrently through a const reference. If the
/// function throws, the consumer receives the exception with the batch that contains the sample.
template <class F>
[[nodiscard]] detail::map_adaptor<std::decay_t<F>> map(F&& function) {
  return detail::map_adaptor<std::decay_t<F>>{std::forward<F>(function)};
}

/// Computes samples of record `Out` from the samples of a dataset: `data | map<Out>(f)` with
/// `f(const_sample<In> in, sample<Out> out)`. As in the other `map`, the function may also have an
/// index and a generator parameter. The function must write all elements of `out`. `in` references
/// the dataset's own memory if the dataset has `view`, and otherwise a copy in the thread's scratch
/// memory. `in` is valid only during the call. Threads and exceptions are handled as in the other
/// `map`.
///
/// A loop that reads `get<"image">(in).flat()` and fills `get<"x">(out).flat()` is vectorized at
/// -O3. At -O2, GCC 12 does not vectorize the loop, because vector code would have to check that
/// the input and output do not overlap.
template <record_type Out, class F>
[[nodiscard]] detail::map_into_adaptor<Out, std::decay_t<F>> map(
    F&& function, const record_extents<Out>& lengths) {
  return {std::forward<F>(function), lengths};
}

/// Makes samples of a record without dynamic extents.
template <record_type Out, class F>
[[nodiscard]] auto map(F&& function) {
  static_assert(!Out::has_dynamic_extents,
                "penstock::map: a record with dyn extents needs them: map<Out>(function, extents)");
  if constexpr (!Out::has_dynamic_extents) {
    return map<Out>(std::forward<F>(function), record_extents<Out>{});
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
