// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/detail/cache/disk/block_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Fills all of `parts`, one after the other, from byte `offset` of `file` on. False where it ends
/// before, or can't be read.
template <std::size_t Count>
[[nodiscard]] bool read_all(int file, std::uint64_t offset,
                            std::array<std::span<std::byte>, Count> parts) noexcept {
  for (;;) {
    std::array<::iovec, Count> left{};
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < Count; ++i) {
      left[i] = {parts[i].data(), parts[i].size()};
      wanted += parts[i].size();
    }
    if (wanted == 0) return true;
    ssize_t count =
        ::preadv(file, left.data(), static_cast<int>(Count), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    offset += static_cast<std::uint64_t>(count);
    for (auto& part : parts) {
      const std::size_t filled = (std::min)(part.size(), static_cast<std::size_t>(count));
      part = part.subspan(filled);
      count -= static_cast<ssize_t>(filled);
    }
  }
}

/// Reads the part of block `id` that begins at byte `from` of it out of its file, to `out`, which is
/// not empty. Whether the file is the block's, and the chunks in which the part lies are whole.
/// Chunks of which only a part is wanted go through memory of their own.
[[nodiscard]] inline bool read_block_part(int file, const block_id& id, std::uint64_t from,
                                          std::span<std::byte> out) {
  std::vector<std::byte> start(start_bytes(id));
  const std::uint64_t end = from + out.size();
  const std::uint64_t first = from / chunk_bytes;
  const std::uint64_t last_begin = (end - 1) / chunk_bytes * chunk_bytes;
  const std::uint64_t last_end = (std::min)(last_begin + chunk_bytes, id.length());
  // Chunks that are wanted as a whole lie from `whole` on, up to `whole_end`.
  const std::uint64_t whole = (from + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
  const std::uint64_t whole_end = end == last_end ? end : last_begin;
  const bool begins_inside = whole != from;
  const bool is_one = begins_inside && first * chunk_bytes == last_begin;
  const bool ends_inside = whole_end != end && !is_one;
  if (!begins_inside && !ends_inside && from == 0) {
    return read_all<2>(file, 0, {start, out}) && start_problem(id, start).empty() &&
           are_whole(id, start, first, out);
  }
  const auto edges = std::make_unique_for_overwrite<std::byte[]>(2 * chunk_bytes);
  const auto edge = [&](bool is_there, std::uint64_t begin, std::uint64_t until) {
    return std::span{edges.get() + (begin == first * chunk_bytes ? 0 : chunk_bytes),
                     is_there ? static_cast<std::size_t>(until - begin) : 0};
  };
  const auto head =
      edge(begins_inside, first * chunk_bytes, (std::min)((first + 1) * chunk_bytes, id.length()));
  const auto tail = edge(ends_inside, last_begin, last_end);
  const auto middle = whole < whole_end ? out.subspan(static_cast<std::size_t>(whole - from),
                                                      static_cast<std::size_t>(whole_end - whole))
                                        : std::span<std::byte>{};
  if (!read_all<1>(file, 0, {start}) || !start_problem(id, start).empty() ||
      !read_all<3>(file, start.size() + first * chunk_bytes, {head, middle, tail}) ||
      !are_whole(id, start, first, head) || !are_whole(id, start, whole / chunk_bytes, middle) ||
      !are_whole(id, start, last_begin / chunk_bytes, tail)) {
    return false;
  }
  if (!head.empty()) {
    const auto skipped = static_cast<std::size_t>(from % chunk_bytes);
    std::memcpy(out.data(), head.data() + skipped, (std::min)(out.size(), head.size() - skipped));
  }
  if (!tail.empty()) {
    const auto count = static_cast<std::size_t>(end - last_begin);
    std::memcpy(out.data() + out.size() - count, tail.data(), count);
  }
  return true;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
