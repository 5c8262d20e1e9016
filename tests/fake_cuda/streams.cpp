// SPDX-License-Identifier: BSL-1.0
// The scheduler of the fake CUDA runtime, which decides when work runs.
#include <cstring>
#include <utility>

#include "device_memory.hpp"
#include "world.hpp"

namespace fake_cuda::detail {

namespace {

bool is_done(const mark& place) {
  return place.stream == nullptr || place.stream->completed >= place.position;
}

}  // namespace

stream_ptr world::make_stream(int device, unsigned int flags) {
  auto made = std::make_shared<CUstream_st>();
  made->number = static_cast<unsigned>(streams.size());
  made->device = device;
  made->flags = flags;
  made->pace = static_cast<unsigned>(random() % 3);
  streams.push_back(made);
  return made;
}

bool world::is_ready(const operation& next) const {
  return next.what != operation::kind::wait || is_done(next.target);
}

/// Poisons the destination from the moment when a copy may begin until the copy ends.
void world::begin(operation& next) {
  if (next.begun) return;
  next.begun = true;
  if (next.what == operation::kind::copy || next.what == operation::kind::fill) {
    std::memset(inside(next.to), poison, next.bytes);
  }
}

void world::complete(CUstream_st& stream) {
  stream.queue.pop_front();
  ++stream.completed;
  stream.not_ready = 0;
  changed.notify_all();
}

/// Removes satisfied waits, and starts copies that are first in their stream.
void world::skip_waits() {
  for (bool again = true; again;) {
    again = false;
    for (const auto& stream : streams) {
      if (stream->busy || stream->queue.empty()) continue;
      operation& next = stream->queue.front();
      if (next.what == operation::kind::wait && is_done(next.target)) {
        complete(*stream);
        again = true;
      } else if (next.what != operation::kind::wait) {
        begin(next);
      }
    }
  }
}

/// Runs the first operation of the stream, which must not be work or an unsatisfied wait.
void world::run_now(const stream_ptr& stream) {
  operation& next = stream->queue.front();
  begin(next);
  if (next.what != operation::kind::wait) {
    note({.number = stream->number,
          .is_call = false,
          .what = next.what == operation::kind::copy ? "copy" : "memset",
          .bytes = next.bytes});
  }
  if (next.what == operation::kind::copy) {
    std::memcpy(inside(next.to), next.staged ? next.staged->data() : inside(next.from), next.bytes);
  } else if (next.what == operation::kind::fill) {
    std::memset(inside(next.to), next.value, next.bytes);
  }
  complete(*stream);
  skip_waits();
}

/// Runs the first operation of the stream, which is work, on this thread. Releases the mutex during
/// the work.
void world::run_work(lock_type& lock, const stream_ptr& stream) {
  operation& next = stream->queue.front();
  auto work = std::move(next.work);
  const cudaError_t fault = next.fault;
  const bool is_kernel = next.is_kernel;
  const bool is_host_function = next.is_host_function;
  bool threw = false;
  note({.number = stream->number,
        .is_call = false,
        .what = is_host_function ? "host function"
                : is_kernel      ? "kernel"
                                 : "work"});
  stream->busy = true;
  lock.unlock();
  if (work != nullptr) {
    thread_state& mine = this_thread(*this);
    mine.in_work = true;
    try {
      std::optional<device_work_scope> scope;
      if (!is_host_function) scope.emplace();
      (*work)();
    } catch (...) {
      threw = true;
    }
    mine.in_work = false;
    work.reset();
  }
  lock.lock();
  stream->busy = false;
  if (threw) find("work threw", "an exception left work on a stream");
  for (const auto& [base, block] : blocks) {
    if (is_kernel) check_guards(block, "a kernel, or what ran beside it,");
  }
  complete(*stream);
  if (fault != cudaSuccess) lose(stream->device, fault);
  skip_waits();
  if (how.policy == policy::early) act();
}

void world::order_with_legacy(const stream_ptr& stream) {
  const stream_ptr legacy = default_streams[stream->device];
  if (legacy == nullptr || stream->flags == cudaStreamNonBlocking) return;
  const auto wait_for = [&](const stream_ptr& before) {
    if (before->completed == before->pushed || before->captured_by != nullptr) return;
    operation wait;
    wait.what = operation::kind::wait;
    wait.target = {before, before->pushed};
    stream->queue.push_back(std::move(wait));
    ++stream->pushed;
  };
  if (stream != legacy) return wait_for(legacy);
  for (const auto& other : streams) {
    if (other != legacy && other->device == legacy->device &&
        other->flags != cudaStreamNonBlocking) {
      wait_for(other);
    }
  }
}

void world::push(const stream_ptr& stream, operation next) {
  check_operation(next, stream->device);
  if (stream->captured_by != nullptr) {
    if (stream.get() != stream->captured_by->origin) {
      stream->captured_by->unjoined.insert(stream.get());
    }
    if (next.what != operation::kind::wait) {
      stream->captured_by->operations.push_back(std::move(next));
    }
    return;
  }
  order_with_legacy(stream);
  const bool is_work = next.what == operation::kind::work;
  stream->queue.push_back(std::move(next));
  ++stream->pushed;
  if (is_work && how.policy == policy::early) start_service(stream);
  act();
}

void world::start_service(const stream_ptr& stream) {
  if (!stream->service.joinable()) {
    stream->service = std::thread{[this, stream] { serve(stream); }};
  }
}

/// Permits the service thread to run the first work item of the stream.
void world::permit(const stream_ptr& stream) {
  ++stream->permits;
  start_service(stream);
  changed.notify_all();
}

/// Makes progress towards `position` without waiting.
void world::run_towards(const stream_ptr& stream, std::uint64_t position) {
  while (stream->completed < position && !stream->busy) {
    const operation& next = stream->queue.front();
    if (!is_ready(next)) {
      const mark target = next.target;
      run_towards(target.stream, target.position);
      skip_waits();
      if (!is_done(target)) return;
    } else if (next.what == operation::kind::work) {
      // A waiting call may have run the work itself and left its permit over. The service thread
      // then stays asleep.
      if (stream->permits == 0) permit(stream);
      changed.notify_all();
      return;
    } else {
      run_now(stream);
    }
  }
}

void world::act() {
  skip_waits();
  if (how.policy == policy::early) {
    for (bool again = true; again;) {
      again = false;
      for (const auto& stream : streams) {
        if (stream->busy || stream->queue.empty()) continue;
        const operation& next = stream->queue.front();
        if (next.what == operation::kind::work || !is_ready(next)) continue;
        run_now(stream);
        again = true;
      }
    }
    changed.notify_all();  // wakes the service threads, which look for work
  } else if (how.policy == policy::random && !streams.empty()) {
    for (auto turns = random() % 4; turns > 0; --turns) {
      const auto& stream = streams[random() % streams.size()];
      // Lets a stream lag behind or run ahead for some time. Independent random choices at each
      // step would make all streams alike.
      if (random() % 16 == 0) stream->pace = static_cast<unsigned>(random() % 3);
      if (stream->pace == 0 || (stream->pace == 1 && random() % 4 != 0)) continue;
      if (stream->busy || stream->queue.empty()) continue;
      const operation& next = stream->queue.front();
      if (next.what == operation::kind::work) {
        permit(stream);
      } else if (is_ready(next)) {
        run_now(stream);
      }
    }
  }
}

void world::run_until(lock_type& lock, const stream_ptr& stream, std::uint64_t position) {
  while (stream->completed < position) {
    if (stream->busy) {
      changed.wait(lock);
      continue;
    }
    const operation& next = stream->queue.front();
    if (!is_ready(next)) {
      const mark target = next.target;
      run_until(lock, target.stream, target.position);
      skip_waits();
    } else if (next.what == operation::kind::work) {
      run_work(lock, stream);
    } else {
      run_now(stream);
    }
  }
}

void world::run_all(lock_type& lock, std::optional<int> device) {
  // Includes streams that other threads create while work runs.
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const stream_ptr stream = streams[i];
    if (device && stream->device != *device) continue;
    run_until(lock, stream, stream->pushed);
  }
}

void world::lose(int device, cudaError_t code) {
  lost.emplace(device, code);
  for (const auto& stream : streams) {
    if (stream->device != device) continue;
    const std::size_t kept = stream->busy ? 1 : 0;  // a running operation is not interrupted
    while (stream->queue.size() > kept) {
      stream->queue.pop_back();
      ++stream->completed;
    }
  }
  changed.notify_all();
}

bool world::may_serve(const CUstream_st& stream) const {
  if (stream.busy || stream.queue.empty()) return false;
  return stream.queue.front().what == operation::kind::work &&
         (how.policy == policy::early || stream.permits > 0);
}

/// The main function of a stream's service thread. Work that may block runs on this thread and
/// never inside a non-blocking call of the program.
void world::serve(const stream_ptr& stream) {
  lock_type lock{mutex};
  while (!over) {
    if (may_serve(*stream)) {
      if (stream->permits > 0) --stream->permits;
      run_work(lock, stream);
    } else {
      changed.wait(lock);
    }
  }
}

world::world(const config& settings)
    : how(settings), random(settings.seed), random_pageable(settings.seed) {
  watch_faults();
}

world::~world() {
  {
    const std::lock_guard lock{mutex};
    over = true;
    changed.notify_all();
  }
  for (const auto& stream : streams) {
    if (stream->service.joinable()) stream->service.join();
  }
  // Operations may hold references to streams.
  for (const auto& stream : streams) stream->queue.clear();
  drop_device_memory();
}

}  // namespace fake_cuda::detail
