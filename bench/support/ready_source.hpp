// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <penstock/penstock.hpp>
#include <penstock/transfer/batch_source.hpp>

namespace bench {

/// A source whose batches are always ready, so that only the transfer is measured.
template <penstock::record_type Record, penstock::device Device>
class ready_source {
 public:
  using record_type = Record;
  using device_type = Device;
  using timeline = penstock::detail::fill_timeline<Device>;

  class batch_type {
   public:
    batch_type() = default;
    batch_type(const std::byte* data, const penstock::batch_info& info)
        : data_(data), info_(info) {}
    batch_type(batch_type&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), info_(other.info_) {}
    batch_type& operator=(batch_type&& other) noexcept {
      data_ = std::exchange(other.data_, nullptr);
      info_ = other.info_;
      return *this;
    }
    using record_type = ready_source::record_type;
    using device_type = ready_source::device_type;
    explicit operator bool() const noexcept { return data_ != nullptr; }
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] const penstock::batch_info& info() const noexcept { return info_; }
    // The functions that a feed calls for the batches of a loader. The memory is not refilled.
    void release_after(typename Device::stream_ref) noexcept { data_ = nullptr; }
    void release_after(const std::shared_ptr<timeline>&, typename timeline::point) noexcept {
      data_ = nullptr;
    }

   private:
    const std::byte* data_ = nullptr;
    penstock::batch_info info_;
  };

  /// Provides `count` batches per epoch. The `ring` batches at `data` are used in rotation and are
  /// `stride` bytes apart.
  ready_source(const Device& device, const penstock::batch_layout<Record>& layout,
               const std::byte* data, std::size_t stride, std::size_t ring, std::uint64_t count)
      : device_(device),
        layout_(layout),
        data_(data),
        stride_(stride),
        ring_(ring),
        count_(count) {}

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const penstock::batch_layout<record_type>& layout() const noexcept {
    return layout_;
  }
  void start(const penstock::batch_position&, std::uint64_t) { next_ = 0; }
  [[nodiscard]] batch_type next() {
    if (next_ == count_) return {};
    const std::uint64_t i = next_++;
    return {
        data_ + i % ring_ * stride_,
        {.epoch = 0, .batch = i, .size = layout_.batch_size(), .valid_size = layout_.batch_size()}};
  }
  [[nodiscard]] batch_type try_next() { return next(); }
  void stop() noexcept {}

 private:
  Device device_;
  penstock::batch_layout<record_type> layout_;
  const std::byte* data_;
  std::size_t stride_;
  std::size_t ring_;
  std::uint64_t count_;
  std::uint64_t next_ = 0;
};

}  // namespace bench
