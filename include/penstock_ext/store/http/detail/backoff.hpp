// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How long to wait before a request is repeated: exponential backoff with full jitter, so that
/// many that failed together do not come back together. Source: Brooker, "Exponential Backoff And
/// Jitter", AWS Architecture Blog, 2015.
class backoff {
 public:
  using milliseconds = std::chrono::milliseconds;

  backoff(milliseconds first, milliseconds longest, std::uint64_t seed) noexcept
      : first_((std::min)(first, longest)), longest_(longest), seed_(seed) {}

  /// The wait after the failure number `failures`, from 1 on, of some request; `asked` is what the
  /// server would have. Each call draws anew.
  [[nodiscard]] milliseconds next(unsigned failures, std::optional<milliseconds> asked) {
    milliseconds most = first_;
    for (unsigned i = 1; i < failures && most < longest_; ++i) most *= 2;
    most = (std::min)(most, longest_);
    sample_generator gen{{.seed = seed_}, draws_++};
    const milliseconds drawn{uniform(gen, std::int64_t{0}, std::int64_t{most.count()})};
    if (!asked) return drawn;
    const milliseconds least = std::clamp(*asked, milliseconds{0}, longest_);
    return (std::min)(least + drawn, longest_);
  }

 private:
  milliseconds first_;
  milliseconds longest_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
