// SPDX-License-Identifier: BSL-1.0
// Scans any bytes for records of any layout. Either each record lies within the file, after the
// record before it, or the last record is an error at the end of the file. A file of a known other
// format may be an error that names the format.
#include <penstock_ext/indexed/prefixed_records.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 8) return 0;
  static const fuzz::scratch_file file;
  const ps::detail::prefixed_format format{{.file_header = data[0] % 16U,
                                            .before = data[1] % 8U,
                                            .length_bytes = std::size_t{1} << data[2] % 4U,
                                            .is_big_endian = data[3] % 2U != 0,
                                            .unit = 1U + data[4],
                                            .between = data[5] % 8U,
                                            .after = data[6] % 8U,
                                            .alignment = 1U + data[7] % 64U}};
  file.write(std::as_bytes(std::span{data, size}.subspan(8)));
  const ps::mapped_file mapped{file.path()};
  const auto all = mapped.bytes();
  try {
    const auto found = format.scan(mapped, 1, [&](std::uint64_t done) {
      fuzz::require(done <= all.size(), "progress within the file");
    });
    fuzz::require(found.count == found.marks.size(), "a position for each record");
    std::uint64_t end = format.layout.file_header;
    for (const std::uint64_t at : found.marks) {
      fuzz::require(at >= end && at < all.size(), "records in order");
      const auto bytes =
          format.data_of(all.subspan(static_cast<std::size_t>(at)), mapped.path(), at);
      fuzz::require(bytes.size() <= found.longest, "no record is longer than the longest");
      end = static_cast<std::uint64_t>(bytes.data() - all.data()) + bytes.size();
      fuzz::require(end <= all.size(), "a record within the file");
    }
  } catch (const ps::file_truncated& error) {
    fuzz::require(error.offset() == all.size(), "an error at the end of the file");
  } catch (const ps::file_format_error&) {
    fuzz::require(!ps::detail::foreign_text(all).empty(), "an error for a known other format");
  }
  return 0;
}
