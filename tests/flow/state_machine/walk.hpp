// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include <penstock/penstock.hpp>

#include "flow/state_machine/chaotic.hpp"
#include "flow/state_machine/expected.hpp"
#include "flow/state_machine/moody.hpp"

namespace stress {

namespace ps = penstock;

using loader_type = ps::loader<chaotic, moody>;
using feed_type = ps::transfer<loader_type&>;
using owner_type = ps::transfer<loader_type>;
using host_lease = loader_type::batch_type;
using device_lease = feed_type::batch_type;
using any_lease = std::variant<host_lease, device_lease>;

/// A range over a loader or a feed, together with its iterator.
class walk {
 public:
  /// Creates a walk over the loader or feed with number `of`.
  walk(std::uint64_t of, ps::batch_position from, std::uint64_t last_epoch, bool is_feed)
      : of_(of), from_(from), last_epoch_(last_epoch), is_feed_(is_feed) {}
  walk(walk&&) = delete;
  virtual ~walk() = default;
  virtual bool begin() = 0;
  virtual bool advance() = 0;
  virtual void relocate() = 0;
  virtual void look(const expected& must) = 0;
  virtual const ps::batch_info& info() = 0;
  virtual any_lease take() = 0;

  [[nodiscard]] std::uint64_t of() const { return of_; }
  [[nodiscard]] const ps::batch_position& from() const { return from_; }
  [[nodiscard]] std::uint64_t last_epoch() const { return last_epoch_; }
  [[nodiscard]] bool is_feed() const { return is_feed_; }

 private:
  std::uint64_t of_;
  ps::batch_position from_;
  std::uint64_t last_epoch_;
  bool is_feed_;
};

template <class Range>
class range_walk final : public walk {
 public:
  range_walk(Range range, std::uint64_t of, ps::batch_position from, std::uint64_t last_epoch,
             bool is_feed)
      : walk(of, from, last_epoch, is_feed), range_(std::in_place, std::move(range)) {}
  bool begin() override {
    at_ = range_->begin();
    return at_ != range_->end();
  }
  bool advance() override {
    ++at_;
    return at_ != range_->end();
  }
  void relocate() override {
    Range elsewhere{std::move(*range_)};
    range_.emplace(std::move(elsewhere));
  }
  void look(const expected& must) override { look_at(*at_, must); }
  const ps::batch_info& info() override { return at_->info(); }
  any_lease take() override { return std::move(*at_); }

 private:
  std::optional<Range> range_;
  typename Range::iterator at_;
};

/// A range that uses the stage interface of the loader.
class source_walk final : public walk {
 public:
  source_walk(std::optional<loader_type>& source, std::uint64_t of, ps::batch_position from,
              std::uint64_t last_epoch)
      : walk(of, from, last_epoch, false), source_(source) {}
  ~source_walk() override {
    held_ = {};
    if (is_begun_ && source_) source_->stop();
  }
  bool begin() override {
    held_ = {};
    if (is_begun_) source_->stop();
    is_begun_ = false;
    source_->start(from(), last_epoch());
    is_begun_ = true;
    return advance();
  }
  bool advance() override {
    held_ = {};
    try {
      held_ = source_->try_next();
      if (!held_) held_ = source_->next();
    } catch (...) {
      is_begun_ = false;
      throw;
    }
    is_begun_ = static_cast<bool>(held_);
    return is_begun_;
  }
  void relocate() override {}
  void look(const expected& must) override { look_at(held_, must); }
  const ps::batch_info& info() override { return held_.info(); }
  any_lease take() override { return std::move(held_); }

 private:
  std::optional<loader_type>& source_;
  host_lease held_;
  bool is_begun_ = false;
};

}  // namespace stress
