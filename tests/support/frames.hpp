// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/memory/pinned_allocator.hpp>
#include <penstock/transfer/batch_source.hpp>

/// A simulated camera. A test creates its frames, which are numbered from 0; each frame is a batch
/// of one sample in memory that the device can copy from. The stream ends when no frame is left.
/// The class is thread-safe, because a step on another thread may create frames.
template <class Device>
class frame_queue {
 public:
  using record_type = penstock::record<penstock::field<"frame", std::uint64_t>>;
  using device_type = Device;
  static constexpr std::size_t slots = 16;

  class batch_type {
   public:
    using record_type = frame_queue::record_type;
    using device_type = Device;

    batch_type() = default;
    batch_type(frame_queue& from, std::size_t slot, const penstock::batch_info& info)
        : from_(&from), slot_(slot), info_(info) {}
    batch_type(batch_type&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)), slot_(other.slot_), info_(other.info_) {}
    batch_type& operator=(batch_type&& other) noexcept {
      std::swap(from_, other.from_);
      std::swap(slot_, other.slot_);
      std::swap(info_, other.info_);
      return *this;
    }
    ~batch_type() {
      if (from_ != nullptr) from_->free(slot_);
    }
    explicit operator bool() const { return from_ != nullptr; }
    [[nodiscard]] const std::byte* data() const { return from_->data(slot_); }
    [[nodiscard]] penstock::batch_info info() const { return info_; }
    void release_after(typename Device::stream_ref copies) {
      from_->device_.synchronize(copies);  // a blocking wait is simple and sufficient here
      std::exchange(from_, nullptr)->free(slot_);
    }

   private:
    frame_queue* from_ = nullptr;
    std::size_t slot_ = 0;
    penstock::batch_info info_;
  };

  std::uint64_t dropped = 0;                   ///< the value of `skipped` for each frame
  bool fails = false;                          ///< makes the stream end with an error
  std::vector<std::uint64_t> taken_back = {};  ///< frames that the feed has returned

  explicit frame_queue(const Device& device)
      : device_(device),
        layout_(penstock::record_extents<record_type>{}, 1),
        memory_(layout_.bytes() * slots, penstock::pinned_allocator<std::byte, Device>{device}) {
    is_free_.fill(true);
  }
  frame_queue(frame_queue&&) = delete;

  /// Adds `count` frames.
  void push(std::size_t count) {
    const std::lock_guard lock{mutex_};
    for (; count != 0; --count) {
      const auto slot = static_cast<std::size_t>(std::find(is_free_.begin(), is_free_.end(), true) -
                                                 is_free_.begin());
      if (slot == slots) throw std::logic_error("frame_queue: no slot is free");
      is_free_[slot] = false;
      std::memcpy(data(slot), &next_, sizeof next_);
      ready_.emplace_back(
          *this, slot,
          penstock::batch_info{
              .batch = next_, .size = 1, .valid_size = 1, .tag = next_, .dropped = dropped});
      ++next_;
    }
  }
  /// Returns the number of slots that no batch uses.
  [[nodiscard]] std::size_t free() const {
    const std::lock_guard lock{mutex_};
    return static_cast<std::size_t>(std::count(is_free_.begin(), is_free_.end(), true));
  }

  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] const penstock::batch_layout<record_type>& layout() const { return layout_; }
  void start(const penstock::batch_position&, std::uint64_t) {}
  [[nodiscard]] batch_type next() { return try_next(); }
  [[nodiscard]] batch_type try_next() {
    const std::lock_guard lock{mutex_};
    if (ready_.empty()) {
      if (fails) throw std::domain_error("the camera is gone");
      return {};
    }
    batch_type first = std::move(ready_.front());
    ready_.pop_front();
    return first;
  }
  void stop() noexcept {}
  void take_back(const penstock::batch_info& batch, std::span<const std::uint64_t>) noexcept {
    taken_back.push_back(batch.tag);
  }

 private:
  void free(std::size_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    is_free_[slot] = true;
  }
  [[nodiscard]] std::byte* data(std::size_t slot) { return &memory_[slot * layout_.bytes()]; }

  Device device_;
  penstock::batch_layout<record_type> layout_;
  std::vector<std::byte, penstock::pinned_allocator<std::byte, Device>> memory_;
  mutable std::mutex mutex_;  // guards all members below
  std::array<bool, slots> is_free_{};
  std::deque<batch_type> ready_;  // destroyed first: a batch frees its slot
  std::uint64_t next_ = 0;
};
