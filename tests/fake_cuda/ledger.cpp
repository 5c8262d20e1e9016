// SPDX-License-Identifier: BSL-1.0
// The ledger of live objects, and the rules for their use.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <utility>

#include "device_memory.hpp"
#include "world.hpp"

namespace fake_cuda {

namespace detail {

namespace {

// Number of bytes on either side of a block that must not be touched.
constexpr std::size_t guard = 256;

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

const memory_block* world::block_in(const void* address, std::size_t bytes) const {
  auto* at = static_cast<unsigned char*>(const_cast<void*>(address));
  const auto next = blocks.lower_bound(at);
  return next == blocks.end() || next->first >= at + bytes ? nullptr : &next->second;
}

bool world::check_alive(const void* address, std::string_view who) {
  auto above = freed.upper_bound(address);
  if (above == freed.begin()) return true;
  const memory_block& block = std::prev(above)->second;
  // The program may still use memory after its registration has ended.
  if (block.what == memory_block::kind::registered || !lies_in(block, address)) return true;
  find("use after free", std::string{who} + " uses " + readable(block) + ", which was freed");
  return false;
}

void world::check_operation(const operation& next, int device) {
  if (next.what == operation::kind::copy || next.what == operation::kind::fill) {
    check_alive(next.to, "an operation");
    if (next.from != nullptr && !next.staged) check_alive(next.from, "an operation");
  }
  for (const void* touched : next.touches) {
    check_alive(touched, "work");
    const memory_block* block = block_of(touched);
    if (block != nullptr && block->what == memory_block::kind::device && block->device != device) {
      find("wrong device", "work on device " + std::to_string(device) + " uses " +
                               readable(*block) + " of device " + std::to_string(block->device));
    }
    if (block != nullptr && !block->is_mapped) {
      find("not mapped", "work uses " + readable(*block) + ", registered for copies alone");
    }
  }
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

void world::check_guards(const memory_block& block, const std::string& who) {
  if (block.what == memory_block::kind::registered) return;
  auto* const base = static_cast<unsigned char*>(inside(block.base));
  for (unsigned char* begin : {base - guard, base + block.bytes}) {
    const auto is_whole = [](unsigned char byte) { return byte == poison; };
    if (std::all_of(begin, begin + guard, is_whole)) continue;
    find("out of bounds",
         who + " found bytes written " + (begin < base ? "before " : "after ") + readable(block));
    std::memset(begin, poison, guard);
  }
}

cudaError_t world::take(memory_block::kind what, std::size_t bytes, int device, bool is_portable,
                        void** data) {
  const std::size_t limit =
      what == memory_block::kind::device ? how.device_memory : how.pinned_memory;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  const bool is_absurd = what == memory_block::kind::device && bytes >= std::size_t{1} << 48;
  if (is_absurd && how.absurd_sizes_are_invalid) return cudaErrorInvalidValue;
  if (bytes > limit || taken[what] > limit - bytes) return cudaErrorMemoryAllocation;
  // Aligns to exactly 256 bytes and never more, so that tests detect stronger assumptions.
  constexpr std::size_t alignment = 256;
  const std::size_t all = bytes + 3 * alignment + guard;
  unsigned char* begin = nullptr;
  if (what == memory_block::kind::device) {
    watch_faults();
    begin = take_device_memory(all);
  } else {
    storage.push_back(std::unique_ptr<unsigned char[]>(new unsigned char[all]));
    begin = storage.back().get();
  }
  auto at = reinterpret_cast<std::uintptr_t>(begin);
  at = (at + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
  auto* base = reinterpret_cast<unsigned char*>(at);
  std::memset(inside(base - guard), poison, bytes + 2 * guard);
  taken[what] += bytes;
  freed.erase(base);
  blocks[base] = {what, base, bytes, device, true, is_portable};
  *data = base;
  return cudaSuccess;
}

bool world::is_freeable(memory_block::kind what, void* data, const char* call) {
  const auto found = blocks.find(static_cast<unsigned char*>(data));
  if (found != blocks.end() && found->second.what == what) return true;
  find(freed.count(data) != 0 ? "double free" : "free of unknown memory",
       std::string{call} + " of memory that it can't free");
  return false;
}

void world::take_back(unsigned char* base) {
  const auto found = blocks.find(base);
  const memory_block block = found->second;
  const bool on_device = block.what == memory_block::kind::device;
  taken[on_device ? memory_block::kind::device : memory_block::kind::pinned] -= block.bytes;
  freed[base] = block;
  blocks.erase(found);
}

cudaError_t world::give(memory_block::kind what, void* data, const char* call, lock_type& lock) {
  if (data == nullptr) return cudaSuccess;
  if (!is_freeable(what, data, call)) return cudaErrorInvalidValue;
  auto* base = static_cast<unsigned char*>(data);
  const memory_block block = blocks.find(base)->second;
  check_unused(block, call);
  take_back(base);
  // Waits for the device as the runtime does. Pinned memory belongs to every device.
  run_all(lock, what == memory_block::kind::device ? std::optional{block.device} : std::nullopt);
  check_guards(block, call);
  if (what != memory_block::kind::registered) std::memset(inside(base), poison, block.bytes);
  return cudaSuccess;
}

void world::forget(memory_block::kind what, void* data, const char* call) {
  if (data == nullptr || !is_freeable(what, data, call)) return;
  take_back(static_cast<unsigned char*>(data));
}

}  // namespace detail

void* detail::inspected(const void* address) { return inside(address); }

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
  for (const auto& [device, context] : now.contexts) all.retained_contexts += context.retained;
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
  expect_none(left.retained_contexts, "times that a context was retained");
  return clean;
}

}  // namespace fake_cuda
