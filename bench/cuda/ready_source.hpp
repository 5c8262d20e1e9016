// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

namespace bench {

/// A source whose batches are always ready: what is measured is the transfer alone.
template <penstock::record_type Record>
class ready_source {
 public:
  using record_type = Record;
  using device_type = penstock::cuda_device;
  using mark_type = penstock::detail::shared_event<penstock::cuda_event>;

  class batch_type {
   public:
    batch_type() = default;
    batch_type(const std::byte* data, const penstock::batch_info& info)
        : data_(data), info_(info) {}
    batch_type(batch_type&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          info_(other.info_),
          device_(other.device_),
          drained_(other.drained_) {}
    batch_type& operator=(batch_type&& other) noexcept {
      data_ = std::exchange(other.data_, nullptr);
      info_ = other.info_;
      device_ = other.device_;
      drained_ = other.drained_;
      return *this;
    }
    using record_type = ready_source::record_type;
    using device_type = ready_source::device_type;
    explicit operator bool() const noexcept { return data_ != nullptr; }
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] const penstock::batch_info& info() const noexcept { return info_; }
    // As the loader's, but that the memory is not refilled here.
    void release_after(penstock::cuda_stream_ref) noexcept { data_ = nullptr; }
    [[nodiscard]] mark_type* mark_copies(penstock::cuda_stream_ref stream) {
      if (drained_->is_held()) return nullptr;
      device_->record(drained_->event(), stream);
      return drained_;
    }
    void release_behind(mark_type*) noexcept { data_ = nullptr; }
    void drained_by(const penstock::cuda_device& device, mark_type* mark) noexcept {
      device_ = &device;
      drained_ = mark;
    }

   private:
    const std::byte* data_ = nullptr;
    penstock::batch_info info_;
    const penstock::cuda_device* device_ = nullptr;
    mark_type* drained_ = nullptr;  // the source's
  };

  /// `count` batches an epoch, by turns the `ring` ones at `data`, which are `stride` bytes apart.
  ready_source(const penstock::cuda_device& device, const penstock::batch_layout<Record>& layout,
               const std::byte* data, std::size_t stride, std::size_t ring, std::uint64_t count)
      : device_(device), layout_(layout), data_(data), stride_(stride), ring_(ring), count_(count) {
    for (std::size_t i = 0; i < ring; ++i) {
      drained_.push_back(mark_type::make(device.make_event(penstock::event_wait::by_host)));
    }
  }

  [[nodiscard]] const penstock::cuda_device& device() const noexcept { return device_; }
  [[nodiscard]] const penstock::batch_layout<record_type>& layout() const noexcept {
    return layout_;
  }
  void start(const penstock::batch_position&, std::uint64_t) { next_ = 0; }
  [[nodiscard]] batch_type next() {
    if (next_ == count_) return {};
    const std::uint64_t i = next_++;
    batch_type made{
        data_ + i % ring_ * stride_,
        {.epoch = 0, .batch = i, .size = layout_.batch_size(), .valid_size = layout_.batch_size()}};
    made.drained_by(device_, drained_[i % ring_].get());
    return made;
  }
  [[nodiscard]] batch_type try_next() { return next(); }
  void stop() noexcept {}

 private:
  penstock::cuda_device device_;
  penstock::batch_layout<record_type> layout_;
  const std::byte* data_;
  std::size_t stride_;
  std::size_t ring_;
  std::uint64_t count_;
  std::uint64_t next_ = 0;
  std::vector<mark_type::ref> drained_;
};

}  // namespace bench
