// SPDX-License-Identifier: BSL-1.0
// What exists, and what nobody may do.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <utility>

#include "world.hpp"

namespace fake_cuda {

namespace detail {

namespace {

std::string readable(const memory_block& block) {
  std::ostringstream text;
  text << block.bytes << " bytes at " << static_cast<const void*>(block.base);
  return text.str();
}

bool lies_in(const memory_block& block, const void* address) {
  const auto* at = static_cast<const unsigned char*>(address);
  return at >= block.base && at < block.base + block.bytes;
}

}  // namespace

void world::find(const std::string& kind, const std::string& text) {
  findings.push_back({kind, text});
}

memory_block* world::block_of(const void* address) {
  auto* at = static_cast<unsigned char*>(const_cast<void*>(address));
  auto above = blocks.upper_bound(at);
  if (above == blocks.begin()) return nullptr;
  memory_block& block = std::prev(above)->second;
  return lies_in(block, address) ? &block : nullptr;
}

void world::check_unused(const memory_block& block, const std::string& call) {
  for (const auto& stream : streams) {
    for (const operation& next : stream->queue) {
      bool used = false;
      if (next.what == operation::kind::copy) {
        used = lies_in(block, next.to) || (!next.staged && lies_in(block, next.from));
      }
      used = used || (next.what == operation::kind::fill && lies_in(block, next.to));
      used = used || std::any_of(next.touches.begin(), next.touches.end(),
                                 [&](const void* at) { return lies_in(block, at); });
      if (used) {
        find("freed under work", call + " of " + readable(block) + ", which queued work uses");
        return;
      }
    }
  }
}

cudaError_t world::take(memory_block::kind what, std::size_t bytes, int device, void** data) {
  const std::size_t limit =
      what == memory_block::kind::device ? how.device_memory : how.pinned_memory;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > limit || taken[what] > limit - bytes) return cudaErrorMemoryAllocation;
  // Aligned to 256 bytes and never to more.
  constexpr std::size_t alignment = 256;
  storage.push_back(std::unique_ptr<unsigned char[]>(new unsigned char[bytes + 3 * alignment]));
  auto at = reinterpret_cast<std::uintptr_t>(storage.back().get());
  at = (at + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
  auto* base = reinterpret_cast<unsigned char*>(at);
  std::memset(base, poison, bytes);
  taken[what] += bytes;
  freed.erase(base);
  blocks[base] = {what, base, bytes, device};
  *data = base;
  return cudaSuccess;
}

cudaError_t world::give(memory_block::kind what, void* data, const char* call, lock_type& lock) {
  if (data == nullptr) return cudaSuccess;
  const auto found = blocks.find(static_cast<unsigned char*>(data));
  if (found == blocks.end() || found->second.what != what) {
    find(freed.count(data) != 0 ? "double free" : "free of unknown memory",
         std::string{call} + " of memory that it can't free");
    return cudaErrorInvalidValue;
  }
  const memory_block block = found->second;
  check_unused(block, call);
  taken[what] -= block.bytes;
  blocks.erase(found);
  freed.insert(data);
  run_all(lock);  // as the runtime does
  std::memset(block.base, poison, block.bytes);
  return cudaSuccess;
}

}  // namespace detail

std::vector<finding> findings() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  return now.findings;
}

live_objects live() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  live_objects all;
  const auto count = [](const auto& objects) {
    return static_cast<std::size_t>(std::count_if(objects.begin(), objects.end(),
                                                  [](const auto& one) { return !one->destroyed; }));
  };
  all.streams = static_cast<std::size_t>(
      std::count_if(now.streams.begin(), now.streams.end(),
                    [](const auto& one) { return !one->destroyed && !one->is_default; }));
  all.events = count(now.events);
  all.graphs = count(now.graphs);
  all.graph_execs = count(now.execs);
  for (const auto& [base, block] : now.blocks) {
    using kind = detail::memory_block::kind;
    if (block.what == kind::device) ++all.device_blocks;
    if (block.what == kind::pinned) ++all.pinned_blocks;
    if (block.what == kind::registered) ++all.registrations;
  }
  return all;
}

bool expect_clean() {
  const auto found = findings();
  const auto left = live();
  for (const auto& one : found) {
    std::fprintf(stderr, "fake_cuda: %s: %s\n", one.kind.c_str(), one.text.c_str());
  }
  bool clean = found.empty();
  const auto expect_none = [&](std::size_t count, const char* what) {
    if (count == 0) return;
    clean = false;
    std::fprintf(stderr, "fake_cuda: left behind: %zu %s\n", count, what);
  };
  expect_none(left.streams, "streams");
  expect_none(left.events, "events");
  expect_none(left.device_blocks, "blocks of device memory");
  expect_none(left.pinned_blocks, "blocks of pinned memory");
  expect_none(left.registrations, "registrations");
  expect_none(left.graphs, "graphs");
  expect_none(left.graph_execs, "executable graphs");
  return clean;
}

}  // namespace fake_cuda
