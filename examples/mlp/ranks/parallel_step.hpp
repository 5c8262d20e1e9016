// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bucketed_sums.hpp"
#include "collective.hpp"
#include "device_array.hpp"
#include "kernels.hpp"
#include "network.hpp"
#include "reduction.hpp"
#include "shape.hpp"

namespace mlp {

/// The parts of a global batch whose gradients are added up in order, for any number of ranks.
inline constexpr std::size_t ordered_parts = 8;

/// Steps of a network on global batches that ranks share: each differentiates its own part, all add
/// up, each makes the same update. All memory is taken at construction.
///
/// Ranks that sum in the order of a stream do so under the backward pass (`bucketed_sums`), and no
/// step waits for them on the host but for the one before it; others sum in `differentiate`.
template <class Backend, collective Collective>
class parallel_step {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// Throws `std::invalid_argument` for a global batch or a world that `ordered` can't divide, and
  /// for `ordered` with ranks that sum in device memory.
  parallel_step(const device_type& device, const Backend& backend, stream_ref stream,
                Collective& ranks, std::size_t global_batch, reduction how)
      : device_(device),
        backend_(backend),
        stream_(stream),
        ranks_(ranks),
        buckets_(device_, ranks),
        global_batch_(global_batch),
        share_(global_batch / static_cast<std::size_t>(ranks.size())),
        parts_(parts_of(ranks, global_batch, how)),
        net_(device, backend, share_ / parts_),
        gradients_(device, parts_ * shape::parameters),
        gathered_(device, how == reduction::ordered ? ordered_parts * shape::parameters : 1),
        sum_(device, shape::parameters),
        losses_(device, share_),
        my_losses_(share_),
        all_losses_(global_batch),
        how_(how) {}

  [[nodiscard]] network<Backend>& net() { return net_; }

  /// The first half of a step: the gradients of a global batch, of which this rank's part lies in
  /// device memory.
  template <class Pixel>
  void differentiate(const Pixel* images, const std::uint8_t* labels, std::size_t count) {
    if (count != share_) throw std::logic_error("parallel_step: not a rank's share");
    const float scale = 1.0F / static_cast<float>(global_batch_);
    if constexpr (is_streamed) {
      net_.differentiate(images, labels, share_, scale, gradients_.data(), losses_.data(), stream_,
                         [this](std::size_t place, std::size_t length) {
                           buckets_.add({gradients_.data() + place, length}, stream_);
                         });
      buckets_.join(stream_);
    } else {
      const std::size_t part = share_ / parts_;
      for (std::size_t p = 0; p < parts_; ++p) {
        net_.differentiate(images + p * part * shape::inputs, labels + p * part, part, scale,
                           gradients_.data() + p * shape::parameters, losses_.data() + p * part,
                           stream_);
      }
      add_up();
    }
  }
  /// The losses of the last global batch, in its order; valid until they are asked for again. Every
  /// rank has to ask. Waits for the stream.
  [[nodiscard]] std::span<const float> losses() {
    wait();
    losses_.download(my_losses_, 0, stream_);
    ranks_.all_gather(std::as_bytes(std::span{my_losses_}),
                      std::as_writable_bytes(std::span{all_losses_}));
    return all_losses_;
  }
  /// The second half, in which the network learns.
  void update() {
    net_.update(how_ == reduction::ordered ? sum_.data() : gradients_.data(), stream_);
    if constexpr (is_streamed) buckets_.end_step(stream_);
  }
  /// Returns when all steps are done; an error of the ranks' where that takes too long.
  void wait() {
    if constexpr (is_streamed) buckets_.wait(stream_);
  }

 private:
  static constexpr bool is_streamed = streamed_collective<Collective>;
  template <class Device, class Ranks>
  struct buckets_of {
    using type = no_buckets<Device, Ranks>;
  };
  template <class Device, streamed_collective Ranks>
  struct buckets_of<Device, Ranks> {
    using type = bucketed_sums<Device, Ranks>;
  };

  static std::size_t parts_of(const Collective& ranks, std::size_t global_batch, reduction how) {
    if (how == reduction::fast) return 1;
    if (is_streamed) {
      throw std::invalid_argument(
          "--deterministic adds up in the host's memory: it is of the CPU device");
    }
    const auto size = static_cast<std::size_t>(ranks.size());
    if (global_batch % ordered_parts != 0 || ordered_parts % size != 0) {
      throw std::invalid_argument(
          "--deterministic adds up by eighths of the global batch: take 1, 2, 4 or 8 ranks, which "
          "are " +
          std::to_string(size) + ", and a multiple of 8 for --batch, which is " +
          std::to_string(global_batch));
    }
    return ordered_parts / size;
  }

  void add_up() {
    const std::span mine{gradients_.data(), gradients_.size()};
    if (how_ == reduction::fast) {
      ranks_.all_reduce(mine);
      return;
    }
    ranks_.all_gather(std::as_bytes(mine),
                      std::as_writable_bytes(std::span{gathered_.data(), gathered_.size()}));
    backend_.enqueue(stream_, [from = gathered_.data(), to = sum_.data()](const auto& on) {
      on.each(shape::parameters, kernel::sum_rows{from, ordered_parts, shape::parameters, to});
    });
  }

  device_type device_;
  Backend backend_;
  stream_ref stream_;
  Collective& ranks_;
  typename buckets_of<device_type, Collective>::type buckets_;
  std::size_t global_batch_;
  std::size_t share_;
  std::size_t parts_;
  network<Backend> net_;
  device_array<float, device_type> gradients_;
  device_array<float, device_type> gathered_;
  device_array<float, device_type> sum_;
  device_array<float, device_type> losses_;
  std::vector<float> my_losses_;
  std::vector<float> all_losses_;
  reduction how_;
};

}  // namespace mlp
