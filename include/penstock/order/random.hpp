// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

// Random bits that depend only on seed, epoch, stage and sample index, and distributions of them.
// Results do not depend on the number of workers, the standard library, the compiler or its flags,
// except flags that disable IEEE arithmetic (-ffast-math).

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A generator that returns 32 uniform bits for each call, such as `sample_generator` or
/// `std::mt19937`. The distributions below accept it. `std::uniform_random_bit_generator` is not
/// used, because <random> would add a tenth of a second to the compile time of each program.
template <class Generator>
concept random_bits32 = requires(Generator& gen) {
  { gen() } -> std::unsigned_integral;
  { (Generator::min)() } -> std::same_as<std::invoke_result_t<Generator&>>;
  { (Generator::max)() } -> std::same_as<std::invoke_result_t<Generator&>>;
} && (Generator::min)() == 0 && (Generator::max)() == 0xffffffffu;

template <class T>
concept real = std::same_as<T, float> || std::same_as<T, double>;

template <class T>
concept integer = std::integral<T> && !std::same_as<T, bool>;

template <random_bits32 Generator>
constexpr std::uint32_t draw32(Generator& gen) {
  return static_cast<std::uint32_t>(gen());
}

template <random_bits32 Generator>
constexpr std::uint64_t draw64(Generator& gen) {
  const std::uint64_t high = draw32(gen);
  return high << 32 | draw32(gen);
}

/// Returns the shortest text that parses to `value`.
template <real Real>
std::string to_text(Real value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// Returns a multiple of 2^-53 in [0, 1), computed from two words.
template <random_bits32 Generator>
constexpr double draw_unit(Generator& gen) {
  return static_cast<double>(draw64(gen) >> 11) * 0x1p-53;
}

/// Returns a uniform number in [0, range) without bias and nearly without division. `Word` has as
/// many bits as a draw, and `Product` has twice as many. Source: Lemire, "Fast random integer
/// generation in an interval", 2019.
template <class Word, class Product, class Draw>
constexpr Word draw_below(Word range, Draw draw) {
  Product product = Product{draw()} * range;
  if (static_cast<Word>(product) < range) {
    const Word reject_below = static_cast<Word>(Word{0} - range) % range;
    while (static_cast<Word>(product) < reject_below) product = Product{draw()} * range;
  }
  return static_cast<Word>(product >> std::numeric_limits<Word>::digits);
}

// Stages reserved for the library's own random bits (see `random_key`). Programs number the stages
// of their pipelines from 0.

/// Stage of an epoch's order (`permutation`).
inline constexpr std::uint32_t shuffle_stage = (std::numeric_limits<std::uint32_t>::max)();
/// Stage of the order of `block_shuffled`.
inline constexpr std::uint32_t block_shuffle_stage = shuffle_stage - 1;
/// Stage of the draws of `weighted`.
inline constexpr std::uint32_t weighted_stage = shuffle_stage - 2;
/// Stage of the draws of substitutes for samples that cannot be read.
inline constexpr std::uint32_t substitute_stage = shuffle_stage - 3;
/// Stage of whole batches (`map_batch`). The key contains the batch index instead of the sample
/// index.
inline constexpr std::uint32_t batch_stage = shuffle_stage - 4;
/// Stage of the batch order of `bucketed`.
inline constexpr std::uint32_t bucketed_stage = shuffle_stage - 5;
/// Stage of the parts of `random_split`.
inline constexpr std::uint32_t split_stage = shuffle_stage - 6;
/// Stage of the order within a stratified part of `random_split`.
inline constexpr std::uint32_t part_order_stage = shuffle_stage - 7;
/// Stage of the part orders of a `mixture`.
inline constexpr std::uint32_t mixture_stage = shuffle_stage - 9;
/// Stage of the draws of `prioritized`.
inline constexpr std::uint32_t prioritized_stage = shuffle_stage - 10;
/// Stage of the batches of `by_tokens`.
inline constexpr std::uint32_t by_tokens_stage = shuffle_stage - 12;

/// Maps a 128-bit counter to 128 random bits with the keyed bijection Philox4x32-10. Source:
/// Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Thread-safe.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(odd),
               static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(even)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// The layers of the ziggurat for the normal density, and functions to compute them.
///
/// exp and log are implemented here because the functions of different C libraries differ in their
/// last bits. Every multiply-add is an explicit fma, because a compiler may or may not fuse the two
/// operations. There are 256 layers of equal area. Layer 0 is the base with the tail beyond `tail`.
/// Source: Marsaglia, Tsang, "The ziggurat method for generating random variables", 2000. Layer and
/// position use different bits, as in Doornik, "An improved ziggurat method", 2005.
struct ziggurat {
  static constexpr std::size_t layers = 256;
  static constexpr double tail = 3.654152885361008771645;
  static constexpr double area = 0.004928673233974655347;  // area of a layer, under exp(-x^2 / 2)
  static constexpr double log_2 = 0.693147180559945309417;

  std::array<double, layers + 1> edge{};     // right edge of each layer; the last edge is 0
  std::array<double, layers + 1> density{};  // exp(-edge^2 / 2)

  constexpr ziggurat() {
    edge[0] = area / exp_minus(tail * tail / 2);
    edge[1] = tail;
    for (std::size_t i = 1; i < layers; ++i) {
      density[i] = exp_minus(edge[i] * edge[i] / 2);
      if (i + 1 < layers) edge[i + 1] = root(-2 * log(area / edge[i] + density[i]));
    }
    density[layers] = 1;
  }

  /// Returns a * b + c, rounded once. Uses a compiler builtin, because <cmath> would add 0.06 s to
  /// the compile time of each translation unit.
  static constexpr double multiply_add(double a, double b, double c) {
    if (std::is_constant_evaluated()) return a * b + c;
    return __builtin_fma(a, b, c);
  }

  /// Returns exp(-x) for x in [0, 700].
  static constexpr double exp_minus(double x) {
    const int halvings = static_cast<int>(multiply_add(x, 1 / log_2, 0.5));
    const double rest = multiply_add(halvings, log_2, -x);
    double sum = 1;
    for (int k = 14; k > 0; --k) sum = multiply_add(sum, rest / k, 1);
    return sum * std::bit_cast<double>(static_cast<std::uint64_t>(1023 - halvings) << 52);
  }

  /// Returns log(x) for normal, positive x.
  static constexpr double log(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    int exponent = static_cast<int>(bits >> 52) - 1023;
    double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (mantissa > 1.4142135623730951) {
      mantissa /= 2;
      ++exponent;
    }
    const double s = (mantissa - 1) / (mantissa + 1);
    double sum = 0;
    for (int k = 27; k > 0; k -= 2) sum = multiply_add(sum, s * s, 1.0 / k);
    return multiply_add(exponent, log_2, 2 * s * sum);
  }

  /// Returns sqrt(x), computed by Newton's iteration. Used only for the table, because std::sqrt is
  /// not constexpr in C++20.
  static constexpr double root(double x) {
    double guess = x < 1 ? 1 : x;
    for (int k = 0; k < 40; ++k) guess = (guess + x / guess) / 2;
    return guess;
  }
};

/// The table. A template, so that only programs that draw normal numbers compile the table, which
/// takes a fifth of a second.
template <class = void>
inline constexpr ziggurat normal_layers{};

/// Returns a standard normal number.
template <random_bits32 Generator, class Table = void>
double draw_normal(Generator& gen) {
  const ziggurat& table = normal_layers<Table>;  // computed only if this function is instantiated
  for (;;) {
    const std::uint64_t bits = draw64(gen);
    const std::size_t layer = bits & 0xff;
    const bool negative = (bits & 0x100) != 0;
    double x = static_cast<double>(bits >> 11) * 0x1p-53 * table.edge[layer];
    if (x >= table.edge[layer + 1]) {
      if (layer == 0) {
        double beyond = 0;
        double height = 0;
        do {
          beyond = -ziggurat::log(1 - draw_unit(gen)) / ziggurat::tail;
          height = -ziggurat::log(1 - draw_unit(gen));
        } while (2 * height < beyond * beyond);
        x = ziggurat::tail + beyond;
      } else {
        const double low = table.density[layer];
        const double rise = table.density[layer + 1] - low;
        if (ziggurat::multiply_add(draw_unit(gen), rise, low) >= ziggurat::exp_minus(x * x / 2)) {
          continue;
        }
      }
    }
    return negative ? -x : x;
  }
}

}  // namespace detail

/// The key of an epoch's random bits. `sample_generator` combines it with a sample index. Random
/// stages of a pipeline with different values of `stage` use different streams. The last 16 stages
/// below 2^32 are reserved for samplers, substitutes for failed samples, whole batches and
/// `random_split`.
struct random_key {
  /// Seed of all random bits in a training run.
  std::uint64_t seed = 0;
  /// Epoch of the sample.
  std::uint64_t epoch = 0;
  /// Index of the random stage in the pipeline.
  std::uint32_t stage = 0;

  /// Returns this key with the stage `other`.
  [[nodiscard]] constexpr random_key at_stage(std::uint32_t other) const noexcept {
    return {seed, epoch, other};
  }

  friend constexpr bool operator==(const random_key&, const random_key&) = default;
};

/// The random generator of a sample in an epoch: Philox4x32-10 in counter mode.
///
/// The same (seed, epoch, stage, index) tuple produces the same bits on every machine and thread.
/// Changing any of the four numbers gives an unrelated stream. The period is 2^34 words. Models
/// `std::uniform_random_bit_generator`. Trivially copyable and only 44 bytes in size, so it is
/// cheap to construct a generator for each sample. Not thread-safe.
///
///     penstock::sample_generator gen{{.seed = 1, .epoch = 3}, 41};
///     float angle = penstock::uniform(gen, -15.0f, 15.0f);
class sample_generator {
 public:
  using result_type = std::uint32_t;

  /// Starts the stream of sample `index` for `key`. `index` is the index in the dataset, not in the
  /// batch.
  constexpr sample_generator(const random_key& key, std::uint64_t index) noexcept {
    // A stream is identified by 224 bits, but Philox has 192 bits of input, of which 32 count
    // blocks. Therefore seed, epoch and stage are first hashed. For a fixed seed, the hash is a
    // bijection of which 96 bits are used. The index is used unchanged, so two samples of an epoch
    // never share a stream.
    const auto stream =
        detail::philox4x32({low_half(key.epoch), high_half(key.epoch), key.stage, 0},
                           {low_half(key.seed), high_half(key.seed)});
    key_ = {stream[0], stream[1]};
    counter_ = {0, stream[2], low_half(index), high_half(index)};
  }

  /// Returns the next 32 random bits.
  constexpr result_type operator()() noexcept {
    if (used_ == words_.size()) {
      words_ = detail::philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return words_[used_++];
  }

  [[nodiscard]] static constexpr result_type(min)() noexcept { return 0; }
  [[nodiscard]] static constexpr result_type(max)() noexcept {
    return (std::numeric_limits<result_type>::max)();
  }

 private:
  static constexpr std::uint32_t low_half(std::uint64_t value) noexcept {
    return static_cast<std::uint32_t>(value);
  }
  static constexpr std::uint32_t high_half(std::uint64_t value) noexcept {
    return static_cast<std::uint32_t>(value >> 32);
  }

  std::array<std::uint32_t, 2> key_{};
  std::array<std::uint32_t, 4> counter_{};
  std::array<std::uint32_t, 4> words_{};
  std::uint32_t used_ = 4;
};

// The distributions accept any generator that returns 32 uniform bits for each call, such as
// `sample_generator` or `std::mt19937`.

/// Returns a uniform number in the half-open interval [low, high). Never returns `high`, not even
/// by rounding, unless low == high. A float consumes one word and has 2^24 steps. A double consumes
/// two words and has 2^53 steps. PyTorch: `Tensor.uniform_`. Throws std::invalid_argument unless
/// low <= high and high - low is finite. Note: `uniform(gen, 0, 1)` calls the overload for integers
/// and returns 0 or 1.
template <detail::random_bits32 Generator, detail::real Real>
[[nodiscard]] Real uniform(Generator& gen, Real low, Real high) {
  const double from = low;
  const double to = high;
  if (!(to - from >= 0 && to - from <= (std::numeric_limits<double>::max)())) {
    throw std::invalid_argument(
        detail::str_cat({"uniform: expected finite low <= high, found low = ", detail::to_text(low),
                         ", high = ", detail::to_text(high)}));
  }
  if constexpr (std::same_as<Real, float>) {
    // Both products are exact in double, so fusing them with additions makes no difference.
    const double unit = static_cast<double>(detail::draw32(gen) >> 8) * 0x1p-24;
    const auto value = static_cast<float>(from * (1 - unit) + to * unit);
    return value < high ? value : __builtin_nextafterf(high, low);
  } else {
    const double value = __builtin_fma(detail::draw_unit(gen), to - from, from);
    return value < high ? value : __builtin_nextafter(high, low);
  }
}

/// Returns a uniform number in the closed interval [low, high], without bias, for any integer type
/// except bool. The result does not depend on the type. Consumes one word if high - low < 2^32,
/// otherwise two, and more only if a draw would be biased. PyTorch: `torch.randint`, which excludes
/// the upper bound. Throws std::invalid_argument if low > high. Source: Lemire, "Fast random
/// integer generation in an interval", 2019.
template <detail::random_bits32 Generator, detail::integer Integer>
[[nodiscard]] constexpr Integer uniform(Generator& gen, Integer low, Integer high) {
  if (low > high) {
    throw std::invalid_argument(
        detail::str_cat({"uniform: expected low <= high, found low = ", low, ", high = ", high}));
  }
  __extension__ using wide = unsigned __int128;
  const auto word32 = [&gen] { return detail::draw32(gen); };
  const auto word64 = [&gen] { return detail::draw64(gen); };
  const std::uint64_t base = static_cast<std::uint64_t>(low);
  const std::uint64_t last = static_cast<std::uint64_t>(high) - base;
  std::uint64_t step = 0;
  if (last < 0xffffffffu) {
    const auto range = static_cast<std::uint32_t>(last + 1);
    step = detail::draw_below<std::uint32_t, std::uint64_t>(range, word32);
  } else if (last == 0xffffffffu) {
    step = word32();
  } else if (last < (std::numeric_limits<std::uint64_t>::max)()) {
    step = detail::draw_below<std::uint64_t, wide>(last + 1, word64);
  } else {
    step = word64();
  }
  return static_cast<Integer>(base + step);
}

/// Returns a normally distributed number with the given mean and standard deviation, accurate to
/// the last bits of a double. A float result is the double result, rounded. Consumes two words in
/// 98.8 % of the calls, and more words in the other calls. PyTorch: `torch.normal`. Throws
/// std::invalid_argument unless stddev is finite and not negative. Source: Marsaglia, Tsang, "The
/// ziggurat method for generating random variables", 2000.
template <detail::random_bits32 Generator, detail::real Real = double>
[[nodiscard]] Real normal(Generator& gen, Real mean = 0, Real stddev = 1) {
  if (!(stddev >= 0 && stddev <= (std::numeric_limits<Real>::max)())) {
    throw std::invalid_argument("normal: expected a finite stddev >= 0, found " +
                                detail::to_text(stddev));
  }
  return static_cast<Real>(__builtin_fma(detail::draw_normal(gen), double{stddev}, double{mean}));
}

/// Returns true with probability `p`, in steps of 2^-53: never for 0, always for 1. Consumes two
/// words. PyTorch: `torch.bernoulli`. Throws std::invalid_argument unless 0 <= p <= 1.
template <detail::random_bits32 Generator>
[[nodiscard]] bool bernoulli(Generator& gen, double p) {
  if (!(p >= 0 && p <= 1)) {
    throw std::invalid_argument("bernoulli: expected 0 <= p <= 1, found p = " + detail::to_text(p));
  }
  return detail::draw_unit(gen) < p;
}

static_assert(detail::random_bits32<sample_generator>);
static_assert(std::is_trivially_copyable_v<sample_generator>);

#if PENSTOCK_COMPILED
extern template std::uint64_t uniform(sample_generator&, std::uint64_t, std::uint64_t);
#endif

}  // namespace PENSTOCK_ABI
}  // namespace penstock
