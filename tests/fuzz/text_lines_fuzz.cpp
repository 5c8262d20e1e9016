// SPDX-License-Identifier: BSL-1.0
// Scans any text for lines and compares them with a simple loop. Then opens any bytes as the index
// of that text. The bytes get a valid start and checksum, which random bytes would never reach. The
// index is rejected with an error that points into it, or each of its lines lies within the text or
// is an error.
#include <penstock_ext/indexed/text_lines.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  static const fuzz::scratch_file text_file;
  static const fuzz::scratch_file index_file;
  using format = ps::detail::line_format;
  const std::size_t chunk = 1 + data[0] % 32U;
  const std::size_t workers = 1 + data[1] % 2U;
  const bool is_mended = data[2] % 4 != 0;
  const std::size_t split = (std::min)(size - 4, std::size_t{data[3]} * 4);
  text_file.write(std::as_bytes(std::span{data + 4, split}));
  ps::mapped_file text{text_file.path()};
  const std::string_view all{reinterpret_cast<const char*>(text.bytes().data()), split};

  if (ps::detail::foreign_format_of(text.bytes()).is_compressed) return 0;
  const auto found = format::scan(text, workers, [](std::uint64_t) {}, chunk);
  std::uint64_t count = 0;
  std::uint64_t longest = 0;
  for (std::size_t at = 0; at < split; ++count) {
    const std::size_t end = (std::min)(all.find('\n', at), split);
    if (count % 16 == 0) fuzz::require(found.marks[count / 16] == at, "the position of a line");
    const bool has_return = end > at && all[end - 1] == '\r';
    longest = std::max<std::uint64_t>(longest, end - at - (has_return ? 1 : 0));
    at = end + 1;
  }
  fuzz::require(found.count == count && found.longest == longest, "the lines of a simple loop");
  fuzz::require(found.marks.size() == (count + 15) / 16, "a position for 16 lines");

  std::vector<std::byte> bytes(size - 4 - split);
  if (!bytes.empty()) std::memcpy(bytes.data(), data + 4 + split, bytes.size());
  ps::detail::index_header head;
  if (is_mended && bytes.size() >= sizeof head) {
    std::memcpy(&head, bytes.data(), sizeof head);
    std::memcpy(head.magic, ps::detail::index_header{}.magic, sizeof head.magic);
    head.count %= 1U + (bytes.size() - sizeof head) / 8 * 16;
    std::memcpy(bytes.data(), &head, sizeof head);
    head.checksum = ps::detail::checksum_of_index(bytes);
    std::memcpy(bytes.data(), &head, sizeof head);
  }
  index_file.write(bytes);
  try {
    const ps::detail::lines_file lines{
        std::move(text),
        ps::detail::sample_index{ps::mapped_file{index_file.path()}, format::step, head}};
    fuzz::require(is_mended, "a checksum is not found by chance");
    for (std::uint64_t i = 0; i < lines.size(); ++i) {
      try {
        const auto line = ps::get<"text">(lines.view(i)).flat();
        const auto* const begin = reinterpret_cast<const char*>(line.data());
        fuzz::require(begin >= all.data() && begin + line.size() <= all.data() + split,
                      "a line within the text");
        static_cast<void>(lines.storage_size(i));
        lines.prefetch_hint({&i, 1});
      } catch (const ps::file_corrupt&) {
      }
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= bytes.size(), "an error points into the file");
  }
  return 0;
}
