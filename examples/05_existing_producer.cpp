// SPDX-License-Identifier: BSL-1.0
// Feeds a device from an existing producer instead of a loader: here a camera with two buffers. The
// camera models batch_source, its batches model source_batch, and transfer does the rest.
#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock/transfer/batch_source.hpp>

#include <iostream>
#include <memory>

namespace ps = penstock;
const ps::cpu_device cpu;

// A record with one field has the memory layout of a plain array. For a GPU the buffer should be
// page-locked with ps::registered_memory. The event is complete after the last copy from the
// buffer.
struct buffer {
  std::uint16_t pixels[4 * 64];
  ps::cpu_event drained;
};
// Move-only, but owns nothing
using borrowed = std::unique_ptr<buffer, decltype([](buffer*) {})>;
struct camera_batch {
  using record_type = ps::record<ps::field<"pixels", std::uint16_t, 64>>;
  using device_type = ps::cpu_device;
  explicit operator bool() const { return from != nullptr; }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(from->pixels); }
  ps::batch_info info() const { return {.epoch = 0, .batch = number, .size = 4, .valid_size = 4}; }
  void release_after(ps::cpu_stream_ref last) { cpu.record(from.release()->drained, last); }
  borrowed from;
  std::uint64_t number = 0;
};

// Has no epochs: it produces 30 batches of four frames and then ends
struct camera {
  using record_type = camera_batch::record_type;
  using device_type = ps::cpu_device;
  using batch_type = camera_batch;
  device_type device() const { return cpu; }
  const ps::batch_layout<record_type>& layout() const { return four; }
  void start(const ps::batch_position& from, std::uint64_t) { count = from.batch; }
  batch_type next() {
    if (count == 30) return {};
    buffer& to = ring[count % 2];
    cpu.synchronize(to.drained);
    for (auto& pixel : to.pixels) pixel = static_cast<std::uint16_t>(count);
    return {borrowed{&to}, count++};
  }
  // Does not wait: returns an empty batch while the next buffer is still being copied
  batch_type try_next() {
    return cpu.is_complete(ring[count % 2].drained) ? next() : camera_batch{};
  }
  void stop() noexcept { count = 30; }
  ps::batch_layout<record_type> four{{{}}, 4};
  buffer ring[2];
  std::uint64_t count = 30;
};
static_assert(ps::batch_source<camera>);

int main() {
  camera source;
  ps::transfer feed{source};
  std::uint64_t sum = 0;
  for (auto& batch : feed.epoch(0))
    for (const auto pixel : ps::get<"pixels">(batch).flat()) sum += pixel;
  std::cout << "sum of all pixels: " << sum << '\n';
  return sum == 435 * 4 * 64 ? 0 : 1;
}
