// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <penstock/penstock.hpp>

namespace stress {

namespace ps = penstock;

/// The exception of a bad sample.
class bad_sample : public std::runtime_error {
 public:
  explicit bad_sample(std::uint64_t which)
      : std::runtime_error("sample " + std::to_string(which) + " is bad"), index(which) {}
  std::uint64_t index;
};

/// A dataset in which some samples are permanently bad, and others fail a few times. Each sample
/// contains its index and its first random bits.
struct chaotic {
  using record_type =
      ps::record<ps::field<"label", std::uint64_t>, ps::field<"bits", std::uint32_t, 3>>;

  std::uint64_t count = 1;
  std::uint64_t key = 0;
  std::uint64_t bad_in = 0;      // one in `bad_in` samples is bad; 0 means none
  std::uint64_t flaky_in = 0;    // one in `flaky_in` samples fails at first; 0 means none
  std::size_t flaky_fails = 0;   // number of times that a flaky sample fails
  std::uint64_t yields_in = 64;  // one in `yields_in` reads yields first
  // The result of `size` if it differs from `count`.
  std::shared_ptr<std::atomic<std::uint64_t>> other_size =
      std::make_shared<std::atomic<std::uint64_t>>(0);

  [[nodiscard]] std::uint64_t size() const {
    const std::uint64_t other = *other_size;
    return other != 0 ? other : count;
  }
  [[nodiscard]] bool is_bad(std::uint64_t index) const { return is_one(index, 1, bad_in); }
  void read(std::uint64_t index, ps::sample<record_type> out, ps::sample_generator& rng) const {
    if (is_one(index, 3, yields_in)) std::this_thread::yield();
    ps::get<"label">(out) = ~index;  // a value that must not be visible if the read fails
    if (is_bad(index)) throw bad_sample(index);
    if (is_one(index, 2, flaky_in) && fails_again(index)) throw bad_sample(index);
    ps::get<"label">(out) = index;
    for (std::uint32_t& bits : ps::get<"bits">(out).flat()) bits = rng();
  }

 private:
  [[nodiscard]] bool is_one(std::uint64_t index, std::uint64_t of, std::uint64_t in) const {
    return in != 0 && ps::sample_generator{{.seed = key, .epoch = of}, index}() % in == 0;
  }
  // The counters are thread-local: the thread that reads a sample also runs its retries, without
  // another read between them.
  bool fails_again(std::uint64_t index) const {
    thread_local std::array<std::size_t, 64> fails{};
    std::size_t& so_far = fails.at(index);
    const bool again = so_far < flaky_fails;
    so_far = again ? so_far + 1 : 0;
    return again;
  }
};

}  // namespace stress
