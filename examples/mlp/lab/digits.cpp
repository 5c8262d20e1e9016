// SPDX-License-Identifier: BSL-1.0
#include "digits.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace mlp {

namespace {

struct point {
  float x, y;
};

/// A cubic Bezier curve.
struct curve {
  point p[4];
};

constexpr curve line(point a, point b) {
  return {{a,
           {a.x + (b.x - a.x) / 3.0F, a.y + (b.y - a.y) / 3.0F},
           {b.x - (b.x - a.x) / 3.0F, b.y - (b.y - a.y) / 3.0F},
           b}};
}

/// The strokes in a box of 1 x 1, x to the right, y downwards.
std::span<const curve> strokes_of(unsigned digit) {
  static constexpr curve zero[] = {{{{.50F, .05F}, {.07F, .05F}, {.07F, .95F}, {.50F, .95F}}},
                                   {{{.50F, .95F}, {.93F, .95F}, {.93F, .05F}, {.50F, .05F}}}};
  static constexpr curve one[] = {line({.30F, .25F}, {.52F, .05F}),
                                  line({.52F, .05F}, {.52F, .95F})};
  static constexpr curve two[] = {{{{.20F, .28F}, {.25F, -.08F}, {.95F, .00F}, {.78F, .42F}}},
                                  {{{.78F, .42F}, {.68F, .65F}, {.35F, .80F}, {.18F, .95F}}},
                                  line({.18F, .95F}, {.85F, .95F})};
  static constexpr curve three[] = {{{{.22F, .12F}, {.60F, -.10F}, {1.0F, .40F}, {.45F, .47F}}},
                                    {{{.45F, .47F}, {1.05F, .50F}, {.85F, 1.1F}, {.20F, .88F}}}};
  static constexpr curve four[] = {line({.62F, .05F}, {.15F, .62F}),
                                   line({.15F, .62F}, {.88F, .62F}),
                                   line({.66F, .35F}, {.62F, .95F})};
  static constexpr curve five[] = {line({.80F, .06F}, {.30F, .06F}),
                                   line({.30F, .06F}, {.25F, .45F}),
                                   {{{.25F, .45F}, {.90F, .30F}, {1.05F, .95F}, {.20F, .93F}}}};
  static constexpr curve six[] = {{{{.70F, .05F}, {.40F, .15F}, {.20F, .40F}, {.20F, .65F}}},
                                  {{{.20F, .65F}, {.30F, .35F}, {.85F, .40F}, {.80F, .70F}}},
                                  {{{.80F, .70F}, {.75F, 1.05F}, {.15F, 1.05F}, {.20F, .65F}}}};
  static constexpr curve seven[] = {line({.18F, .08F}, {.85F, .08F}),
                                    {{{.85F, .08F}, {.60F, .40F}, {.45F, .65F}, {.42F, .95F}}}};
  static constexpr curve eight[] = {{{{.50F, .48F}, {.10F, .40F}, {.15F, .04F}, {.50F, .05F}}},
                                    {{{.50F, .05F}, {.85F, .04F}, {.90F, .40F}, {.50F, .48F}}},
                                    {{{.50F, .48F}, {.02F, .55F}, {.10F, .95F}, {.50F, .95F}}},
                                    {{{.50F, .95F}, {.90F, .95F}, {.98F, .55F}, {.50F, .48F}}}};
  static constexpr curve nine[] = {{{{.78F, .35F}, {.70F, .65F}, {.20F, .60F}, {.22F, .32F}}},
                                   {{{.22F, .32F}, {.25F, -.03F}, {.85F, -.03F}, {.78F, .35F}}},
                                   {{{.78F, .35F}, {.80F, .60F}, {.70F, .85F}, {.50F, .95F}}}};
  static constexpr std::span<const curve> all[] = {zero, one, two,   three, four,
                                                   five, six, seven, eight, nine};
  if (digit > 9) throw std::invalid_argument("draw_digit: " + std::to_string(digit) + " > 9");
  return all[digit];
}

/// splitmix64 (Steele, Lea, Flood 2014). Not the library's generator: its bits make up this set,
/// and the set's checksums must not change with the library.
class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// Uniform in [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * (static_cast<float>(bits() >> 40U) * 0x1p-24F);
  }

 private:
  std::uint64_t state_;
};

/// From the box of the strokes to pixels.
struct affine {
  float xx, xy, yx, yy, x0, y0;
  point operator()(point p) const { return {xx * p.x + xy * p.y + x0, yx * p.x + yy * p.y + y0}; }
};

affine random_affine(generator& random) {
  const float angle = random.uniform(-.22F, .22F);
  const float slant = random.uniform(-.25F, .25F);
  const float width = random.uniform(13.0F, 19.0F);
  const float height = random.uniform(17.0F, 22.0F);
  const float square = angle * angle;  // Taylor: at .22 rad good to 1e-6
  const float sine = angle * (1.0F - square / 6.0F * (1.0F - square / 20.0F));
  const float cosine = 1.0F - square / 2.0F * (1.0F - square / 12.0F);
  affine map{cosine * width, (cosine * slant - sine) * height,
             sine * width,   (sine * slant + cosine) * height,
             0.0F,           0.0F};
  const point centre = map({.5F, .5F});
  map.x0 = 13.5F + random.uniform(-2.0F, 2.0F) - centre.x;
  map.y0 = 13.5F + random.uniform(-2.0F, 2.0F) - centre.y;
  return map;
}

point on_curve(const point (&p)[4], float t) {
  const float s = 1.0F - t;
  const float w[4] = {s * s * s, 3.0F * s * s * t, 3.0F * s * t * t, t * t * t};
  return {w[0] * p[0].x + w[1] * p[1].x + w[2] * p[2].x + w[3] * p[3].x,
          w[0] * p[0].y + w[1] * p[1].y + w[2] * p[2].y + w[3] * p[3].y};
}

constexpr int side = static_cast<int>(digit_side);

/// Lays the line from a to b, drawn by a round pen, over the picture.
void draw_line(point a, point b, float radius, std::span<float, side * side> ink) {
  const float reach = radius + 1.0F;
  const auto bounded = [](float v) { return std::clamp(static_cast<int>(v), 0, side - 1); };
  const int left = bounded(std::min(a.x, b.x) - reach);
  const int right = bounded(std::max(a.x, b.x) + reach);
  const int top = bounded(std::min(a.y, b.y) - reach);
  const int bottom = bounded(std::max(a.y, b.y) + reach);
  const point along{b.x - a.x, b.y - a.y};
  const float length2 = std::max(along.x * along.x + along.y * along.y, 1e-6F);
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      const point from{static_cast<float>(x) - a.x, static_cast<float>(y) - a.y};
      const float t = std::clamp((from.x * along.x + from.y * along.y) / length2, 0.0F, 1.0F);
      const point off{from.x - t * along.x, from.y - t * along.y};
      const float distance = std::sqrt(off.x * off.x + off.y * off.y);
      float& pixel = ink[static_cast<std::size_t>(y * side + x)];
      pixel = std::max(pixel, std::clamp(radius + .5F - distance, 0.0F, 1.0F));
    }
  }
}

/// An IDX file of unsigned bytes that appears under its name when `finish` is called.
class idx_writer {
 public:
  idx_writer(const std::filesystem::path& path, std::span<const std::uint32_t> extents)
      : path_(path), partial_(path) {
    partial_ += '.';
    partial_ += std::to_string(::getpid());
    partial_ += ".partial";
    file_.open(partial_, std::ios::binary);
    const auto rank = static_cast<char>(extents.size());
    const char magic[4] = {0, 0, 8, rank};
    file_.write(magic, 4);
    for (const std::uint32_t extent : extents) {
      const char bytes[4] = {static_cast<char>(extent >> 24U), static_cast<char>(extent >> 16U),
                             static_cast<char>(extent >> 8U), static_cast<char>(extent)};
      file_.write(bytes, 4);
    }
  }
  idx_writer(idx_writer&&) = delete;
  ~idx_writer() {
    std::error_code ignored;
    std::filesystem::remove(partial_, ignored);  // not there any more after finish()
  }

  void write(std::span<const std::uint8_t> bytes) {
    file_.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
  }

  void finish() {
    file_.close();
    if (!file_) throw std::runtime_error(partial_.string() + ": can't be written (disk full?)");
    std::filesystem::rename(partial_, path_);
  }

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::ofstream file_;
};

void write_part(const std::filesystem::path& directory, const std::string& part,
                std::uint64_t first_key, std::uint32_t count) {
  const std::uint32_t image_extents[] = {count, digit_side, digit_side};
  const std::uint32_t label_extents[] = {count};
  idx_writer images{directory / (part + "-images-idx3-ubyte"), image_extents};
  idx_writer labels{directory / (part + "-labels-idx1-ubyte"), label_extents};
  std::uint8_t picture[digit_side * digit_side];
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t key = first_key + i;
    const auto digit = static_cast<std::uint8_t>(generator{~key}.bits() % 10);
    draw_digit(digit, key, picture);
    images.write(picture);
    labels.write({&digit, 1});
  }
  images.finish();
  labels.finish();
}

}  // namespace

void draw_digit(unsigned digit, std::uint64_t key,
                std::span<std::uint8_t, digit_side * digit_side> out) {
  generator random{key};
  const affine map = random_affine(random);
  const float radius = random.uniform(.7F, 1.6F);
  const float strength = random.uniform(190.0F, 255.0F);
  float ink[digit_side * digit_side] = {};
  for (curve stroke : strokes_of(digit)) {
    for (point& p : stroke.p) {
      p.x += random.uniform(-.05F, .05F);
      p.y += random.uniform(-.05F, .05F);
      p = map(p);
    }
    constexpr int pieces = 8;
    point last = stroke.p[0];
    for (int i = 1; i <= pieces; ++i) {
      const point next = on_curve(stroke.p, static_cast<float>(i) / pieces);
      draw_line(last, next, radius, ink);
      last = next;
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float value = ink[i] * strength + random.uniform(-24.0F, 24.0F);
    out[i] = static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
  }
}

void write_digits(const std::filesystem::path& directory, std::uint32_t train, std::uint32_t test) {
  std::filesystem::create_directories(directory);
  write_part(directory, "train", 0, train);
  write_part(directory, "t10k", std::uint64_t{1} << 32U, test);
}

}  // namespace mlp
