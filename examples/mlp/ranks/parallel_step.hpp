// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective.hpp"
#include "device_array.hpp"
#include "network.hpp"
#include "shape.hpp"

namespace mlp {

/// In which order the gradients of a global batch are added up.
enum class reduction {
  fast,     ///< as the collective does it: the last bits depend on how many ranks there are
  ordered,  ///< by eighths of the global batch in their order: the same bits for 1, 2, 4, 8 ranks
};

/// The parts of a global batch whose gradients are added up in order, for any number of ranks.
inline constexpr std::size_t ordered_parts = 8;

namespace kernel {

/// to[i] = the sum over the rows of from[row * length + i], in the order of the rows.
struct sum_rows {
  const float* from;
  std::size_t rows;
  std::size_t length;
  float* to;
  void operator()(std::size_t i) const {
    float sum = from[i];
    for (std::size_t row = 1; row < rows; ++row) sum += from[row * length + i];
    to[i] = sum;
  }
};

}  // namespace kernel

/// Steps of a network on global batches that ranks share: each differentiates its own part, all add
/// up, each makes the same update. On the CPU device; all memory is taken at construction.
template <class Backend, collective Collective>
class parallel_step {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// Throws `std::invalid_argument` for a global batch or a world that `ordered` can't divide.
  parallel_step(const device_type& device, const Backend& backend, stream_ref stream,
                Collective& ranks, std::size_t global_batch, reduction how)
      : backend_(backend),
        stream_(stream),
        ranks_(ranks),
        global_batch_(global_batch),
        share_(global_batch / static_cast<std::size_t>(ranks.size())),
        parts_(parts_of(ranks, global_batch, how)),
        net_(device, backend, share_ / parts_),
        gradients_(device, parts_ * shape::parameters),
        gathered_(device, how == reduction::ordered ? ordered_parts * shape::parameters : 1),
        sum_(device, shape::parameters),
        losses_(share_),
        all_losses_(global_batch),
        how_(how) {}

  [[nodiscard]] network<Backend>& net() { return net_; }

  /// The first half of a step: the gradients of a global batch, of which this rank's part lies in
  /// device memory. Returns the losses of the whole batch in its order; valid until the next one.
  template <class Pixel>
  std::span<const float> differentiate(const Pixel* images, const std::uint8_t* labels,
                                       std::size_t count) {
    if (count != share_) throw std::logic_error("parallel_step: not a rank's share");
    const std::size_t part = share_ / parts_;
    const float scale = 1.0F / static_cast<float>(global_batch_);
    for (std::size_t p = 0; p < parts_; ++p) {
      net_.differentiate(images + p * part * shape::inputs, labels + p * part, part, scale,
                         gradients_.data() + p * shape::parameters, losses_.data() + p * part,
                         stream_);
    }
    add_up();
    ranks_.all_gather(std::as_bytes(std::span{losses_}),
                      std::as_writable_bytes(std::span{all_losses_}));
    return all_losses_;
  }
  /// The second half, in which the network learns.
  void update() {
    net_.update(how_ == reduction::ordered ? sum_.data() : gradients_.data(), stream_);
  }

 private:
  static std::size_t parts_of(const Collective& ranks, std::size_t global_batch, reduction how) {
    if (how == reduction::fast) return 1;
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

  Backend backend_;
  stream_ref stream_;
  Collective& ranks_;
  std::size_t global_batch_;
  std::size_t share_;
  std::size_t parts_;
  network<Backend> net_;
  device_array<float, device_type> gradients_;
  device_array<float, device_type> gathered_;
  device_array<float, device_type> sum_;
  std::vector<float> losses_;
  std::vector<float> all_losses_;
  reduction how_;
};

}  // namespace mlp
