// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A batch whose source has given each sample a word.
template <class Batch>
concept has_tags = requires(const Batch& batch) {
  { batch.tags() } -> std::convertible_to<std::span<const std::uint64_t>>;
};

/// The words of the samples of the batch in a device slot: copied, since the host's memory is
/// refilled earlier.
class sample_tags {
 public:
  /// Makes room for those of a batch.
  void reserve(std::size_t most) { words_.reserve(most); }
  /// Those of `batch`, for which there is room. Without words it does nothing.
  template <class Batch>
  void keep([[maybe_unused]] const Batch& batch) noexcept {
    if constexpr (has_tags<Batch>) {
      const std::span<const std::uint64_t> words = batch.tags();
      words_.assign(words.begin(), words.end());
    }
  }

  /// One for each sample; none where the source gives none.
  [[nodiscard]] std::span<const std::uint64_t> all() const noexcept { return words_; }

 private:
  std::vector<std::uint64_t> words_;
};

/// Makes room in all device slots for the words of batches of this type, if they have any.
template <class Batch, class Ring>
void reserve_tags([[maybe_unused]] Ring& ring, [[maybe_unused]] std::size_t most) {
  if constexpr (has_tags<Batch>) {
    for (std::size_t slot = 0; slot < ring.most(); ++slot) ring.tags(slot).reserve(most);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
