// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <penstock/core/support/joined.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The base of the exceptions that penstock itself makes, but for those of the standard that say it
/// better: `std::logic_error` for a wrong call, its child `std::invalid_argument` for a number that
/// a draw can't have, `std::system_error` for a thread that the system refuses. An exception out of
/// a dataset or a `map` function is not wrapped: it reaches the consumer as thrown, see `failure`.
class [[gnu::visibility("default")]] error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An option has a value that can't work; `option()` names it.
class [[gnu::visibility("default")]] option_error : public error {
 public:
  [[gnu::cold]] option_error(std::string_view option, const std::string& problem)
      : error(detail::joined({option, ": ", problem})), option_(option) {}
  /// The option's name.
  [[nodiscard]] const std::string& option() const noexcept { return option_; }

 private:
  std::string option_;
};

namespace detail {

/// Throws `option_error` with the pieces of its problem.
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_option(
    std::string_view option, std::initializer_list<text_piece> problem) {
  throw option_error(option, joined(problem));
}

}  // namespace detail

/// A dataset, or the part of it that a sampler draws, has no sample.
class [[gnu::visibility("default")]] empty_dataset : public error {
 public:
  using error::error;
};

/// A batch of this record, these extents and this size has more bytes than an address can count, or
/// an extent of 0.
class [[gnu::visibility("default")]] layout_error : public error {
 public:
  using error::error;
};

/// A dataset has another size at the start of an epoch than at the construction of its loader,
/// which has planned its epochs, and its state, by the first one.
class [[gnu::visibility("default")]] dataset_changed : public error {
 public:
  [[gnu::cold]] dataset_changed(std::uint64_t planned, std::uint64_t found, std::uint64_t epoch)
      : error(detail::joined(
            {"dataset_changed: the dataset had ", planned,
             " samples when its loader was made, and has ", found, " at the start of epoch ", epoch,
             ": keep it as it is while a loader uses it, and make a new loader for new data"})),
        planned_(planned),
        found_(found) {}
  /// How many samples there were when the loader was made.
  [[nodiscard]] std::uint64_t planned() const noexcept { return planned_; }
  /// How many there are now.
  [[nodiscard]] std::uint64_t found() const noexcept { return found_; }

 private:
  std::uint64_t planned_;
  std::uint64_t found_;
};

/// A sample index that is not below the size of its dataset.
class [[gnu::visibility("default")]] index_error : public error {
 public:
  [[gnu::cold]] index_error(std::string_view where, std::uint64_t index, std::uint64_t size)
      : error(detail::joined(
            {where, ": sample index ", index, " is out of range, the size is ", size})),
        index_(index),
        size_(size) {}
  /// An index error in the caller's own words.
  index_error(std::uint64_t index, std::uint64_t size, const std::string& message)
      : error(message), index_(index), size_(size) {}
  /// The index that was asked for.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }
  /// How many there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  std::uint64_t index_;
  std::uint64_t size_;
};

/// All leases are held and the consumer asks for one more: waiting might never end, unless leases
/// end on other threads (`held_action::wait`).
class [[gnu::visibility("default")]] leases_exhausted : public error {
 public:
  using error::error;
};

/// A text is not what it should be: at which byte of it, what was expected there and what was found.
class [[gnu::visibility("default")]] text_error : public error {
 public:
  /// `what` is what the text should be: "loader_state".
  text_error(const std::string& what, std::size_t offset, const std::string& expected,
             const std::string& found)
      : error(what + ": at byte " + std::to_string(offset) + ": expected " + expected + ", found " +
              found),
        offset_(offset) {}
  /// The byte of the text that could not be read.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

 private:
  std::size_t offset_;
};

/// The stop token of a loader's options was used: no batch comes any more.
class [[gnu::visibility("default")]] cancelled : public error {
 public:
  using error::error;
};

/// Where a sample comes from: its index in the dataset at the bottom of a pipeline, below `subset`,
/// `map` and `concat`, and which of those datasets that is.
struct sample_origin {
  /// The index in the dataset at the bottom.
  std::uint64_t index = 0;
  /// Which dataset at the bottom, counted from 0 over all that `concat` joins; 0 where there is
  /// one.
  std::uint64_t part = 0;
  friend bool operator==(const sample_origin&, const sample_origin&) = default;
};

/// A limit of an `error_policy` that was passed, so that an exception came out after all.
struct passed_limit {
  /// The option: "on_error.most_failures" or "on_error.largest_share".
  std::string_view option;
  /// Its value.
  double value = 0;
  /// How many samples were lost by then, those of this batch counted,
  std::uint64_t lost = 0;
  /// of how many that were asked for.
  std::uint64_t asked = 0;

  /// In words: "8 of 112 samples could not be read, on_error.largest_share is 0.05".
  [[nodiscard, gnu::cold]] std::string str() const {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "%.15g", value);
    return detail::joined(
        {lost, " of ", asked, " samples could not be read, ", option, " is ", number.data()});
  }
};

/// Where an exception that the consumer got came from. Numbers count from 0.
struct failure {
  /// "read" (the dataset with its adaptors), "order" (the sampler's order of the epoch, or the
  /// dataset's size: no sample's), "length" (of a ragged sample, or the room for it), "batch" (a
  /// `map_batch`: no sample's) or "transfer" (the copy to the device).
  std::string_view stage;
  /// The epoch.
  std::uint64_t epoch = 0;
  /// The batch within its epoch.
  std::uint64_t batch = 0;
  /// The sample's place within its batch.
  std::uint64_t position = 0;
  /// The sample's index in the loader's dataset.
  std::uint64_t sample = 0;
  /// False where only the run of samples is known: `position` and `sample` are the run's first.
  bool exact = true;
  /// The sample at the bottom of the pipeline; `std::nullopt` in stages other than "read".
  std::optional<sample_origin> origin = std::nullopt;
  /// Why a sample that was to be skipped or substituted was not; else `std::nullopt`.
  std::optional<passed_limit> reason = std::nullopt;

  /// One line for a log: "stage read, epoch 1, batch 7, sample 4711 (position 3 of the batch)", and
  /// where it has another number at the bottom, or a reason, those: ", 14711 in the dataset below"
  /// or ", 711 in part 1 below", "; passed on: 8 of 112 samples could not be read, ...".
  [[nodiscard, gnu::cold]] std::string str() const {
    using detail::joined;
    std::string text = joined({"stage ", stage, ", epoch ", epoch, ", batch ", batch});
    if (stage == "order" || stage == "batch") return text;
    text += joined({", sample ", sample, " (position ", position, " of the batch",
                    exact ? ")" : " or after it)"});
    if (origin && *origin != sample_origin{sample, 0}) {
      text += joined({", ", origin->index, " in "});
      text += origin->part == 0 ? "the dataset" : joined({"part ", origin->part});
      text += " below";
    }
    if (reason) text += joined({"; passed on: ", reason->str()});
    return text;
  }
};

static_assert(std::is_trivially_copyable_v<failure>, "copied where nothing may throw");

}  // namespace PENSTOCK_ABI
}  // namespace penstock
