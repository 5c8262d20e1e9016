// SPDX-License-Identifier: BSL-1.0
// Functions in fake_cuda.hpp that are not runtime calls.
#include <cstdlib>
#include <sstream>
#include <utility>

#include "world.hpp"

namespace fake_cuda {

namespace {

config from_environment() {
  config how;
  if (const char* devices = std::getenv("FAKE_CUDA_DEVICES")) how.devices = std::atoi(devices);
  return how;
}

/// Never destroyed, because programs call the runtime until the very end of the process.
std::unique_ptr<detail::world>& holder() {
  static auto* made =
      new std::unique_ptr<detail::world>{std::make_unique<detail::world>(from_environment())};
  return *made;
}

void plan(std::string function, std::uint64_t k, cudaError_t code, bool from_then_on) {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  now.failures.push_back({std::move(function), k, code, from_then_on});
}

}  // namespace

namespace detail {

world& the_world() { return *holder(); }

thread_state& this_thread(world& now) {
  thread_local thread_state mine;
  if (mine.generation != now.generation) {
    mine = {};
    mine.generation = now.generation;
    mine.number = now.threads++;
  }
  return mine;
}

void world::note(trace_entry entry) {
  constexpr std::size_t kept = 256;
  if (trace.size() == kept) trace.pop_front();
  trace.push_back(entry);
}

}  // namespace detail

std::string trace() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  std::ostringstream text;
  for (const auto& entry : now.trace) {
    text << (entry.is_call ? "thread " : "stream ") << entry.number << ": " << entry.what;
    if (entry.bytes != 0) text << " of " << entry.bytes << " bytes";
    if (entry.code != cudaSuccess) text << " gave " << cudaGetErrorName(entry.code);
    text << '\n';
  }
  return text.str();
}

void reset(const config& how) {
  auto& held = holder();
  const std::uint64_t generation = held->generation + 1;
  held.reset();
  held = std::make_unique<detail::world>(how);
  held->generation = generation;
}

void unload() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  now.unloaded = true;
}

void fail_call(std::uint64_t k, cudaError_t code) { plan({}, k, code, false); }
void fail_call_of(const std::string& function, std::uint64_t k, cudaError_t code) {
  plan(function, k, code, false);
}
void fail_from(std::uint64_t k, cudaError_t code) { plan({}, k, code, true); }

std::uint64_t calls() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  return now.all_calls;
}
std::uint64_t calls_of(const std::string& function) {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  return now.calls[function];
}
std::map<std::string, std::uint64_t> thread_calls() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  return detail::this_thread(now).calls;
}
copy_statistics statistics() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  return now.statistics;
}
kernel_statistics kernels_run() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  return now.kernels;
}
unsigned int event_flags(cudaEvent_t event) { return event->flags; }
std::vector<int> stream_priorities() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  std::vector<int> priorities;
  for (const auto& stream : now.streams) {
    if (!stream->is_default) priorities.push_back(stream->priority);
  }
  return priorities;
}

std::vector<event_use> events() {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  std::vector<event_use> uses;
  for (const auto& event : now.events) {
    uses.push_back({event->flags, event->records, event->stream_waits, event->host_waits});
  }
  return uses;
}

}  // namespace fake_cuda
