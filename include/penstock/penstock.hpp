// SPDX-License-Identifier: BSL-1.0
#pragma once

/// @mainpage penstock: batches for a GPU, on time
///
///     dataset -> sampler -> workers -> host slot -> ready -> transfer -> device slot -> consumer
///                              ^                                |                         |
///                              +--- drained: free host slot ----+      released ----------+
///                                                                      (free device slot)
///
/// The public headers, in the order of the flow; folders named `detail` hold the rest. They need
/// threads and nothing else. What needs a library is a header of its own: `files/gzip.hpp` (zlib),
/// `threads/single_producer_single_consumer.hpp` (Boost), `cuda.hpp` (the CUDA runtime).

// clang-format off: the flow, not the alphabet
// core: names, records, where a batch's fields lie, views, errors
#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/name.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/tensor_view.hpp>
#include <penstock/core/version.hpp>

// files: the bytes of a file, and what may be wrong with them
#include <penstock/files/file_error.hpp>
#include <penstock/files/file_source.hpp>

// data: what a sample is read from
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/interleave.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/map_batch.hpp>
#include <penstock/data/adaptors/random_split.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/adaptors/with_index.hpp>
#include <penstock/data/adaptors/without.hpp>
#include <penstock/data/adaptors/zip.hpp>
#include <penstock/data/any_dataset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/idx_dataset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/run_context.hpp>

// order: which sample comes k-th, and its random bits
#include <penstock/order/block_shuffled.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock/order/weighted.hpp>

// threads: workers, queues
#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/cpu_list.hpp>
#include <penstock/threads/float_mode.hpp>
#include <penstock/threads/worker_cores.hpp>
#include <penstock/threads/worker_pool.hpp>

// observe: what the flow does and waits for, in figures and batch by batch
#include <penstock/observe/duration_stats.hpp>
#include <penstock/observe/loader_stats.hpp>
#include <penstock/observe/stage_stats.hpp>
#include <penstock/observe/stats_clock.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/observe/transfer_stats.hpp>
#include <penstock/report/stats_json.hpp>
#include <penstock/report/stats_text.hpp>

// device: streams, events, copies, memory
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/cpu_stream.hpp>
#include <penstock/device/device.hpp>

// memory: pinned memory for containers and slots, the budget
#include <penstock/memory/available_memory.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/pinned_allocator.hpp>
#include <penstock/memory/pinned_resource.hpp>
#include <penstock/memory/registered_memory.hpp>

// faults: what can go wrong with a read, and what is done then
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/faults/quarantine.hpp>
#include <penstock/faults/read_outcome.hpp>
#include <penstock/faults/stalled_read.hpp>

// load: workers that fill the ring of host slots
#include <penstock/load/any_loader.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/tuning_history.hpp>

// resume: where a training loop stands
#include <penstock/resume/loader_state.hpp>
#include <penstock/resume/state_text.hpp>

// transfer: copies that run under the consumer's work
#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/footprint.hpp>
#include <penstock/transfer/options.hpp>
#include <penstock/transfer/transfer.hpp>

// interop: batches that others hold; their tensors are in interop/dlpack.hpp
#include <penstock/interop/shared_batch.hpp>
