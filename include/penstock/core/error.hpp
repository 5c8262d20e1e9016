// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A piece of a message, which is an integer in decimal or a string. The string must outlive the
/// piece.
class str_cat_arg {
 public:
  str_cat_arg(const char* text) noexcept : str_cat_arg(std::string_view{text}) {}
  str_cat_arg(const std::string& text) noexcept : str_cat_arg(std::string_view{text}) {}
  str_cat_arg(std::string_view text) noexcept
      : text_(text.data()), value_(text.size()), kind_(kind::text) {}
  template <std::unsigned_integral Number>
  str_cat_arg(Number whole) noexcept : value_(whole) {}
  template <std::signed_integral Number>
  str_cat_arg(Number whole) noexcept
      : value_(whole < 0 ? 0 - static_cast<std::uint64_t>(whole)
                         : static_cast<std::uint64_t>(whole)),
        kind_(whole < 0 ? kind::negative : kind::number) {}
  str_cat_arg(bool) = delete;
  str_cat_arg(char) = delete;    // would convert to an integer
  str_cat_arg(double) = delete;  // would need a rounding mode

  void append_to(std::string& all) const {
    if (kind_ == kind::text) {
      all.append(text_, static_cast<std::size_t>(value_));
      return;
    }
    if (kind_ == kind::negative) all += '-';
    all += std::to_string(value_);
  }

 private:
  enum class kind : unsigned char { text, number, negative };

  const char* text_ = nullptr;
  std::uint64_t value_;  // absolute value of the integer, or length of the text
  kind kind_ = kind::number;
};

/// Concatenates the pieces in one call. A chain of `+` would compile all temporaries and their
/// cleanup into every caller. The function is a template so that `penstock::compiled` can contain
/// it.
template <class = void>
[[nodiscard, gnu::noinline]] std::string str_cat(std::initializer_list<str_cat_arg> pieces) {
  std::string all;
  for (const str_cat_arg& piece : pieces) piece.append_to(all);
  return all;
}
#if PENSTOCK_COMPILED
extern template std::string str_cat<void>(std::initializer_list<str_cat_arg>);
#endif

}  // namespace detail

/// Base class of penstock exceptions. Standard exceptions are thrown in other cases:
/// `std::logic_error` for a call that is not allowed, `std::invalid_argument` for an argument out
/// of range, and `std::system_error` for a thread that cannot be started. Exceptions from a dataset
/// or a `map` function reach the consumer unchanged (see `failure`).
class [[gnu::visibility("default")]] error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown if a loop or another wait ended early because a stop was requested, a required object was
/// destroyed, or `exit()` ends the process.
class [[gnu::visibility("default")]] cancelled : public error {
 public:
  using error::error;
};

/// Thrown if an option has an invalid value. `option()` returns the option name.
class [[gnu::visibility("default")]] option_error : public error {
 public:
  [[gnu::cold]] option_error(std::string_view option, const std::string& problem)
      : error(detail::str_cat({option, ": ", problem})), option_(option) {}
  /// Returns the option name.
  [[nodiscard]] const std::string& option() const noexcept { return option_; }

 private:
  std::string option_;
};

namespace detail {

/// Throws `option_error` with a message concatenated from pieces. A template so that
/// `penstock::compiled` can contain it.
template <class = void>
[[noreturn, gnu::cold, gnu::noinline]] void throw_option_error(
    std::string_view option, std::initializer_list<str_cat_arg> problem) {
  throw option_error(option, str_cat(problem));
}
#if PENSTOCK_COMPILED
extern template void throw_option_error<void>(std::string_view, std::initializer_list<str_cat_arg>);
#endif

/// Prints the unhandled exception `error`, which can no longer be thrown. `whose` names the source.
/// Prints nothing for `cancelled`.
[[gnu::cold]] inline void print_unhandled(const char* whose,
                                          const std::exception_ptr& error) noexcept {
  const auto line = [whose](const char* what) noexcept {
    std::fprintf(stderr, "penstock: %s exception, never retrieved: %s\n", whose, what);
  };
  try {
    std::rethrow_exception(error);
  } catch (const cancelled&) {
  } catch (const std::exception& problem) {
    line(problem.what());
  } catch (...) {
    line("not a std::exception");
  }
}

}  // namespace detail

/// Thrown if a dataset, or the part that a sampler draws from, has no samples.
class [[gnu::visibility("default")]] empty_dataset : public error {
 public:
  using error::error;
};

/// Thrown if a batch layout is impossible, because an extent is 0 or the size exceeds the range of
/// `std::size_t`.
class [[gnu::visibility("default")]] layout_error : public error {
 public:
  using error::error;
};

/// Thrown if the size or the extents of a dataset have changed since the loader was created. Epochs
/// and states depend on the size, and the memory of batches depends on the extents.
class [[gnu::visibility("default")]] dataset_changed : public error {
 public:
  [[gnu::cold]] dataset_changed(std::uint64_t planned, std::uint64_t found, std::uint64_t epoch)
      : error(detail::str_cat({"dataset_changed: the dataset had ", planned,
                               " samples when its loader was made, and has ", found,
                               " at the start of epoch ", epoch,
                               (": do not change the dataset while a loader uses it; make a new "
                                "loader for new data")})),
        planned_(planned),
        found_(found) {}
  /// Reports that the extents of a dataset of `size` samples have changed. `planned` and `found`
  /// are the extents as text.
  [[gnu::cold]] dataset_changed(const std::string& planned, const std::string& found,
                                std::uint64_t size, std::uint64_t epoch)
      : error(detail::str_cat({"dataset_changed: the dataset's extents were (", planned,
                               ") when its loader was made, and are (", found,
                               ") at the start of epoch ", epoch,
                               (": do not change the dataset while a loader uses it; make a new "
                                "loader for new data")})),
        planned_(size),
        found_(size) {}
  /// Returns the number of samples when the loader was created.
  [[nodiscard]] std::uint64_t planned() const noexcept { return planned_; }
  /// Returns the current number of samples.
  [[nodiscard]] std::uint64_t found() const noexcept { return found_; }

 private:
  std::uint64_t planned_;
  std::uint64_t found_;
};

/// Thrown if a sample index is not less than the dataset size.
class [[gnu::visibility("default")]] index_error : public error {
 public:
  [[gnu::cold]] index_error(std::string_view where, std::uint64_t index, std::uint64_t size)
      : error(
            detail::str_cat({where, ": sample index ", index, " is out of range for size ", size})),
        index_(index),
        size_(size) {}
  /// Creates an error for `index` in a dataset of `size` samples, with a custom message.
  index_error(std::uint64_t index, std::uint64_t size, const std::string& message)
      : error(message), index_(index), size_(size) {}
  /// Returns the sample index.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }
  /// Returns the dataset size.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  std::uint64_t index_;
  std::uint64_t size_;
};

/// Thrown if the samples of a batch exceed the batch capacity of a ragged field, or if a sample
/// exceeds the maximum length that the dataset declares. The loader detects this from the lengths,
/// before it reads any sample of the batch.
class [[gnu::visibility("default")]] ragged_overflow : public error {
 public:
  /// Reports that `field` of batch `at` is too small. The sample with index `sample`, at `position`
  /// in the batch, needs `needed` values, but the capacity is `capacity`. `problem` is the message.
  [[gnu::cold]] ragged_overflow(std::string field, const batch_position& at, std::uint64_t position,
                                std::uint64_t sample, std::uint64_t needed, std::uint64_t capacity,
                                const std::string& problem)
      : error(detail::str_cat({"ragged_overflow: field \"", field, "\", epoch ", at.epoch,
                               ", batch ", at.batch, ", sample ", sample, " (position ", position,
                               " of the batch): ", problem})),
        field_(std::move(field)),
        at_(at),
        position_(position),
        sample_(sample),
        needed_(needed),
        capacity_(capacity) {}

  /// Returns the field name.
  [[nodiscard]] const std::string& field() const noexcept { return field_; }
  /// Returns the position of the batch.
  [[nodiscard]] const batch_position& at() const noexcept { return at_; }
  /// Returns the position in the batch of the first sample that does not fit.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  /// Returns the dataset index of the first sample that does not fit.
  [[nodiscard]] std::uint64_t sample() const noexcept { return sample_; }
  /// Returns the number of values needed by the batch up to and including the first sample that
  /// does not fit. If that sample alone is too long, returns the length of the sample.
  [[nodiscard]] std::uint64_t needed() const noexcept { return needed_; }
  /// Returns the capacity in values.
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  std::string field_;
  batch_position at_;
  std::uint64_t position_;
  std::uint64_t sample_;
  std::uint64_t needed_;
  std::uint64_t capacity_;
};

/// Thrown if the consumer requests a batch while all slots are held by leases, because waiting for
/// a slot might never end. A program that ends leases on other threads can set
/// `exhausted_action::wait`.
class [[gnu::visibility("default")]] leases_exhausted : public error {
 public:
  using error::error;
};

/// Thrown if a text cannot be parsed. The message contains the byte offset, the expected text and
/// the actual text.
class [[gnu::visibility("default")]] text_error : public error {
 public:
  /// Reports a problem at byte `offset`. `what` names the kind of text, such as "loader_state".
  text_error(const std::string& what, std::size_t offset, const std::string& expected,
             const std::string& found)
      : error(detail::str_cat(
            {what, ": at byte ", offset, ": expected ", expected, ", found ", found})),
        offset_(offset) {}
  /// Returns the offset in bytes at which parsing failed.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

 private:
  std::size_t offset_;
};

/// The origin of a sample: its source dataset and the sample index there. Source datasets are the
/// datasets that adaptors such as `subset`, `map` and `concat` wrap.
struct sample_origin {
  /// The index in the source dataset.
  std::uint64_t index = 0;
  /// The index of the source dataset among the datasets that `concat` joins.
  std::uint64_t part = 0;
  friend bool operator==(const sample_origin&, const sample_origin&) = default;
};

/// An exceeded limit of an `error_policy`, which caused an exception despite the policy.
struct limit_exceeded {
  /// The option name, "faults.on_error.max_failures" or "faults.on_error.max_failure_rate".
  std::string_view option;
  /// The option value.
  double value = 0;
  /// The number of samples lost so far, including this batch.
  std::uint64_t lost = 0;
  /// The number of samples requested so far.
  std::uint64_t requested = 0;

  /// Formats the limit, as in "8 of 112 samples could not be read, faults.on_error.max_failure_rate
  /// is 0.05".
  [[nodiscard, gnu::cold]] std::string str() const {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "%.15g", value);
    return detail::str_cat({lost, " of ", requested, " samples could not be read, and ", option,
                            " is ", number.data()});
  }
};

/// The origin of an exception that the consumer received. Epochs, batches and samples are numbered
/// from 0.
struct failure {
  /// The stage that failed. Only the first two stages can name a sample.
  /// - "read": the dataset with its adaptors.
  /// - "length": the length of a ragged sample, or the capacity for it.
  /// - "order": the sampler, or the size of the dataset.
  /// - "lengths": a request for batch lengths that has not returned.
  /// - "batch": the function of a `map_batch`.
  /// - "transfer": the copy to the device.
  /// - "results": the copy of the results to the host, or the result consumer.
  std::string_view stage;
  /// The epoch.
  std::uint64_t epoch = 0;
  /// The batch index within the epoch.
  std::uint64_t batch = 0;
  /// The sample position within the batch.
  std::uint64_t position = 0;
  /// The sample index in the dataset of the loader.
  std::uint64_t sample = 0;
  /// False if only the chunk is known, in which case `position` and `sample` describe its first
  /// sample.
  bool exact = true;
  /// The sample in its source dataset. `std::nullopt` in stages other than "read".
  std::optional<sample_origin> origin = std::nullopt;
  /// The limit that prevented the policy from skipping or replacing the sample, if any.
  std::optional<limit_exceeded> reason = std::nullopt;

  /// Formats one line for a log: "stage read, epoch 1, batch 7, sample 4711 (position 3 of the
  /// batch)". Appends the index in the source dataset if it differs: ", 14711 in the dataset below"
  /// or ", 711 in part 1 below". Appends the limit if it was exceeded: "; passed on: 8 of 112
  /// samples could not be read, ...".
  [[nodiscard, gnu::cold]] std::string str() const {
    using detail::str_cat;
    std::string text = str_cat({"stage ", stage, ", epoch ", epoch, ", batch ", batch});
    if (stage != "read" && stage != "length") return text;
    text += str_cat({", sample ", sample, " (position ", position, " of the batch",
                     exact ? ")" : " or after it)"});
    if (origin && *origin != sample_origin{sample, 0}) {
      text += str_cat({", ", origin->index, " in "});
      text += origin->part == 0 ? "the dataset" : str_cat({"part ", origin->part});
      text += " below";
    }
    if (reason) text += str_cat({"; passed on: ", reason->str()});
    return text;
  }
};

static_assert(std::is_trivially_copyable_v<failure>, "copied where nothing may throw");

namespace detail {

/// The exception that replaces a batch, and its origin. The library stores the exceptions of a
/// dataset with the batch. The consumer receives the exception once, when the batch is due.
struct failed_batch {
  std::exception_ptr error;           ///< null without an exception
  std::optional<failure> place = {};  ///< empty if the exception does not belong to a batch

  /// Returns true if there is an exception.
  [[nodiscard]] explicit operator bool() const noexcept { return error != nullptr; }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
