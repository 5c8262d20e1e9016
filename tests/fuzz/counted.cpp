// SPDX-License-Identifier: BSL-1.0
// Counts the bytes that libFuzzer gives to a target, whose own entry point run.sh has renamed, and
// ends the run after as many as the environment's BYTES says. Prints how many they were, so that a
// run can be told in bytes and not only in seconds.

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

unsigned long long most_bytes() {
  const char* const text = std::getenv("BYTES");
  return text == nullptr ? ~0ULL : std::strtoull(text, nullptr, 10);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const unsigned long long most = [] {
    std::atexit(tell);
    return most_bytes();
  }();
  const int result = penstock_counted_input(data, size);
  bytes += size;
  ++inputs;
  if (bytes >= most) {
    tell();
    std::_Exit(0);  // std::exit would be taken for a target that ends the program
  }
  return result;
}
