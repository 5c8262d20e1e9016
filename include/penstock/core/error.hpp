#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// The base of the exceptions that penstock itself makes, but for those of the standard that say it
/// better: `std::logic_error` for a wrong call, its child `std::invalid_argument` for a number that
/// a draw can't have, `std::system_error` for a thread that the system refuses. An exception out of
/// a dataset or a `map` function is not wrapped: it reaches the consumer as thrown, see `failure`.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An option has a value that can't work; `option()` names it.
class option_error : public error {
 public:
  option_error(std::string_view option, const std::string& problem)
      : error(std::string{option} + ": " + problem), option_(option) {}
  /// The option's name.
  [[nodiscard]] const std::string& option() const noexcept { return option_; }

 private:
  std::string option_;
};

/// A dataset, or the part of it that a sampler draws, has no sample.
class empty_dataset : public error {
 public:
  using error::error;
};

/// A batch of this record, these extents and this size has more bytes than an address can count, or
/// an extent of 0.
class layout_error : public error {
 public:
  using error::error;
};

/// A sample index at or behind the end of a dataset.
class index_error : public error {
 public:
  index_error(std::string_view where, std::uint64_t index, std::uint64_t size)
      : error(std::string{where} + ": sample index " + std::to_string(index) +
              " is out of range, the size is " + std::to_string(size)),
        index_(index),
        size_(size) {}
  /// The same in words of the caller's.
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
/// end on other threads (`when_held::wait`).
class leases_exhausted : public error {
 public:
  using error::error;
};

/// The stop token of a loader's options was used: no batch comes any more.
class cancelled : public error {
 public:
  using error::error;
};

/// Where an exception that the consumer got came from. Numbers count from 0.
struct failure {
  /// "read" (the dataset with its adaptors) or "transfer" (the copy to the device).
  std::string_view stage;
  /// The epoch.
  std::uint64_t epoch = 0;
  /// The batch within its epoch.
  std::uint64_t batch = 0;
  /// The sample's place within its batch.
  std::uint64_t position = 0;
  /// The sample's index in the dataset.
  std::uint64_t sample = 0;
  /// False where only the run of samples is known: `position` and `sample` are the run's first.
  bool exact = true;

  /// One line for a log: "stage read, epoch 1, batch 7, sample 4711 (position 3 of the batch)".
  [[nodiscard]] std::string str() const {
    return "stage " + std::string{stage} + ", epoch " + std::to_string(epoch) + ", batch " +
           std::to_string(batch) + ", sample " + std::to_string(sample) + " (position " +
           std::to_string(position) + " of the batch" + (exact ? ")" : " or behind it)");
  }
};

}  // namespace penstock::inline PENSTOCK_ABI
