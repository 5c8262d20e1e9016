// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// jpeglib.h needs <cstdio>.
#include <jpeglib.h>

#include <jerror.h>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The transformation that turns a stored image upright, as specified by the EXIF orientation.
/// First swaps rows and columns (5 to 8), then left and right (2, 3, 6, 7), then top and bottom (3,
/// 4, 7, 8).
class decode_orientation {
 public:
  /// `number` is the EXIF orientation, from 1 to 8.
  constexpr explicit decode_orientation(int number) noexcept
      : transposed_(number >= 5),
        left_right_(number == 2 || number == 3 || number == 6 || number == 7),
        top_bottom_(number == 3 || number == 4 || number == 7 || number == 8) {}

  /// Returns true if the stored image is upright.
  [[nodiscard]] constexpr bool is_upright() const noexcept {
    return !transposed_ && !left_right_ && !top_bottom_;
  }

  /// Converts between the stored size and the upright size.
  [[nodiscard]] constexpr image_size turned(image_size size) const noexcept {
    if (transposed_) std::swap(size.width, size.height);
    return size;
  }

  /// Returns the part of the stored image that corresponds to `box` in the upright image of size
  /// `upright`.
  [[nodiscard]] constexpr image_box stored(image_box box,
                                           const image_size& upright) const noexcept {
    if (left_right_) box.left = upright.width - box.left - box.size.width;
    if (top_bottom_) box.top = upright.height - box.top - box.size.height;
    if (transposed_) {
      std::swap(box.left, box.top);
      box.size = turned(box.size);
    }
    return box;
  }

  /// Writes the stored pixels `in` upright to `out`, which must have the size `turned(in.size)`.
  constexpr void turn(const const_pixels& in, const pixels& out) const noexcept {
    for (std::size_t y = 0; y < out.size.height; ++y) {
      std::uint8_t* to = out.row(y);
      const std::size_t v = top_bottom_ ? out.size.height - 1 - y : y;
      for (std::size_t x = 0; x < out.size.width; ++x) {
        const std::size_t u = left_right_ ? out.size.width - 1 - x : x;
        const std::uint8_t* from =
            transposed_ ? in.row(u) + v * in.channels : in.row(v) + u * in.channels;
        for (std::size_t channel = 0; channel < in.channels; ++channel) *to++ = from[channel];
      }
    }
  }

 private:
  bool transposed_;
  bool left_right_;
  bool top_bottom_;
};

/// Returns the orientation in an EXIF block, from 1 to 8, or 1 if the orientation is missing or
/// invalid. `tiff` starts at the block's TIFF header. Never reads outside `tiff`, even if the
/// content is damaged.
[[nodiscard]] inline int tiff_orientation(std::span<const std::byte> tiff) noexcept {
  if (tiff.size() < 8) return 1;
  const bool is_big = has_text(tiff, 0, "MM");
  const auto number = [&](std::size_t at, std::size_t count) {
    return static_cast<std::size_t>(number_at(tiff, at, count, is_big));
  };
  if ((!is_big && !has_text(tiff, 0, "II")) || number(2, 2) != 42) return 1;
  std::size_t at = number(4, 4);
  if (at > tiff.size() - 2) return 1;
  const std::size_t entries = number(at, 2);
  at += 2;
  // An entry consists of a tag, a type, a count, and the value itself if it is short enough.
  for (std::size_t i = 0; i < entries && tiff.size() - at >= 12; ++i, at += 12) {
    if (number(at, 2) != 0x0112) continue;
    const std::size_t type = number(at + 2, 2);
    const std::size_t value = number(at + 8, type == 4 ? 4 : 2);  // LONG or SHORT
    const bool is_one = (type == 3 || type == 4) && number(at + 4, 4) == 1;
    return is_one && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

/// Returns the orientation in the first EXIF block of a JPEG file, from 1 to 8, or 1 if the header
/// has no EXIF block. Examines only the markers before the first scan.
[[nodiscard]] inline int jpeg_orientation(std::span<const std::byte> bytes) noexcept {
  const auto byte = [bytes](std::size_t at) { return std::to_integer<unsigned>(bytes[at]); };
  std::size_t at = 2;
  while (at + 4 <= bytes.size()) {
    if (byte(at) != 0xff) return 1;
    const unsigned marker = byte(at + 1);
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) return 1;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {  // markers without a segment
      at += 2;
      continue;
    }
    const std::size_t length = number_at(bytes, at + 2, 2, true);
    if (length < 2 || length > bytes.size() - at - 2) return 1;
    const std::span<const std::byte> segment = bytes.subspan(at + 4, length - 2);
    if (marker == 0xe1 && has_text(segment, 0, {"Exif\0\0", 6})) {
      return tiff_orientation(segment.subspan(6));
    }
    at += 2 + length;
  }
  return 1;
}

/// Failure reasons in libjpeg.
enum class jpeg_failure : std::uint8_t {
  none,
  truncated,
  corrupt,
  unsupported,
  too_large,
  too_many_scans,
  no_memory
};

/// Returns the failure reason for libjpeg's message code `code`.
[[nodiscard]] constexpr jpeg_failure jpeg_failure_of(int code) noexcept {
  switch (code) {
    case JERR_OUT_OF_MEMORY:
      return jpeg_failure::no_memory;
    case JERR_NO_BACKING_STORE:  // max_memory_to_use is exceeded
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
      return jpeg_failure::too_large;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_J_COLORSPACE:
    case JERR_BAD_LIB_VERSION:  // compiled with the header of a different libjpeg
    case JERR_BAD_PRECISION:
    case JERR_BAD_STRUCT_SIZE:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    // The image has no rows if a marker after the first scan specifies the row count.
    case JERR_EMPTY_IMAGE:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
    case JERR_UNKNOWN_MARKER:
      return jpeg_failure::unsupported;
    default:
      return jpeg_failure::corrupt;
  }
}

/// Returns true if the pixels are correct despite the warning `code`.
[[nodiscard]] constexpr bool is_harmless_jpeg_warning(int code) noexcept {
  return code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR || code == JWRN_EXTRANEOUS_DATA ||
         code == JWRN_NOT_SEQUENTIAL || code == JWRN_TOO_MUCH_DATA || code == JWRN_BOGUS_ICC;
}

/// The libjpeg objects for decoding an image, with callbacks and their longjmp target.
///
/// All members are trivial, and functions that a longjmp may leave have no local objects with
/// destructors. Therefore a longjmp never skips a destructor. No function here throws. While the
/// session is open, it contains pointers to itself and must not move.
struct jpeg_session {
  ::jpeg_decompress_struct info;
  ::jpeg_error_mgr errors;
  ::jpeg_source_mgr source;
  ::jpeg_progress_mgr progress;
  std::jmp_buf escape;
  std::size_t bytes;     // size of the encoded image in bytes
  int max_scans;         // maximum number of scans; set after `open`
  bool strict;           // true if warnings about pixels are failures; set after `open`
  bool one_scan;         // true while the only scan of an image is decoded
  bool ended;            // true if the input was exhausted and the session added an end marker
  jpeg_failure failure;  // reason for the last failure
  char message[JMSG_LENGTH_MAX];

  /// Runs `Step` on the session. If libjpeg fails, returns false and stores the reason in `failure`
  /// and `message`.
  template <void (*Step)(jpeg_session&)>
  [[nodiscard]] [[gnu::noinline]] bool run() noexcept {
    if (setjmp(escape) != 0) return false;
    Step(*this);
    return true;
  }

  /// Creates the objects for the image in `input`, which must stay valid. `max_bytes` limits
  /// libjpeg's memory for coefficients. Call `close` after use, even if `open` returns false.
  [[nodiscard]] bool open(std::span<const std::byte> input, long max_bytes) noexcept {
    *this = {};
    bytes = input.size();
    info.err = ::jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    errors.output_message = on_output;
    info.client_data = this;
    source.next_input_byte = reinterpret_cast<const JOCTET*>(input.data());
    source.bytes_in_buffer = input.size();
    source.init_source = on_source;
    source.fill_input_buffer = on_empty;
    source.skip_input_data = on_skip;
    source.resync_to_restart = ::jpeg_resync_to_restart;
    source.term_source = on_source;
    progress.progress_monitor = on_progress;
    if (!run<create>()) return false;
    info.mem->max_memory_to_use = max_bytes;
    info.src = &source;
    info.progress = &progress;
    return true;
  }

  /// Releases libjpeg's memory.
  void close() noexcept { ::jpeg_destroy_decompress(&info); }

  /// Returns libjpeg's approximate position in the input, in bytes.
  [[nodiscard]] std::uint64_t offset() const noexcept {
    return ended ? bytes : bytes - source.bytes_in_buffer;
  }

  /// Aborts the running step with the failure `why`.
  [[noreturn]] void fail(jpeg_failure why) noexcept {
    failure = why;
    std::longjmp(escape, 1);
  }

 private:
  static void create(jpeg_session& session) { jpeg_create_decompress(&session.info); }

  static jpeg_session& of(void* client_data) noexcept {
    return *static_cast<jpeg_session*>(client_data);
  }

  [[noreturn]] static void on_error(::j_common_ptr common) {
    jpeg_session& session = of(common->client_data);
    (*common->err->format_message)(common, session.message);
    session.fail(jpeg_failure_of(common->err->msg_code));
  }

  // Level -1 is a warning. Other levels are traces.
  static void on_message(::j_common_ptr common, int level) {
    if (level >= 0) return;
    ++common->err->num_warnings;
    jpeg_session& session = of(common->client_data);
    if (session.ended || (session.strict && !is_harmless(session, *common->err))) {
      (*common->err->format_message)(common, session.message);
      session.fail(session.ended ? jpeg_failure::truncated : jpeg_failure::corrupt);
    }
  }

  // Extra bytes between markers are harmless. Extra bytes in the only scan or before a restart
  // marker mean that previously decoded rows are wrong.
  static bool is_harmless(const jpeg_session& session, const ::jpeg_error_mgr& warning) noexcept {
    const bool among_rows = warning.msg_code == JWRN_EXTRANEOUS_DATA &&
                            (session.one_scan || (warning.msg_parm.i[1] & 0xf8) == 0xd0);
    return !among_rows && is_harmless_jpeg_warning(warning.msg_code);
  }

  static void on_output(::j_common_ptr) {}
  static void on_source(::j_decompress_ptr) {}

  // Called when the input is exhausted. In the only scan, the decoder may read ahead further than
  // necessary. The callback then supplies an end-of-image marker, and libjpeg warns if it really
  // needs more bytes.
  static boolean on_empty(::j_decompress_ptr common) {
    static constexpr JOCTET end_of_image[] = {0xff, JPEG_EOI};
    jpeg_session& session = of(common->client_data);
    session.ended = true;
    // The arithmetic decoder reads zeros after a marker, without a warning.
    if (!session.one_scan || session.info.arith_code) session.fail(jpeg_failure::truncated);
    session.source.next_input_byte = end_of_image;
    session.source.bytes_in_buffer = sizeof end_of_image;
    return TRUE;
  }

  static void on_skip(::j_decompress_ptr common, long count) {
    jpeg_session& session = of(common->client_data);
    if (count <= 0) return;
    const auto skipped = static_cast<std::size_t>(count);
    if (skipped > session.source.bytes_in_buffer) {
      session.ended = true;
      session.fail(jpeg_failure::truncated);
    }
    session.source.next_input_byte += skipped;
    session.source.bytes_in_buffer -= skipped;
  }

  // libjpeg calls this for each block row while it reads the scans of a progressive image.
  static void on_progress(::j_common_ptr common) {
    jpeg_session& session = of(common->client_data);
    if (session.info.input_scan_number > session.max_scans) {
      session.fail(jpeg_failure::too_many_scans);
    }
  }
};

/// A region of an image in libjpeg. The decoded values equal the same region of the whole image.
///
/// Subsampled color is interpolated from neighboring pixels. Therefore the decoder also decodes and
/// drops two columns on each side and two rows above. Rows are skipped only from the first image
/// row to the start of a row group, because libjpeg-turbo 2.1.5 has bugs in other skips.
///
/// All members are trivial, because `jpeg_session::run` executes the steps.
struct jpeg_region {
  jpeg_session session;
  image_box box;         // region of the scaled image
  unsigned denominator;  // 1, 2, 4 or 8
  pixels out;
  std::uint8_t* line;       // memory for `line_values` values, one row
  std::size_t line_values;  // set by `start`
  std::size_t line_left;    // first image column of decoded rows

  static constexpr std::size_t margin = 2;

  /// Reads the header.
  static void read_header(jpeg_session& session) {
    ::jpeg_read_header(&session.info, TRUE);
    if (session.info.data_precision != 8) session.fail(jpeg_failure::unsupported);
  }

  /// Starts decoding, and advances to the region's first row and column.
  static void start(jpeg_session& session) {
    jpeg_region& region = of(session);
    ::jpeg_decompress_struct& info = session.info;
    info.scale_num = 1;
    info.scale_denom = region.denominator;
    // libjpeg does not convert four components to RGB itself.
    info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
    const bool many = ::jpeg_has_multiple_scans(&info) != 0;
    ::jpeg_start_decompress(&info);
    session.one_scan = !many;

    region.line_left = 0;
    if (!smooths(info)) {
      region.crop_columns();
      region.skip_rows();
    }
    region.line_values =
        std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components);
  }

  /// Decodes the rows of the region. Uses `line` if `goes_straight()` returns false.
  static void read_rows(jpeg_session& session) {
    jpeg_region& region = of(session);
    ::jpeg_decompress_struct& info = session.info;
    const bool straight = region.goes_straight();
    const std::size_t end = region.box.top + region.box.size.height;
    for (std::size_t y = info.output_scanline; y < end; ++y) {
      const bool is_inside = y >= region.box.top;
      std::uint8_t* to = is_inside ? region.out.row(y - region.box.top) : nullptr;
      JSAMPROW row = is_inside && straight ? to : region.line;
      if (::jpeg_read_scanlines(&info, &row, 1) != 1) session.fail(jpeg_failure::corrupt);
      if (is_inside && !straight) region.take_line(to);
    }
  }

  /// Returns true if libjpeg's rows have exactly the region's columns, so that they can be decoded
  /// in place. Rows above the region still need `line`.
  [[nodiscard]] bool goes_straight() const noexcept {
    return session.info.output_components == 3 && session.info.output_width == box.size.width;
  }

 private:
  // Returns the region that contains `session` as its first member.
  static jpeg_region& of(jpeg_session& session) noexcept {
    return reinterpret_cast<jpeg_region&>(session);
  }

  // Returns true if libjpeg smooths an incomplete progressive image. In that case the whole image
  // is decoded, because smoothing needs more neighbors than the region has.
  static bool smooths(const ::jpeg_decompress_struct& info) noexcept {
    if (info.progressive_mode == 0 || info.coef_bits == nullptr) return false;
    for (int component = 0; component < info.num_components; ++component) {
      const int* bits = info.coef_bits[component];
      if (!std::all_of(bits, bits + 10, [](int missing) { return missing == 0; })) return true;
    }
    return false;
  }

  // Returns true if libjpeg-turbo 2.1.5 would compute too small a component width after columns are
  // cropped. The bug affects components that are decoded at a larger scale than others, as at
  // denominators above 1, and then interpolated.
  static bool miscounts_columns(const ::jpeg_decompress_struct& info) noexcept {
#if JPEG_LIB_VERSION >= 70
    const auto scale = [](const auto& of) { return of.DCT_h_scaled_size; };
    const int min = info.min_DCT_h_scaled_size;
#else
    const auto scale = [](const auto& of) { return of.DCT_scaled_size; };
    const int min = info.min_DCT_scaled_size;
#endif
    return std::any_of(info.comp_info, info.comp_info + info.num_components,
                       [&](const ::jpeg_component_info& of) {
                         return scale(of) != min &&
                                (of.h_samp_factor * scale(of) != info.max_h_samp_factor * min ||
                                 of.v_samp_factor * scale(of) != info.max_v_samp_factor * min);
                       });
  }

  void crop_columns() {
    if (miscounts_columns(session.info)) return;
    const std::size_t width = session.info.output_width;
    // libjpeg-turbo interpolates differently if fewer than two component columns remain.
    const std::size_t min = 3 * static_cast<std::size_t>(session.info.max_h_samp_factor);
    if (width <= min) return;
    const std::size_t left = (std::min)(box.left - (std::min)(margin, box.left), width - min);
    const std::size_t right =
        (std::min)((std::max)(box.left + box.size.width + margin, left + min), width);
    if (left == 0 && right == width) return;
    auto offset = static_cast<JDIMENSION>(left);
    auto count = static_cast<JDIMENSION>(right - left);
    ::jpeg_crop_scanline(&session.info, &offset, &count);
    line_left = offset;
  }

  void skip_rows() {
    const std::size_t group = static_cast<std::size_t>(session.info.max_v_samp_factor);
    std::size_t rows = box.top - (std::min)(margin, box.top);
    rows -= rows % group;
    if (rows > 0) ::jpeg_skip_scanlines(&session.info, static_cast<JDIMENSION>(rows));
  }

  void take_line(std::uint8_t* to) const noexcept {
    const std::size_t skipped = box.left - line_left;
    if (session.info.output_components == 3) {
      std::memcpy(to, line + 3 * skipped, 3 * box.size.width);
    } else {
      cmyk_to_rgb(line + 4 * skipped, to, box.size.width);
    }
  }

  // Converts CMYK to RGB. Adobe stores inverted values, in which 255 means no ink. Like Pillow,
  // treats every CMYK image as inverted.
  static void cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i, from += 4, to += 3) {
      const unsigned light = from[3];
      for (int channel = 0; channel < 3; ++channel) {
        const unsigned product = (255u - from[channel]) * light + 128;
        to[channel] = static_cast<std::uint8_t>(light - ((product + (product >> 8)) >> 8));
      }
    }
  }
};

static_assert(std::is_trivially_destructible_v<jpeg_region>, "a longjmp must skip no destructor");
static_assert(std::is_standard_layout_v<jpeg_region>, "the session stands for its region");

}  // namespace detail

/// Options and limits of a `jpeg_decoder`.
struct jpeg_options {
  /// If true, damaged rows cause an error. If false, damaged rows are filled as in libjpeg and
  /// Pillow, and pixels after the damage are wrong. A truncated image is always an error. Damage in
  /// arithmetic-coded data cannot be detected, because every bit sequence is valid.
  bool strict = true;
  /// If true, images are turned upright according to their EXIF orientation. If false, images are
  /// decoded as stored, like in torchvision.
  bool orientation = false;
  /// Maximum number of pixels, checked before memory is allocated. A decoded pixel occupies three
  /// bytes.
  std::uint64_t max_pixels = std::uint64_t{1} << 27;
  /// Maximum size of a progressive image's coefficients in bytes.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  /// Maximum number of scans in a progressive image. Each scan processes the whole image.
  int max_scans = 500;
};

/// An `image_decoder` for JPEG. Decodes images or regions to 8-bit RGB with libjpeg-turbo (2.1 or
/// newer; CMake target `penstock::jpeg`).
///
/// Supports 8-bit baseline, extended, progressive and arithmetic-coded images in gray, YCbCr, RGB,
/// and Adobe's CMYK and YCCK. Converts CMYK to RGB like Pillow's `convert("RGB")`. Decodes only the
/// rows and columns that a box needs. The values in a box equal those that the same libjpeg decodes
/// from the whole image with default settings (exact inverse transform, interpolated color).
///
/// Throws `image_truncated`, `image_corrupt`, `image_unsupported` or `image_too_large`;
/// std::invalid_argument for a box outside the image; and std::bad_alloc. Bytes that libjpeg skips
/// between markers are not an error. A missing end marker is not an error if the image has a single
/// Huffman-coded scan with all its rows. Damage after the last row of a box is not detected.
///
/// Not thread-safe. Each image is decoded with new libjpeg objects, so that an image without tables
/// never uses the tables of an earlier image.
class jpeg_decoder {
 public:
  /// Creates a decoder with these options.
  explicit jpeg_decoder(const jpeg_options& options = {}) : options_(options) {}
  /// Copies only the options.
  jpeg_decoder(const jpeg_decoder& other) : options_(other.options_) {}
  /// Copies only the options.
  jpeg_decoder& operator=(const jpeg_decoder& other) {
    options_ = other.options_;
    return *this;
  }
  ~jpeg_decoder() = default;

  /// Returns true if `bytes` start with the JPEG signature.
  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return detail::image_format_of(bytes) == "JPEG";
  }

  /// Parses the header. Returns the size and orientation that `decode` uses.
  [[nodiscard]] image_info info(std::span<const std::byte> bytes, std::string_view key) {
    const auto session = opened(bytes, key);
    return info_of(bytes);
  }

  /// Decodes the part `box` of the image into `out`, which must have the box size and three
  /// channels.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out) {
    decode(bytes, key, box, out, 1);
  }

  /// Decodes a part of the image at 1/`denominator` scale, with sides rounded up. `denominator`
  /// must be 1, 2, 4 or 8. `box` is in pixels of the smaller image.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out, unsigned denominator) {
    if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
      throw std::invalid_argument("jpeg_decoder: expected a denominator of 1, 2, 4 or 8, found " +
                                  std::to_string(denominator));
    }
    const auto session = opened(bytes, key);
    const image_info info = info_of(bytes);
    const image_size size = detail::scaled_down(info.size, denominator);
    detail::require_box("jpeg_decoder", box, size, out);
    const detail::decode_orientation orientation{info.orientation};
    if (orientation.is_upright()) {
      decode_stored(bytes, key, box, out, denominator);
      return;
    }
    const image_size stored = orientation.turned(box.size);
    turned_.resize(stored.width * stored.height * 3);
    const pixels scratch{turned_.data(), stored, 3, stored.width * 3};
    decode_stored(bytes, key, orientation.stored(box, size), scratch, denominator);
    orientation.turn(scratch, out);
  }

  /// Returns the options passed to the constructor.
  [[nodiscard]] const jpeg_options& options() const noexcept { return options_; }

 private:
  struct close_session {
    void operator()(detail::jpeg_session* session) const noexcept { session->close(); }
  };

  // Opens a session and reads the header. The returned pointer closes the session.
  [[nodiscard]] std::unique_ptr<detail::jpeg_session, close_session> opened(
      std::span<const std::byte> bytes, std::string_view key) {
    detail::jpeg_session& session = region_.session;
    const auto max_bytes =
        (std::min)(options_.max_bytes, std::uint64_t{(std::numeric_limits<long>::max)()});
    const bool is_open = session.open(bytes, static_cast<long>(max_bytes));
    std::unique_ptr<detail::jpeg_session, close_session> closed_at_end{&session};
    check(is_open, bytes, key);
    session.strict = options_.strict;
    session.max_scans = options_.max_scans;
    check(session.run<detail::jpeg_region::read_header>(), bytes, key);
    check_header(bytes, key);
    return closed_at_end;
  }

  [[nodiscard]] image_info info_of(std::span<const std::byte> bytes) const noexcept {
    const ::jpeg_decompress_struct& info = region_.session.info;
    const int number = options_.orientation ? detail::jpeg_orientation(bytes) : 1;
    return {detail::decode_orientation{number}.turned({info.image_width, info.image_height}),
            static_cast<std::size_t>(info.num_components), number};
  }

  void decode_stored(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
                     const pixels& out, unsigned denominator) {
    region_.box = box;
    region_.out = out;
    region_.denominator = denominator;
    check(region_.session.run<detail::jpeg_region::start>(), bytes, key);
    if (line_.size() < region_.line_values) line_.resize(region_.line_values);
    region_.line = line_.data();
    check(region_.session.run<detail::jpeg_region::read_rows>(), bytes, key);
  }

  void check_header(std::span<const std::byte> bytes, std::string_view key) const {
    const ::jpeg_decompress_struct& info = region_.session.info;
    if (info.jpeg_color_space == JCS_UNKNOWN) {
      throw image_unsupported(std::string{key}, region_.session.offset(),
                              "a JPEG image of 1, 3 or 4 components",
                              std::to_string(info.num_components) + " components");
    }
    const image_size size{info.image_width, info.image_height};
    const std::uint64_t count = std::uint64_t{size.width} * size.height;
    if (count > options_.max_pixels) {
      throw image_too_large(
          std::string{key}, region_.session.offset(),
          "at most " + std::to_string(options_.max_pixels) + " pixels (jpeg_options::max_pixels)",
          detail::to_text(size));
    }
    // Huffman coding needs at least one bit for a block of at most 32 x 32 pixels.
    constexpr std::uint64_t max_pixels_a_byte = std::uint64_t{8} * 32 * 32;
    if (info.arith_code == 0 && count / max_pixels_a_byte > bytes.size()) {
      throw image_truncated(std::string{key}, bytes.size(),
                            "at least " + std::to_string(count / max_pixels_a_byte) +
                                " bytes for a JPEG image of " + detail::to_text(size) + " pixels",
                            "the end of its bytes");
    }
  }

  // Throws the error of the step that failed. Does nothing if `fine` is true.
  void check(bool fine, std::span<const std::byte> bytes, std::string_view key) const {
    if (fine) return;
    const detail::jpeg_session& session = region_.session;
    const std::string path{key};
    const std::string message = session.message;
    const std::uint64_t at = session.offset();
    if (session.failure == detail::jpeg_failure::no_memory) throw std::bad_alloc();
    if (!matches(bytes)) {
      if (bytes.size() < 3) {
        throw image_truncated(path, 0, "a JPEG image", detail::found_image(bytes));
      }
      throw image_unsupported(path, 0, "a JPEG image", detail::found_image(bytes));
    }
    switch (session.failure) {
      case detail::jpeg_failure::truncated:
        throw image_truncated(path, at, "the rest of the JPEG image", "the end of its bytes");
      case detail::jpeg_failure::unsupported:
        throw image_unsupported(path, at, "a JPEG image of 8 bits that libjpeg can decode",
                                message.empty() ? "another pixel format" : message);
      case detail::jpeg_failure::too_many_scans:
        throw image_too_large(
            path, at,
            "at most " + std::to_string(options_.max_scans) + " scans (jpeg_options::max_scans)",
            "more of them");
      case detail::jpeg_failure::too_large:
        throw image_too_large(path, at,
                              "a JPEG image that libjpeg decodes within " +
                                  std::to_string(options_.max_bytes) +
                                  " bytes (jpeg_options::max_bytes)",
                              message);
      default:
        throw image_corrupt(path, at, "a valid JPEG image", message);
    }
  }

  jpeg_options options_;
  detail::jpeg_region region_{};
  std::vector<std::uint8_t> line_;
  std::vector<std::uint8_t> turned_;
};

static_assert(scaled_image_decoder<jpeg_decoder>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
