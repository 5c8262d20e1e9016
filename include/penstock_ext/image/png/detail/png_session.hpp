// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <png.h>

#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What went wrong inside libpng.
enum class png_failure : std::uint8_t { none, truncated, corrupt, no_memory };

/// A part of one picture at libpng: its objects, the callbacks that it is given, where they jump
/// to, and what is to be decoded.
///
/// Everything here is trivial and no function that is jumped out of has an object with a
/// destructor, so that a longjmp skips none; nothing here throws. Refers to itself while it is
/// open.
struct png_session {
  ::png_structp png;
  ::png_infop info;
  const std::byte* input;
  std::size_t size;      // of the input
  std::size_t position;  // in it
  std::jmp_buf escape;
  png_failure failure;  // why the last step failed
  char message[128];
  bool clip_grey;      // 16-bit grey is left as it is by `start`
  image_box box;       // what to decode
  pixels out;          // where to
  std::uint8_t* line;  // memory for `line_bytes`
  std::size_t line_bytes;
  int passes;           // 1 unless the picture is interlaced
  std::uint8_t* lines;  // of an interlaced picture: all rows of the box, each of `line_bytes`

  /// Runs `Step` on the session; false if libpng has failed in it, `failure` and `message` say how.
  template <void (*Step)(png_session&)>
  [[nodiscard]] [[gnu::noinline]] bool run() noexcept {
    if (setjmp(escape) != 0) return false;
    Step(*this);
    return true;
  }

  /// Makes the objects for a picture out of `bytes`, which must stay. To be followed by `close`,
  /// whatever it returns.
  [[nodiscard]] bool open(std::span<const std::byte> bytes) noexcept {
    png = nullptr;
    info = nullptr;
    input = bytes.data();
    size = bytes.size();
    position = 0;
    failure = png_failure::none;
    message[0] = '\0';
    return run<create>();
  }

  /// Gives back what libpng holds.
  void close() noexcept { ::png_destroy_read_struct(&png, &info, nullptr); }

  /// Reads up to the pixels, and sets up what libpng turns them into: RGB of 8 bits; 16-bit grey as
  /// it is where `clip_grey` says so.
  static void start(png_session& session) {
    ::png_structp png = session.png;
    ::png_read_info(png, session.info);
    const auto depth = ::png_get_bit_depth(png, session.info);
    const bool is_grey = ::png_get_color_type(png, session.info) == PNG_COLOR_TYPE_GRAY;
    session.clip_grey = session.clip_grey && is_grey && depth == 16;
    if (!session.clip_grey) {
      ::png_set_strip_16(png);
      ::png_set_strip_alpha(png);
      ::png_set_expand(png);
      ::png_set_gray_to_rgb(png);
    }
    session.passes = ::png_set_interlace_handling(png);
    ::png_read_update_info(png, session.info);
    session.line_bytes = ::png_get_rowbytes(png, session.info);
  }

  /// Decodes the rows up to the box's last one.
  static void read_rows(png_session& session) {
    const std::size_t end = session.box.top + session.box.size.height;
    for (std::size_t y = 0; y < end; ++y) {
      ::png_read_row(session.png, session.line, nullptr);
      if (y >= session.box.top) session.take(session.line, y - session.box.top);
    }
  }

  /// Decodes an interlaced picture: every row in every pass.
  static void read_passes(png_session& session) {
    const std::size_t height = ::png_get_image_height(session.png, session.info);
    const std::size_t rows = session.box.size.height;
    for (int pass = 0; pass < session.passes; ++pass) {
      for (std::size_t y = 0; y < height; ++y) {
        const bool is_inside = y >= session.box.top && y - session.box.top < rows;
        std::uint8_t* row =
            is_inside ? session.lines + (y - session.box.top) * session.line_bytes : nullptr;
        ::png_read_row(session.png, row, nullptr);
      }
    }
    for (std::size_t y = 0; y < rows; ++y) session.take(session.lines + y * session.line_bytes, y);
  }

 private:
  static void create(png_session& session) {
    session.png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, &session, on_error, on_warning);
    if (session.png == nullptr) session.fail(png_failure::no_memory);
    session.info = ::png_create_info_struct(session.png);
    if (session.info == nullptr) session.fail(png_failure::no_memory);
    ::png_set_read_fn(session.png, &session, on_read);
    // No chunk counts but those that the pixels need: texts and profiles unpack to megabytes.
    ::png_set_keep_unknown_chunks(session.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    ::png_set_chunk_malloc_max(session.png, 1 << 16);
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

  // Row `y` of the box out of a row of the picture.
  void take(const std::uint8_t* row, std::size_t y) const noexcept {
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
};

static_assert(std::is_trivially_destructible_v<png_session>, "a longjmp must skip no destructor");

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
