// SPDX-License-Identifier: BSL-1.0
// Loads arbitrary bytes as the weights of `prioritized`, both unchanged and with a valid checksum.
// The weights must be loaded, saved again and sampled, or be rejected with an error that points
// into the bytes.
#include <penstock_ext/samplers/prioritized.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/support/word_hash.hpp>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

void load(std::span<const std::byte> state) {
  constexpr std::array weights{1.0F, 0.0F, 2.5F, 0.25F, 3.0F};
  const ps::prioritized order{weights, {.seed = 7, .batch_size = 4, .lag = 3}};
  try {
    const ps::training_position at = order.load(state);
    const auto again = order.save(at);
    fuzz::require(order.load(again) == at, "what is saved can be loaded");
    fuzz::require(order.save(at) == again, "and is saved as the same");
    std::array<std::uint64_t, 16> drawn{};
    order.order(5, at.epoch).fill(4 * at.step, drawn);
    for (const std::uint64_t index : drawn) fuzz::require(index < 5, "only samples that are there");
  } catch (const ps::text_error& error) {
    fuzz::require(error.offset() <= state.size(), "an error points into the bytes");
  } catch (const ps::option_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> state(size);
  if (size != 0) std::memcpy(state.data(), data, size);
  load(state);
  if (size < 16) return 0;
  state.resize(size / 8 * 8);
  ps::detail::word_hash sum;
  for (std::size_t at = 0; at + 8 < state.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, state.data() + at, 8);
    sum.add(word);
  }
  const std::uint64_t value = sum.value();
  std::memcpy(state.data() + state.size() - 8, &value, 8);
  load(state);
  return 0;
}
