// SPDX-License-Identifier: BSL-1.0
// Tests the ranges of a loop that a profiler receives. The program is its own profiler, using
// static NVTX injection. Each batch is read, copied and used in ranges with its number, in the
// domain penstock. The ranges of a thread are nested, and each range ends. Exits with 0, or prints
// the error.
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <penstock/penstock.hpp>

namespace ps = penstock;

namespace {

struct event {
  std::string name;
  std::uint64_t batch = no_batch;
  static constexpr std::uint64_t no_batch = ~std::uint64_t{0};
};

/// All marks of all threads.
struct profiler {
  std::mutex mutex;
  std::vector<std::string> domains;
  std::vector<std::string> names;  // registered names; a handle is an index plus 1
  std::map<std::thread::id, std::vector<event>> open;
  std::map<std::uint64_t, event> ranges;
  std::vector<event> finished;
  std::uint64_t next_range = 1;
  int unbalanced = 0;

  std::vector<event> snapshot() {
    const std::lock_guard lock{mutex};
    return finished;
  }
  void restore(const std::vector<event>& all) {
    const std::lock_guard lock{mutex};
    finished = all;
  }
};

profiler& seen() {
  static profiler one;
  return one;
}

event event_of(const nvtxEventAttributes_t* attributes) {
  event made;
  if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    made.name =
        seen().names.at(reinterpret_cast<std::uintptr_t>(attributes->message.registered) - 1);
  }
  if (attributes->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
    made.batch = attributes->payload.ullValue;
  }
  return made;
}

nvtxDomainHandle_t NVTX_API make_domain(const char* name) {
  const std::lock_guard lock{seen().mutex};
  seen().domains.emplace_back(name);
  return reinterpret_cast<nvtxDomainHandle_t>(std::uintptr_t{7});
}
nvtxStringHandle_t NVTX_API register_name(nvtxDomainHandle_t, const char* name) {
  const std::lock_guard lock{seen().mutex};
  seen().names.emplace_back(name);
  return reinterpret_cast<nvtxStringHandle_t>(static_cast<std::uintptr_t>(seen().names.size()));
}
int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard lock{seen().mutex};
  seen().open[std::this_thread::get_id()].push_back(event_of(attributes));
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t) {
  const std::lock_guard lock{seen().mutex};
  auto& stack = seen().open[std::this_thread::get_id()];
  if (stack.empty()) return ++seen().unbalanced;
  seen().finished.push_back(stack.back());
  stack.pop_back();
  return 0;
}
nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard lock{seen().mutex};
  seen().ranges[seen().next_range] = event_of(attributes);
  return seen().next_range++;
}
void NVTX_API end(nvtxDomainHandle_t, nvtxRangeId_t range) {
  const std::lock_guard lock{seen().mutex};
  const auto found = seen().ranges.find(range);
  if (found == seen().ranges.end()) {
    ++seen().unbalanced;
    return;
  }
  seen().finished.push_back(found->second);
  seen().ranges.erase(found);
}

template <class Function>
void put(NvtxFunctionTable table, unsigned which, Function function) {
  *table[which] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int NVTX_API inject(NvtxGetExportTableFunc_t tables) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  put(table, NVTX_CBID_CORE2_DomainCreateA, make_domain);
  put(table, NVTX_CBID_CORE2_DomainRegisterStringA, register_name);
  put(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  put(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  put(table, NVTX_CBID_CORE2_DomainRangeStartEx, start);
  put(table, NVTX_CBID_CORE2_DomainRangeEnd, end);
  return 1;
}

struct numbers {
  using record_type = ps::record<ps::field<"x", std::uint32_t>>;
  [[nodiscard]] std::uint64_t size() const { return 60; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"x">(out) = static_cast<std::uint32_t>(index);
  }
};

int problems = 0;

void require(bool is_so, const char* what) {
  if (is_so) return;
  std::fprintf(stderr, "nvtx: %s\n", what);
  ++problems;
}

/// Returns the number of marks with `name` for each of the batches 0 to 5, or an empty list if any
/// other batch was marked.
std::vector<int> times(const char* name) {
  const std::lock_guard lock{seen().mutex};
  std::vector<int> of(6, 0);
  for (const event& one : seen().finished) {
    if (one.name != name) continue;
    if (one.batch >= of.size()) return {};
    ++of[static_cast<std::size_t>(one.batch)];
  }
  return of;
}

/// Runs an epoch and the start of another epoch.
template <class Loop>
void step_through(Loop& loop) {
  for (auto& batch : loop.epoch(0)) static_cast<void>(batch.size());
  const auto before = seen().snapshot();
  for (auto& batch : loop.epoch(1)) {
    static_cast<void>(batch.size());
    break;
  }
  require(seen().ranges.empty(), "a loop that is left has ended its step");
  seen().restore(before);
}

void walk(std::size_t workers, bool is_fed) {
  seen().finished.clear();
  const ps::loader_options options{.batch_size = 10, .workers = workers, .tuning = {.chunk = 5}};
  if (is_fed) {
    ps::transfer feed{ps::loader{numbers{}, ps::sequential{}, options}};
    step_through(feed);
  } else {
    ps::loader loader{numbers{}, ps::sequential{}, options};
    step_through(loader);
  }
  require(times("step") == std::vector<int>(6, 1), "a step for each batch");
  if (is_fed) require(times("copy") == std::vector<int>(6, 1), "a copy for each batch");
  require(times("read") == std::vector<int>(6, 2), "two runs for each batch");
}

}  // namespace

int main() {
  InitializeInjectionNvtx2_fnptr = inject;  // before the first mark
  for (const std::size_t workers : {0U, 1U, 3U}) {
    walk(workers, false);
    walk(workers, true);
  }
  require(seen().domains == std::vector<std::string>{"penstock"}, "one domain, penstock");
  auto names = seen().names;
  std::sort(names.begin(), names.end());
  require(std::adjacent_find(names.begin(), names.end()) == names.end(), "each name once");
  require(seen().unbalanced == 0 && seen().ranges.empty(), "what begins ends");
  for (const auto& [thread, stack] : seen().open)
    require(stack.empty(), "what is pushed is popped");
  return problems == 0 ? 0 : 1;
}
