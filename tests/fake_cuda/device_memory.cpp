// SPDX-License-Identifier: BSL-1.0
#include "device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "world.hpp"

namespace fake_cuda::detail {

namespace {

struct chunk {
  unsigned char* outside = nullptr;  // address of the program's mapping
  unsigned char* inside = nullptr;
  std::size_t bytes = 0;
  std::size_t used = 0;

  [[nodiscard]] bool has(const void* address) const {
    const auto* at = static_cast<const unsigned char*>(address);
    return at >= outside && at < outside + bytes;
  }
};

/// All device memory. Never destroyed, like `world`. Code that holds the mutex never touches memory
/// that may fault, so the fault handler can lock the mutex.
struct registry {
  std::mutex mutex;
  std::vector<chunk> chunks;
  unsigned open = 0;  // number of running works that have touched device memory

  void protect(int how) const {
    for (const chunk& one : chunks) ::mprotect(one.outside, one.bytes, how);
  }
};

registry& memory() {
  static auto* all = new registry;
  return *all;
}

thread_local constinit unsigned works = 0;  // nesting depth of running work items on this thread
thread_local constinit bool has_opened = false;

// ---- faults

struct sigaction previous {};

void say(const void* address) {
  char text[512];
  std::size_t length = static_cast<std::size_t>(std::snprintf(
      text, sizeof text,
      "fake_cuda: device memory touched by the host outside of an operation: address %p", address));
  world& now = the_world();
  if (now.mutex.try_lock()) {  // fails if any thread is inside a call
    const auto* at = static_cast<const unsigned char*>(address);
    const memory_block* block = now.block_of(address);
    if (block != nullptr) {
      length += static_cast<std::size_t>(std::snprintf(
          text + length, sizeof text - length, ", byte %zu of the %zu bytes at %p of device %d",
          static_cast<std::size_t>(at - block->base), block->bytes,
          static_cast<const void*>(block->base), block->device));
    } else {
      length += static_cast<std::size_t>(
          std::snprintf(text + length, sizeof text - length, ", in no allocation that is alive"));
    }
    now.mutex.unlock();
  }
  text[length++] = '\n';
  static_cast<void>(!::write(STDERR_FILENO, text, length));
}

void pass_on(int signal, siginfo_t* what, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, what, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    ::sigaction(signal, &previous, nullptr);  // the fault is raised again without this handler
  }
}

void fault(int signal, siginfo_t* what, void* context) {
  bool is_ours = false;
  {
    const std::lock_guard lock{memory().mutex};
    for (const chunk& one : memory().chunks) is_ours = is_ours || one.has(what->si_addr);
    if (is_ours && works > 0) {
      if (!has_opened && memory().open++ == 0) memory().protect(PROT_READ | PROT_WRITE);
      has_opened = true;
      return;
    }
  }
  if (!is_ours) return pass_on(signal, what, context);
  say(what->si_addr);
  std::abort();
}

/// Installs the handler before the first test, so that a test framework which restores previous
/// handlers restores this handler.
[[maybe_unused]] const bool watched = [] {
  watch_faults();
  return true;
}();

}  // namespace

void watch_faults() {
  struct sigaction now {};
  ::sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &fault) return;
  previous = now;
  struct sigaction ours {};
  ours.sa_sigaction = &fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGSEGV, &ours, nullptr);
}

unsigned char* take_device_memory(std::size_t bytes) {
  constexpr std::size_t page = std::size_t{64} << 10;  // the largest page size in use
  constexpr std::size_t min = std::size_t{4} << 20;
  const std::lock_guard lock{memory().mutex};
  auto& chunks = memory().chunks;
  if (chunks.empty() || chunks.back().bytes - chunks.back().used < bytes) {
    chunk made;
    made.bytes = std::max(min, (bytes + page - 1) / page * page);
    const int file = ::memfd_create("fake_cuda", MFD_CLOEXEC);
    if (file < 0) throw std::bad_alloc{};
    const bool is_long = ::ftruncate(file, static_cast<off_t>(made.bytes)) == 0;
    const auto map = [&](int how) {
      return is_long ? ::mmap(nullptr, made.bytes, how, MAP_SHARED | MAP_NORESERVE, file, 0)
                     : MAP_FAILED;
    };
    void* const inner = map(PROT_READ | PROT_WRITE);
    void* const outer = map(memory().open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
    ::close(file);
    if (inner == MAP_FAILED || outer == MAP_FAILED) throw std::bad_alloc{};
    made.inside = static_cast<unsigned char*>(inner);
    made.outside = static_cast<unsigned char*>(outer);
    chunks.push_back(made);
  }
  chunk& last = chunks.back();
  last.used += bytes;
  return last.outside + last.used - bytes;
}

void drop_device_memory() {
  const std::lock_guard lock{memory().mutex};
  for (const chunk& one : memory().chunks) {
    ::munmap(one.outside, one.bytes);
    ::munmap(one.inside, one.bytes);
  }
  memory().chunks.clear();
}

void* inside(const void* address) {
  auto* at = static_cast<unsigned char*>(const_cast<void*>(address));
  const std::lock_guard lock{memory().mutex};
  for (const chunk& one : memory().chunks) {
    if (one.has(at)) return one.inside + (at - one.outside);
  }
  return at;
}

device_work_scope::device_work_scope() {
  watch_faults();
  ++works;
}

device_work_scope::~device_work_scope() {
  if (--works > 0 || !has_opened) return;
  has_opened = false;
  const std::lock_guard lock{memory().mutex};
  if (--memory().open == 0) memory().protect(PROT_NONE);
}

static bool runs_device_work() noexcept { return works > 0; }

}  // namespace fake_cuda::detail

/// Returns true if the calling thread runs work that represents a kernel. A checked build of
/// penstock calls this function, because device code performs no checks.
extern "C" bool penstock_runs_device_code() noexcept;
bool penstock_runs_device_code() noexcept { return fake_cuda::detail::runs_device_work(); }
