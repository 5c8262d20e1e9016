// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

// jpeglib.h leans on <cstdio>.
#include <jpeglib.h>

#include <jerror.h>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What went wrong inside libjpeg.
enum class jpeg_failure : std::uint8_t {
  none,
  truncated,
  corrupt,
  unsupported,
  too_large,
  too_many_scans,
  no_memory
};

/// What a failure with the library's message number `code` is.
[[nodiscard]] constexpr jpeg_failure jpeg_failure_of(int code) noexcept {
  switch (code) {
    case JERR_OUT_OF_MEMORY:
      return jpeg_failure::no_memory;
    case JERR_NO_BACKING_STORE:  // what max_memory_to_use comes to
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
      return jpeg_failure::too_large;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_J_COLORSPACE:
    case JERR_BAD_LIB_VERSION:  // compiled with the header of another libjpeg
    case JERR_BAD_PRECISION:
    case JERR_BAD_STRUCT_SIZE:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
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

/// Whether the pixels are right in spite of the warning `code`.
[[nodiscard]] constexpr bool is_harmless_jpeg_warning(int code) noexcept {
  return code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR || code == JWRN_EXTRANEOUS_DATA ||
         code == JWRN_NOT_SEQUENTIAL || code == JWRN_TOO_MUCH_DATA || code == JWRN_BOGUS_ICC;
}

/// One picture at libjpeg: its objects, the callbacks that it is given, and where they jump to.
///
/// Everything here is trivial and no function that is jumped out of has an object with a
/// destructor, so that a longjmp skips none; nothing here throws. Refers to itself while it is
/// open.
struct jpeg_session {
  ::jpeg_decompress_struct info;
  ::jpeg_error_mgr errors;
  ::jpeg_source_mgr source;
  ::jpeg_progress_mgr progress;
  std::jmp_buf escape;
  std::size_t bytes;     // of the picture, encoded
  int most_scans;        // a picture with more is refused
  bool strict;           // warnings about the pixels are failures
  bool one_scan;         // the input is a single scan, which is being decoded
  bool ended;            // the input has ended, and the end was made up
  jpeg_failure failure;  // why the last step failed
  char message[JMSG_LENGTH_MAX];

  /// Runs `Step` on the session; false if libjpeg has failed in it, `failure` and `message` say
  /// how.
  template <void (*Step)(jpeg_session&)>
  [[nodiscard]] [[gnu::noinline]] bool run() noexcept {
    if (setjmp(escape) != 0) return false;
    Step(*this);
    return true;
  }

  /// Makes the objects for a picture out of `input`, which must stay; `most_bytes` bounds libjpeg's
  /// memory for coefficients. To be followed by `close`, whatever it returns.
  [[nodiscard]] bool open(std::span<const std::byte> input, long most_bytes) noexcept {
    info = {};
    errors = {};
    source = {};
    progress = {};
    bytes = input.size();
    one_scan = false;
    ended = false;
    failure = jpeg_failure::none;
    message[0] = '\0';
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
    info.mem->max_memory_to_use = most_bytes;
    info.src = &source;
    info.progress = &progress;
    return true;
  }

  /// Gives back what libjpeg holds.
  void close() noexcept { ::jpeg_destroy_decompress(&info); }

  /// Near which byte of the input libjpeg stands.
  [[nodiscard]] std::uint64_t offset() const noexcept {
    return ended ? bytes : bytes - source.bytes_in_buffer;
  }

  /// Leaves the step that runs.
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

  // Level -1 is a warning, the others are traces.
  static void on_message(::j_common_ptr common, int level) {
    if (level >= 0) return;
    ++common->err->num_warnings;
    jpeg_session& session = of(common->client_data);
    if (session.ended || (session.strict && !is_harmless(session, *common->err))) {
      (*common->err->format_message)(common, session.message);
      session.fail(session.ended ? jpeg_failure::truncated : jpeg_failure::corrupt);
    }
  }

  // Bytes too many do no harm between markers. Among the rows they mean that what was decoded
  // before them is wrong: in the only scan, and before a restart marker.
  static bool is_harmless(const jpeg_session& session, const ::jpeg_error_mgr& warning) noexcept {
    const bool among_rows = warning.msg_code == JWRN_EXTRANEOUS_DATA &&
                            (session.one_scan || (warning.msg_parm.i[1] & 0xf8) == 0xd0);
    return !among_rows && is_harmless_jpeg_warning(warning.msg_code);
  }

  static void on_output(::j_common_ptr) {}
  static void on_source(::j_decompress_ptr) {}

  // The bytes are at an end. In the only scan the decoder may look ahead of what it needs: it gets
  // an end of image, and a warning is given when it needs more after all.
  static boolean on_empty(::j_decompress_ptr common) {
    static constexpr JOCTET end_of_image[] = {0xff, JPEG_EOI};
    jpeg_session& session = of(common->client_data);
    session.ended = true;
    // The arithmetic decoder takes zeros after a mark, and warns of nothing.
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

  // libjpeg calls it for each row of blocks as it reads the scans of a progressive picture.
  static void on_progress(::j_common_ptr common) {
    jpeg_session& session = of(common->client_data);
    if (session.info.input_scan_number > session.most_scans) {
      session.fail(jpeg_failure::too_many_scans);
    }
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
