// SPDX-License-Identifier: BSL-1.0
// Counts the input bytes that libFuzzer passes to a target. run.sh renames the target's own entry
// point for this purpose. Ends the run after the number of bytes in the environment variable BYTES,
// and prints the count, so that the length of a run can be reported in bytes as well as seconds.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int penstock_counted_input(const std::uint8_t* data, std::size_t size);

namespace {

unsigned long long bytes = 0;
unsigned long long inputs = 0;

void tell() {
  std::fprintf(stderr, "stat::fuzzed_bytes: %llu\nstat::inputs: %llu\n", bytes, inputs);
  std::fflush(stderr);
}

unsigned long long max_bytes() {
  const char* const text = std::getenv("BYTES");
  return text == nullptr ? ~0ULL : std::strtoull(text, nullptr, 10);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const unsigned long long max = [] {
    std::atexit(tell);
    return max_bytes();
  }();
  const int result = penstock_counted_input(data, size);
  bytes += size;
  ++inputs;
  if (bytes >= max) {
    tell();
    std::_Exit(0);  // libFuzzer would report std::exit as an unexpected exit of the target
  }
  return result;
}
