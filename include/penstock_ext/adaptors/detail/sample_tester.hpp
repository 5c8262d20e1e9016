// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <span>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/adaptors/filter_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Arguments of a predicate.
enum class predicate_form {
  none,            ///< not callable
  sample,          ///< a sample
  indexed_sample,  ///< a sample and its index
  index,           ///< only the index, so that no sample is read
};

/// Returns the first form in which an `F`, with its qualifiers, is a predicate. Later forms are
/// tried only if earlier forms do not fit.
template <class F, class Record>
consteval predicate_form predicate_form_of() {
  if constexpr (std::predicate<F, const_sample<Record>>) {
    return predicate_form::sample;
  } else if constexpr (std::predicate<F, const_sample<Record>, std::uint64_t>) {
    return predicate_form::indexed_sample;
  } else if constexpr (std::predicate<F, std::uint64_t>) {
    return predicate_form::index;
  } else {
    return predicate_form::none;
  }
}

/// Applies a predicate to samples in one thread. References the dataset and the predicate.
template <dataset D, class F>
class sample_tester {
  using record_type = typename D::record_type;
  static constexpr predicate_form form = predicate_form_of<const F&, record_type>();
  static constexpr bool reads_copies = form != predicate_form::index && !views_samples<D>;

 public:
  sample_tester(const D& data, const F& predicate)
      : data_(&data), predicate_(&predicate), layout_(extents_of(data), 1), reader_(data) {
    if constexpr (reads_copies) {
      rows_ = std::clamp(max_bytes / layout_.bytes(), std::size_t{1}, std::size_t{64});
      layout_ = batch_layout<record_type>{extents_of(data), rows_};
      memory_.resize(layout_.bytes() / sizeof(block) + 1);
    }
  }

  /// Returns the results for `count` samples, at most 64, starting at sample `first`, in the lowest
  /// bits. Throws `filter_error` if a sample fails, and `cancelled` unchanged.
  [[nodiscard]] std::uint64_t test(std::uint64_t first, std::size_t count) {
    std::uint64_t bits = 0;
    at_ = first;
    try {
      if constexpr (reads_copies) {
        std::size_t step = rows_;
        for (std::size_t done = 0; done < count;) {
          std::size_t some = (std::min)(step, count - done);
          if (some > 1 && !can_read(some)) some = step = 1;
          if (some == 1) read(1);
          const auto out = batch();
          for (std::size_t i = 0; i < some; ++i, ++done, ++at_) {
            bits |= std::uint64_t{is_kept(out[i])} << done;
          }
        }
      } else {
        for (std::size_t done = 0; done < count; ++done, ++at_) {
          if constexpr (form == predicate_form::index) {
            bits |= std::uint64_t{static_cast<bool>((*predicate_)(at_))} << done;
          } else {
            bits |= std::uint64_t{is_kept(data_->view(at_))} << done;
          }
        }
      }
    } catch (const cancelled&) {
      throw;
    } catch (const std::exception& problem) {
      throw filter_error(at_, origin_of(*data_, at_), problem.what());
    } catch (...) {
      throw filter_error(at_, origin_of(*data_, at_), "not a std::exception");
    }
    return bits;
  }

 private:
  struct alignas(batch_layout<record_type>::alignment) block {
    std::array<std::byte, batch_layout<record_type>::alignment> bytes;
  };
  static constexpr std::size_t max_bytes = std::size_t{1} << 20;

  [[nodiscard]] batch_view<record_type> batch() {
    return {memory_.front().bytes.data(), layout_, 0, rows_};
  }

  [[nodiscard]] bool is_kept(const const_sample<record_type>& one) const {
    if constexpr (form == predicate_form::sample) {
      return static_cast<bool>((*predicate_)(one));
    } else {
      return static_cast<bool>((*predicate_)(one, at_));
    }
  }

  /// Returns false if any of the samples cannot be read. The caller then reads the samples one by
  /// one, to find the sample that fails.
  [[nodiscard]] bool can_read(std::size_t count) {
    try {
      read(count);
      return true;
    } catch (const cancelled&) {
      throw;
    } catch (...) {
      return false;
    }
  }

  /// Reads `count` samples, starting at the current sample.
  void read(std::size_t count) {
    std::array<std::uint64_t, 64> indices;
    std::iota(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count), at_);
    const auto out = batch();
    if constexpr (record_type::ragged_fields > 0) {
      for (std::size_t i = 0; i < count; ++i) {
        if (place_sample(out, i, lengths_of(*data_, indices[i])) == record_type::size) continue;
        throw layout_error(
            "filter: the sample has more values of a ragged field than the longest sample "
            "according to the dataset's extents(): raise longest in extents()");
      }
    }
    reader_.read(std::span{indices}.first(count), out.subchunk(0, count), {});
  }

  const D* data_;
  const F* predicate_;
  batch_layout<record_type> layout_;
  reader<D> reader_;
  std::vector<block> memory_;
  std::size_t rows_ = 1;
  std::uint64_t at_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
