// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/observe/loader_stats.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/transfer/batch_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where a feed gets batches from: a source, with answers to what it may not tell. An error of the
/// source waits for its turn, after the batches that came before it.
template <class Source>
class feed_source {
 public:
  using source_type = std::remove_reference_t<Source>;
  using batch_type = typename source_type::batch_type;

  /// The place of an error goes to `failure` together with the error.
  feed_source(Source&& source, shared_value<std::optional<penstock::failure>>& failure)
      : source_(std::forward<Source>(source)), failure_(failure) {}
  feed_source(feed_source&&) = delete;

  [[nodiscard]] const source_type& get() const noexcept { return source_; }

  /// Begins a range, which `stop` ends.
  void start(const batch_position& from, std::uint64_t last_epoch) {
    source_.start(from, last_epoch);
    is_over_ = false;
  }
  void stop() noexcept {
    error_ = nullptr;
    // One that threw has stopped, and may serve another feed.
    if (!std::exchange(is_over_, true)) source_.stop();
  }

  /// Whether the source has thrown, and is not to be asked any more.
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

  /// The next batch if it is ready. An error is kept for `may_have_more`.
  [[nodiscard]] batch_type try_next() {
    try {
      return source_.try_next();
    } catch (...) {
      is_over_ = true;
      error_ = std::current_exception();
      failure_of_error_ = failure_of_source();
      return {};
    }
  }

  /// Whether `next` may give a batch. Throws an error that was kept.
  [[nodiscard]] bool may_have_more() {
    if (error_) {
      failure_.store(failure_of_error_);
      std::rethrow_exception(error_);
    }
    return !is_over_ && !is_at_end();
  }

  /// Waits for the next batch; empty at the end.
  [[nodiscard]] batch_type next() {
    try {
      return source_.next();
    } catch (...) {
      is_over_ = true;
      failure_.store(failure_of_source());
      throw;
    }
  }

  /// A batch that the source has given is handed to no consumer; for a source that wants to know.
  void take_back([[maybe_unused]] const batch_info& batch,
                 [[maybe_unused]] std::span<const std::uint64_t> tags) noexcept {
    if constexpr (requires {
                    { source_.take_back(batch, tags) }
                    noexcept;
                  }) {
      source_.take_back(batch, tags);
    }
  }

  /// Gives back the slots of the batches that were copied and not handed out.
  template <class Issued, class Ring>
  void discard(Issued& issued, Ring& ring) noexcept {
    for (; !issued.empty(); issued.pop()) {
      const std::size_t slot = issued.front().slot;
      take_back(ring.info(slot), ring.tags(slot).all());
      ring.discard(slot);
    }
  }

  /// The statistics of the source, where it has those of a loader. From any thread.
  [[nodiscard]] std::optional<loader_stats> stats() const {
    if constexpr (requires {
                    { source_.stats() } -> std::same_as<loader_stats>;
                  }) {
      return source_.stats();
    } else {
      return std::nullopt;
    }
  }

  /// What its batches are called in a trace of `recorder`; 0 where it records none there.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    if constexpr (requires {
                    { source_.trace_flow(recorder) } -> std::same_as<std::uint64_t>;
                  }) {
      return source_.trace_flow(recorder);
    } else {
      return 0;
    }
  }

  /// By what a wait for a lease is ended.
  [[nodiscard]] std::stop_token stop_token() const {
    if constexpr (requires {
                    { source_.stop_token() } -> std::same_as<std::stop_token>;
                  }) {
      return source_.stop_token();
    } else {
      return {};
    }
  }

 private:
  [[nodiscard]] bool is_at_end() const noexcept {
    if constexpr (requires {
                    { source_.at_end() } -> std::same_as<bool>;
                  }) {
      return source_.at_end();
    } else {
      return false;
    }
  }

  [[nodiscard]] std::optional<penstock::failure> failure_of_source() const {
    if constexpr (requires {
                    {
                      source_.last_failure()
                      } -> std::convertible_to<std::optional<penstock::failure>>;
                  }) {
      return source_.last_failure();
    } else {
      return std::nullopt;
    }
  }

  Source source_;
  shared_value<std::optional<penstock::failure>>& failure_;
  bool is_over_ = false;
  std::exception_ptr error_;  // kept until its turn, with where it came from
  std::optional<penstock::failure> failure_of_error_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
