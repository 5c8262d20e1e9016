// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Failure reasons in libpng.
enum class png_failure : std::uint8_t { none, truncated, corrupt, no_memory };

/// The libpng objects for decoding a part of an image, with callbacks and their longjmp target.
///
/// All members are trivial, and functions that a longjmp may leave have no local objects with
/// destructors. Therefore a longjmp never skips a destructor. No function here throws. While the
/// session is open, it contains pointers to itself and must not move.
struct png_session {
  ::png_structp png;
  ::png_infop info;
  const std::byte* input;
  std::size_t size;      // size of the input
  std::size_t position;  // position in the input
  std::jmp_buf escape;
  png_failure failure;  // reason for the last failure
  char message[128];
  // The members below are set after `open`.
  bool clip_grey;                     // true if `start` must keep 16-bit gray
  image_box box;                      // the part to decode
  pixels out;                         // the destination
  basic_pixels<std::uint16_t> out16;  // the destination instead of `out`, if it has data
  std::size_t line_bytes;
  int passes;           // 1, or more if the image is interlaced
  std::uint8_t* lines;  // a row of `line_bytes` bytes, or all rows of the box if interlaced

  /// Returns true if a row is complete only after the last pass.
  [[nodiscard]] bool is_interlaced() const noexcept { return passes != 1; }

  /// Runs `Step` on the session. If libpng fails, returns false and stores the reason in `failure`
  /// and `message`.
  template <void (*Step)(png_session&)>
  [[nodiscard]] [[gnu::noinline]] bool run() noexcept {
    if (setjmp(escape) != 0) return false;
    Step(*this);
    return true;
  }

  /// Creates the objects for the image in `bytes`, which must stay valid. Call `close` after use,
  /// even if `open` returns false.
  [[nodiscard]] bool open(std::span<const std::byte> bytes) noexcept {
    *this = {};
    input = bytes.data();
    size = bytes.size();
    return run<create>();
  }

  /// Releases libpng's memory.
  void close() noexcept { ::png_destroy_read_struct(&png, &info, nullptr); }

  /// Reads everything before the pixels, and configures libpng's conversions to 8-bit RGB. Keeps
  /// 16-bit gray if `clip_grey` is true. For `out16`, keeps all bits and channels, and converts
  /// gray to RGB if `out16` has three or four channels.
  static void start(png_session& session) {
    ::png_structp png = session.png;
    ::png_read_info(png, session.info);
    const auto depth = ::png_get_bit_depth(png, session.info);
    const bool is_grey = ::png_get_color_type(png, session.info) == PNG_COLOR_TYPE_GRAY;
    session.clip_grey = session.clip_grey && is_grey && depth == 16;
    if (session.out16.data != nullptr) {
      if (depth < 8) ::png_set_expand_gray_1_2_4_to_8(png);
      if (session.out16.channels > 2) ::png_set_gray_to_rgb(png);
    } else if (!session.clip_grey) {
      ::png_set_strip_16(png);
      ::png_set_strip_alpha(png);
      ::png_set_expand(png);
      ::png_set_gray_to_rgb(png);
    }
    session.passes = ::png_set_interlace_handling(png);
    ::png_read_update_info(png, session.info);
    session.line_bytes = ::png_get_rowbytes(png, session.info);
  }

  /// Decodes the rows up to the last row of the box, or every row in every pass if the image is
  /// interlaced.
  static void read_rows(png_session& session) {
    const std::size_t top = session.box.top;
    const std::size_t rows = session.box.size.height;
    const std::size_t end =
        session.is_interlaced() ? ::png_get_image_height(session.png, session.info) : top + rows;
    const std::size_t pitch = session.is_interlaced() ? session.line_bytes : 0;
    for (int pass = 1; pass <= session.passes; ++pass) {
      for (std::size_t y = 0; y < end; ++y) {
        const bool is_inside = y >= top && y - top < rows;
        std::uint8_t* const row = is_inside ? session.lines + (y - top) * pitch : nullptr;
        ::png_read_row(session.png, row, nullptr);
        if (is_inside && pass == session.passes) session.take(row, y - top);
      }
    }
  }

 private:
  static void create(png_session& session) {
    session.png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, &session, on_error, on_warning);
    if (session.png == nullptr) session.fail(png_failure::no_memory);
    session.info = ::png_create_info_struct(session.png);
    if (session.info == nullptr) session.fail(png_failure::no_memory);
    ::png_set_read_fn(session.png, &session, on_read);
    // Ignores chunks that are not needed for pixels, because texts and profiles can expand to
    // megabytes.
    ::png_set_keep_unknown_chunks(session.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    // Sets no limit, because libpng up to 1.6.38 also applies it to skipped chunks.
    ::png_set_chunk_malloc_max(session.png, 0);
    ::png_set_chunk_cache_max(session.png, 16);
  }

  [[noreturn]] void fail(png_failure why) noexcept {
    failure = why;
    std::longjmp(escape, 1);
  }

  [[noreturn]] static void on_error(::png_structp png, ::png_const_charp text) {
    auto& session = *static_cast<png_session*>(::png_get_error_ptr(png));
    std::strncpy(session.message, text, sizeof session.message - 1);
    session.message[sizeof session.message - 1] = '\0';
    session.fail(std::strstr(text, "memory") != nullptr ? png_failure::no_memory
                                                        : png_failure::corrupt);
  }

  static void on_warning(::png_structp, ::png_const_charp) {}

  static void on_read(::png_structp png, ::png_bytep to, std::size_t count) {
    auto& session = *static_cast<png_session*>(::png_get_io_ptr(png));
    if (count > session.size - session.position) {
      session.position = session.size;
      session.fail(png_failure::truncated);
    }
    std::memcpy(to, session.input + session.position, count);
    session.position += count;
  }

  // Writes row `y` of the box from an image row.
  void take(const std::uint8_t* row, std::size_t y) const noexcept {
    if (out16.data != nullptr) {
      take16(row, out16.row(y));
      return;
    }
    std::uint8_t* to = out.row(y);
    if (!clip_grey) {
      std::memcpy(to, row + 3 * box.left, 3 * box.size.width);
      return;
    }
    row += 2 * box.left;
    for (std::size_t x = 0; x < box.size.width; ++x, row += 2, to += 3) {
      to[0] = to[1] = to[2] = row[0] != 0 ? std::uint8_t{255} : row[1];
    }
  }

  // Converts a part of an image row from big-endian, or scales 8 bits so that 255 becomes 65535.
  void take16(const std::uint8_t* row, std::uint16_t* to) const noexcept {
    const std::size_t first = box.left * out16.channels;
    const std::size_t count = box.size.width * out16.channels;
    if (::png_get_bit_depth(png, info) == 16) {
      row += 2 * first;
      for (std::size_t i = 0; i < count; ++i) {
        to[i] = static_cast<std::uint16_t>(row[2 * i] << 8 | row[2 * i + 1]);
      }
    } else {
      row += first;
      for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<std::uint16_t>(row[i] * 257);
    }
  }
};

static_assert(std::is_trivially_destructible_v<png_session>, "a longjmp must skip no destructor");

}  // namespace detail

/// Options and limits of a `png_decoder`.
struct png_options {
  /// Conversion of 16-bit gray. If true, all values above 255 become 255, as in Pillow's
  /// `convert("RGB")`. If false, the upper byte is used, as for all other 16-bit images.
  bool clip_grey = false;
  /// Conversion of 1 to 8 bits by `decode16`. If true, scales all values to the range of 16 bits,
  /// exactly: 8-bit values are multiplied by 257. If false, throws `image_unsupported`, because
  /// the values may also be depths or labels that must not be scaled.
  bool widen = false;
  /// Maximum number of pixels, checked before memory is allocated. A pixel decoded to 8 bits
  /// occupies three bytes, or six if the image is interlaced.
  std::uint64_t max_pixels = std::uint64_t{1} << 27;
};

/// An `image_decoder` for PNG. Decodes images or regions to 8-bit RGB with libpng (1.6; CMake
/// target `penstock::png`). `decode16` keeps 16 bits and all channels instead.
///
/// Supports gray, palette and color images of 1 to 16 bits, interlaced or not, with sides of up to
/// a million pixels. Keeps the upper 8 of 16 bits, drops alpha and transparent colors, and ignores
/// gamma and profiles. The result equals Pillow's `convert("RGB")`, except for 16-bit gray
/// (`png_options::clip_grey`). Rows below a box are not decoded, unless the image is interlaced.
///
/// Throws `image_truncated`, `image_corrupt`, `image_unsupported` or `image_too_large`;
/// std::invalid_argument for a box outside the image; and std::bad_alloc. Checks the header before
/// memory is allocated, and rejects an image with more pixels than its bytes can hold. Does not
/// detect damage in a chunk after the last row of a box, or a wrong checksum of a chunk that is not
/// needed for pixels.
///
/// Not thread-safe. Each image is decoded with new libpng objects.
class png_decoder {
 public:
  /// Creates a decoder with these options.
  explicit png_decoder(const png_options& options = {}) : options_(options) {}
  /// Copies only the options.
  png_decoder(const png_decoder& other) : options_(other.options_) {}
  /// Copies only the options.
  png_decoder& operator=(const png_decoder& other) {
    options_ = other.options_;
    return *this;
  }
  ~png_decoder() = default;

  /// Returns true if `bytes` start with the PNG signature.
  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return detail::image_format_of(bytes) == "PNG";
  }

  /// Parses the header. `channels` counts the alpha channel, and is 3 for palette images.
  [[nodiscard]] image_info info(std::span<const std::byte> bytes, std::string_view key) const {
    const std::string path{key};
    if (!matches(bytes)) {
      const std::string found = detail::found_image(bytes);
      if (bytes.size() < 8) throw image_truncated(path, 0, "a PNG image", found);
      throw image_unsupported(path, 0, "a PNG image", found);
    }
    // The signature, followed by the length, name, content and checksum of the first chunk.
    if (bytes.size() < 8 + 8 + 13 + 4) {
      throw image_truncated(path, bytes.size(), "a PNG header of 33 bytes", "the end of its bytes");
    }
    if (!detail::has_text(bytes, 8, {"\0\0\0\x0dIHDR", 8})) {
      throw image_corrupt(path, 8, "a PNG header: a chunk IHDR of 13 bytes", "something else");
    }
    const image_size size{detail::number_at(bytes, 16, 4, true),
                          detail::number_at(bytes, 20, 4, true)};
    const std::string text = detail::to_text(size);
    if (size.width == 0 || size.height == 0) {
      throw image_corrupt(path, 16, "a width and a height", text);
    }
    constexpr std::size_t longest = 1'000'000;
    if (size.width > longest || size.height > longest ||
        std::uint64_t{size.width} * size.height > options_.max_pixels) {
      throw image_too_large(path, 16,
                            "at most " + std::to_string(options_.max_pixels) +
                                " pixels (png_options::max_pixels) and sides of 1000000",
                            text);
    }
    const std::size_t channels = channels_of(std::to_integer<unsigned>(bytes[25]));
    // A palette pixel is stored as a single value.
    const bool has_palette = (std::to_integer<unsigned>(bytes[25]) & PNG_COLOR_MASK_PALETTE) != 0;
    const std::uint64_t bits = std::uint64_t{size.width} * size.height *
                               (has_palette ? 1 : channels) * std::to_integer<unsigned>(bytes[24]);
    // Two bits encode at most 258 bytes (RFC 1951), which limits the number of pixels in `bytes`.
    constexpr std::uint64_t max_growth = 1032;
    if (bits / 8 / max_growth > bytes.size()) {
      throw image_truncated(path, bytes.size(),
                            "at least " + std::to_string(bits / 8 / max_growth) +
                                " bytes for a PNG image of " + text + " pixels",
                            "the end of its bytes");
    }
    return {size, channels, 1};
  }

  /// Decodes the part `box` of the image into `out`, which must have the box size and three
  /// channels.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out) {
    const image_info header = info(bytes, key);
    detail::require_box("png_decoder", box, header.size, out);
    read(bytes, key, header, box, out, {});
  }

  /// Decodes the part `box` of the image into `out`, which must have the box size and 1 (gray), 2
  /// (gray and alpha), 3 (RGB) or 4 (RGBA) channels. Writes the values that the image stores, in
  /// native byte order. Repeats the gray values of an image if `out` has two channels more.
  ///
  /// Throws `image_unsupported` if the image has other channels, a palette, or fewer than 16 bits
  /// and `png_options::widen` is false. Ignores a transparent color. Throws std::invalid_argument
  /// if `out` has another size or number of channels, and otherwise the exceptions of `decode`.
  void decode16(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
                const basic_pixels<std::uint16_t>& out) {
    const image_info header = info(bytes, key);
    detail::require_box("png_decoder", box, header.size, {nullptr, out.size, 3, 0});
    if (out.channels < 1 || out.channels > 4) {
      throw std::invalid_argument("png_decoder: expected room for 1 to 4 channels, found " +
                                  std::to_string(out.channels));
    }
    read(bytes, key, header, box, {}, out);
  }

  /// Returns the options passed to the constructor.
  [[nodiscard]] const png_options& options() const noexcept { return options_; }

 private:
  struct close_session {
    void operator()(detail::png_session* session) const noexcept { session->close(); }
  };

  static std::size_t channels_of(unsigned color_type) noexcept {
    const std::size_t colors = (color_type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    return colors + ((color_type & PNG_COLOR_MASK_ALPHA) != 0 ? 1 : 0);
  }

  // Decodes into `out16` if it has data, and into `out` otherwise.
  void read(std::span<const std::byte> bytes, std::string_view key, const image_info& header,
            const image_box& box, const pixels& out, const basic_pixels<std::uint16_t>& out16) {
    const bool is_open = session_.open(bytes);
    const std::unique_ptr<detail::png_session, close_session> closed_at_end{&session_};
    session_.clip_grey = options_.clip_grey;
    session_.box = box;
    session_.out = out;
    session_.out16 = out16;
    check(is_open && session_.run<detail::png_session::start>(), key);
    // Needs the header, whose checksum libpng has verified.
    if (out16.data != nullptr) require_lossless(bytes, key, header.channels, out16.channels);
    const std::size_t room = session_.line_bytes * (session_.is_interlaced() ? box.size.height : 1);
    if (lines_.size() < room) lines_.resize(room);
    session_.lines = lines_.data();
    check(session_.run<detail::png_session::read_rows>(), key);
    if (box.top + box.size.height < header.size.height) check_last_chunk(bytes, key);
  }

  // Throws `image_unsupported` if the image cannot be converted to `wanted` channels of 16 bits.
  void require_lossless(std::span<const std::byte> bytes, std::string_view key,
                        std::size_t channels, std::size_t wanted) const {
    if ((std::to_integer<unsigned>(bytes[25]) & PNG_COLOR_MASK_PALETTE) != 0) {
      throw image_unsupported(std::string{key}, 25, "a PNG image without a palette for 16 bits",
                              "a palette");
    }
    const auto depth = std::to_integer<unsigned>(bytes[24]);
    if (depth != 16 && !options_.widen) {
      throw image_unsupported(std::string{key}, 24,
                              "16 bits per channel, or png_options::widen to scale fewer bits",
                              std::to_string(depth));
    }
    if (channels != wanted && (channels > 2 || channels + 2 != wanted)) {
      throw image_unsupported(std::string{key}, 25,
                              "a PNG image that has " + std::to_string(wanted) +
                                  " channels of 16 bits without loss (1 gray, 2 gray and alpha, "
                                  "3 RGB, 4 RGBA)",
                              std::to_string(channels));
    }
  }

  // Throws the error of the step that failed. Does nothing if `fine` is true.
  void check(bool fine, std::string_view key) const {
    if (fine) return;
    const std::uint64_t at = session_.position;
    switch (session_.failure) {
      case detail::png_failure::no_memory:
        throw std::bad_alloc();
      case detail::png_failure::truncated:
        throw image_truncated(std::string{key}, at, "the rest of the PNG image",
                              "the end of its bytes");
      default:
        throw image_corrupt(std::string{key}, at, "a valid PNG image", session_.message);
    }
  }

  // Verifies the checksum of the chunk that contains the last row. libpng has read only a part of
  // that chunk, and would verify the checksum only at its end.
  void check_last_chunk(std::span<const std::byte> bytes, std::string_view key) const {
    for (std::size_t begin = 8; begin < session_.position;) {
      const std::size_t end = begin + 8 + detail::number_at(bytes, begin, 4, true);
      if (session_.position <= end) {
        if (bytes.size() < end + 4) {
          throw image_truncated(std::string{key}, bytes.size(), "the rest of a PNG chunk",
                                "the end of its bytes");
        }
        detail::crc32_checksum checksum;
        checksum.add(bytes.subspan(begin + 4, end - begin - 4));
        if (checksum.value() == detail::number_at(bytes, end, 4, true)) return;
        throw image_corrupt(std::string{key}, begin, "a valid PNG image",
                            "a chunk with another CRC");
      }
      begin = end + 4;
    }
  }

  png_options options_;
  detail::png_session session_{};
  std::vector<std::uint8_t> lines_;
};

static_assert(image16_decoder<png_decoder>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
