// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/cuda/on_device.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/cuda.hpp>

#include "fake_cuda/fake_cuda.hpp"

/// Runs a batch through an `on_device` transform on the fake CUDA runtime.
namespace passages {

namespace ps = penstock;

/// A type of three bytes, which cannot be packed.
struct colour {
  std::uint8_t red, green, blue;
  friend bool operator==(const colour&, const colour&) = default;
};
using raw = ps::record<ps::field<"image", std::uint8_t, ps::dyn>, ps::field<"weight", double>,
                       ps::field<"colour", colour, 5>, ps::field<"label", std::uint16_t>>;

inline std::uint8_t pixel(std::size_t i) { return static_cast<std::uint8_t>(i * 7 + i / 251); }
inline colour colour_at(std::size_t i) {
  const auto level = static_cast<std::uint8_t>(i * 3);
  return {level, 7, static_cast<std::uint8_t>(level + 1)};
}

/// The input and the output of a transform for one batch. The object owns their memory.
template <class Transform>
class passage {
  using made = typename Transform::template record_for<raw>;

 public:
  passage(std::size_t length, std::size_t samples, const Transform& how)
      : samples_(samples),
        from_(ps::record_extents<raw>{{length}, {}, {}, {}}, samples),
        to_(how.extents(ps::record_extents<raw>{{length}, {}, {}, {}}), samples),
        given_(from_.bytes()),
        found_(to_.bytes()) {
    const ps::batch_view<raw> batch{given_.data(), from_, 0, samples};
    fill(batch.get<"image">(), pixel);
    fill(batch.get<"weight">(), [](std::size_t i) { return static_cast<double>(i) / 3.0; });
    fill(batch.get<"colour">(), colour_at);
    fill(batch.get<"label">(), [](std::size_t i) { return static_cast<std::uint16_t>(i + 999); });
    run(how);
  }

  [[nodiscard]] ps::const_batch_view<made> batch() const {
    return {found_.data(), to_, 0, samples_};
  }

  /// Returns the number of elements of a field that differ from `expected(i)`.
  template <ps::name Name, class Expected>
  [[nodiscard]] std::size_t wrong(const Expected& expected) const {
    const auto values = batch().template get<Name>().flat();
    std::size_t count = 0;
    for (std::size_t i = 0; i < values.size(); ++i) count += values[i] != expected(i) ? 1U : 0U;
    return count;
  }
  /// Returns the number of differing elements in the fields that are only copied.
  [[nodiscard]] std::size_t wrong_copies() const {
    return wrong<"weight">([](std::size_t i) { return static_cast<double>(i) / 3.0; }) +
           wrong<"label">([](std::size_t i) { return static_cast<std::uint16_t>(i + 999); });
  }
  /// Returns the number of bytes written between and after the fields.
  [[nodiscard]] std::size_t spoilt() const {
    std::vector<bool> is_field(found_.size());
    const auto mark = [&](const auto& field) {
      const auto bytes = std::as_bytes(field.flat());
      std::fill_n(is_field.begin() + (bytes.data() - found_.data()), bytes.size(), true);
    };
    mark(batch().template get<"image">());
    mark(batch().template get<"weight">());
    mark(batch().template get<"colour">());
    mark(batch().template get<"label">());
    std::size_t count = 0;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      count += !is_field[i] && found_[i] != std::byte{fake_cuda::poison} ? 1U : 0U;
    }
    return count;
  }

 private:
  template <class Field, class Value>
  static void fill(const Field& field, const Value& value) {
    const auto all = field.flat();
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(i);
  }

  void run(const Transform& how) {
    const ps::cuda_device device;
    const auto stream = device.make_stream();
    const ps::detail::slab in{device, from_.bytes(), ps::detail::memory_kind::device};
    const ps::detail::slab out{device, to_.bytes(), ps::detail::memory_kind::device};
    how.prepare(device, from_);
    device.copy_async(in.data(), given_.data(), given_.size(), stream);
    how.enqueue(ps::const_batch_view<raw>{in.data(), from_, 0, samples_},
                ps::batch_view<made>{out.data(), to_, 0, samples_}, stream);
    device.copy_async(found_.data(), out.data(), found_.size(), stream);
    device.synchronize(ps::cuda_stream_ref{stream});
  }

  std::size_t samples_;
  ps::batch_layout<raw> from_;
  ps::batch_layout<made> to_;
  std::vector<std::byte> given_;
  std::vector<std::byte> found_;
};

}  // namespace passages
