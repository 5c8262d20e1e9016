// SPDX-License-Identifier: BSL-1.0
// The program in the README, with its step in the loop body: `ps::transfer feed{loader}` on the CPU
// device. The copies are slow, so a reader that does not wait reads too early. `body clean` passes
// if every batch has the correct contents. `body caught` passes if a batch has wrong contents.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <penstock/penstock.hpp>

namespace ps = penstock;

namespace {

struct numbers {  // never 0, the initial value of memory
  using record_type = ps::record<ps::field<"number", std::uint64_t, 16>>;
  [[nodiscard]] static std::uint64_t size() { return 200; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    for (auto& number : ps::get<"number">(out).flat()) number = index + 1;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const ps::cpu_device device{{.copy_bytes_per_second = 1e6}};  // a copy takes 1.3 ms per batch
  ps::loader loader{numbers{}, ps::sequential{}, device, {.batch_size = 10, .workers = 1}};
  ps::transfer feed{loader, {.depth = 2}};
  std::uint64_t wrong = 0;
  std::uint64_t next = 0;
  for (auto& batch : feed.epochs(0, 2)) {
    const auto number = ps::get<"number">(batch);
    bool is_right = true;
    for (std::size_t i = 0; i < number.size(); ++i) {
      is_right = is_right && number.flat()[i] == next % 200 + 1 + i / 16;
    }
    next += batch.size();
    wrong += is_right ? 0 : 1;
  }
  std::printf("wrong batches: %llu of 40\n", static_cast<unsigned long long>(wrong));
  const bool is_caught = argc == 2 && std::strcmp(argv[1], "caught") == 0;
  return is_caught == (wrong != 0) && next == 400 ? 0 : 1;
}
