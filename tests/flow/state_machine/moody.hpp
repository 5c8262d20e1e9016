// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include <penstock/penstock.hpp>

namespace stress {

namespace ps = penstock;

/// The exception of a sampler that cannot provide an order.
class no_order : public std::runtime_error {
 public:
  no_order() : std::runtime_error("no order today") {}
};

/// A sampler with a shuffled order. Computing the order of `bad_epoch` throws, and computing any
/// order may be slow. A fingerprint needs only the orders of epochs 0 and 1.
struct moody {
  /// A gate that blocks requests for an order while it is shut.
  struct gate {
    std::atomic<bool> is_shut = false;
    std::atomic<std::uint64_t> waits = 0;
  };

  static constexpr std::uint64_t never = ~std::uint64_t{0};
  ps::shuffled inner;
  std::shared_ptr<std::atomic<std::uint64_t>> bad_epoch =
      std::make_shared<std::atomic<std::uint64_t>>(never);
  std::shared_ptr<gate> before = std::make_shared<gate>();

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const { return inner.size(n); }
  [[nodiscard]] ps::detail::permutation order(std::uint64_t n, std::uint64_t epoch) const {
    if (before->is_shut) ++before->waits;
    before->is_shut.wait(true);
    if (epoch == *bad_epoch) throw no_order{};
    return inner.order(n, epoch);
  }
};

}  // namespace stress
