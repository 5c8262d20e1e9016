// SPDX-License-Identifier: BSL-1.0
// Kernel execution: runs the threads of a block alternately.
#include "grid.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "fibers.hpp"

// The coordinates of the running kernel thread, which <cuda_runtime.h> declares.
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;
thread_local constinit uint3 threadIdx{};
thread_local constinit uint3 blockIdx{};
thread_local constinit dim3 blockDim{};
thread_local constinit dim3 gridDim{};

namespace fake_cuda::detail {

namespace {

std::size_t count(const dim3& of) { return std::size_t{of.x} * of.y * of.z; }

uint3 place(std::size_t i, const dim3& within) {
  const std::size_t row = i / within.x;
  return {static_cast<unsigned>(i % within.x), static_cast<unsigned>(row % within.y),
          static_cast<unsigned>(row / within.y)};
}

/// The shared memory of a block.
class shared_arena {
 public:
  // Maximum size of a kernel's shared variables.
  static constexpr std::size_t limit = std::size_t{48} << 10;

  void begin_block() {
    variables_.clear();
    std::memset(memory_.data(), shared_poison, used_);
    used_ = 0;
    declared_ = 0;
  }

  void* variable(std::size_t bytes, std::size_t alignment, const char* file, unsigned line) {
    for (const auto& one : variables_) {
      if (one.line == line && one.file == file) return memory_.data() + one.begin;
    }
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::size_t begin = (base + used_ + guard + alignment - 1) / alignment * alignment - base;
    if (begin + bytes + guard > memory_.size()) throw std::length_error("shared memory");
    variables_.push_back({file, line, begin, bytes});
    used_ = begin + bytes + guard;
    declared_ += bytes;
    return memory_.data() + begin;
  }

  [[nodiscard]] std::size_t declared() const { return declared_; }
  /// Returns true if no guard byte around the variables was overwritten.
  [[nodiscard]] bool guards_are_whole() const {
    std::size_t end = 0;
    for (const auto& one : variables_) {
      if (!is_poison(end, one.begin)) return false;
      end = one.begin + one.bytes;
    }
    return is_poison(end, used_);
  }

 private:
  struct variable_place {
    const char* file;
    unsigned line;
    std::size_t begin, bytes;
  };
  static constexpr std::size_t guard = 256;

  [[nodiscard]] bool is_poison(std::size_t from, std::size_t to) const {
    return std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(from),
                       memory_.begin() + static_cast<std::ptrdiff_t>(to),
                       [](unsigned char byte) { return byte == shared_poison; });
  }

  std::vector<unsigned char> memory_ =
      std::vector<unsigned char>(std::size_t{256} << 10, shared_poison);
  std::vector<variable_place> variables_;
  std::size_t used_ = 0;
  std::size_t declared_ = 0;
};

/// The source location of a barrier, or null if a thread is not at a barrier.
struct barrier {
  const char* file = nullptr;
  unsigned line = 0;
  friend bool operator==(const barrier&, const barrier&) = default;
};

/// Runs kernels on a thread of the fake CUDA runtime.
class block_runner {
 public:
  std::uint64_t run(const grid& what, order how, std::uint64_t seed, kernel_findings& hear) {
    grid_ = &what;
    order_ = how;
    random_.seed(seed);
    hear_ = &hear;
    reported_ = false;
    barriers_ = 0;
    blockDim = what.threads;
    gridDim = what.blocks;
    std::vector<std::size_t> blocks(count(what.blocks));
    arrange(blocks);
    for (const std::size_t block : blocks) run_block(block);
    return barriers_;
  }

  void meet(const char* file, unsigned line) {
    at_[fibers_.current()] = {file, line};
    fibers_.yield();
  }
  shared_arena& shared() { return shared_; }

 private:
  void arrange(std::vector<std::size_t>& all) {
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (order_ == order::backwards) std::reverse(all.begin(), all.end());
    if (order_ == order::seeded) std::shuffle(all.begin(), all.end(), random_);
  }

  void run_block(std::size_t block) {
    const std::size_t threads = count(grid_->threads);
    blockIdx = place(block, grid_->blocks);
    shared_.begin_block();
    at_.assign(threads, {});
    threads_.resize(threads);
    fibers_.assign(
        threads, [](void* self, std::size_t) { static_cast<block_runner*>(self)->run_thread(); },
        this);
    for (bool again = true; again;) {
      arrange(threads_);
      for (const std::size_t thread : threads_) {
        if (fibers_.has_ended(thread)) continue;
        threadIdx = place(thread, grid_->threads);
        at_[thread] = {};
        fibers_.resume(thread);
      }
      again = has_met();
    }
    if (shared_.declared() > shared_arena::limit) {
      tell("shared memory", std::to_string(shared_.declared()) + " bytes are more than 48 KB");
    }
    if (!shared_.guards_are_whole()) tell("out of bounds", "written outside of a shared variable");
  }

  /// Returns true if threads wait at a barrier. All of them must wait at the same barrier.
  bool has_met() {
    const auto waits = [](const barrier& one) { return one.file != nullptr; };
    const auto first = std::find_if(at_.begin(), at_.end(), waits);
    if (first == at_.end()) return false;
    ++barriers_;
    if (std::any_of(at_.begin(), at_.end(), [&](const barrier& one) { return one != *first; })) {
      const auto waiting = std::count(at_.begin(), at_.end(), *first);
      tell("barrier", std::to_string(waiting) + " of " + std::to_string(at_.size()) +
                          " threads wait at " + first->file + ":" + std::to_string(first->line) +
                          ", the others don't");
    }
    return true;
  }

  void run_thread() {
    try {
      grid_->type.call(grid_->kernel, grid_->arguments.get());
    } catch (const std::exception& error) {
      tell("work threw", error.what());
    } catch (...) {
      tell("work threw", "an exception left a kernel");
    }
  }

  /// Reports the first finding of a launch. Later findings may only be consequences of the first.
  void tell(const std::string& kind, const std::string& text) {
    if (reported_) return;
    reported_ = true;
    hear_->find(kind, "block " + std::to_string(blockIdx.x) + " of a kernel: " + text);
  }

  const grid* grid_ = nullptr;
  order order_ = order::forwards;
  std::mt19937_64 random_;
  kernel_findings* hear_ = nullptr;
  bool reported_ = false;
  std::uint64_t barriers_ = 0;
  shared_arena shared_;
  std::vector<barrier> at_;  // barrier of each thread
  std::vector<std::size_t> threads_;
  fiber_pool fibers_;
};

block_runner& runner() {
  thread_local block_runner mine;
  return mine;
}

}  // namespace

std::uint64_t run(const grid& what, order how, std::uint64_t seed, kernel_findings& hear) {
  return runner().run(what, how, seed, hear);
}

void meet(const char* file, unsigned line) { runner().meet(file, line); }

void* shared_memory(std::size_t bytes, std::size_t alignment, const char* file, unsigned line) {
  return runner().shared().variable(bytes, alignment, file, line);
}

}  // namespace fake_cuda::detail
