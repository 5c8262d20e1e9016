// SPDX-License-Identifier: BSL-1.0
#pragma once

/// @mainpage penstock: batches for a GPU, on time
///
///     dataset -> sampler -> workers -> host slot -> ready -> transfer -> device slot -> consumer
///                              ^                                |                         |
///                              +--- drained: free host slot ----+      released ----------+
///                                                                      (free device slot)
///
/// Includes the headers for a first program, in the order of the data flow. The only dependency is
/// the thread library. `cuda.hpp` adds the CUDA device. `adaptors.hpp`, `threads.hpp`, `memory.hpp`
/// and `observe.hpp` contain the remaining parts of the core. Extensions are in `penstock_ext`:
/// more samplers and adaptors, results, files, images, shards, stores, tables, text, and tensors of
/// other libraries.
///
/// Folders named `detail` are private to their parent folder. Folders named `support` are for other
/// folders of the library and for its extensions. Programs must not use either.

// clang-format off: in the order of the data flow, not of the alphabet
// core: names, records, batch layouts, views, errors
#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/tensor_view.hpp>
#include <penstock/core/version.hpp>

// data: datasets and adaptors
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/random_split.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/memory_dataset.hpp>

// order: the order of samples, and their random bits
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock/order/weighted.hpp>

// device and memory: streams, copies, pinned memory and its budget
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/pinned_allocator.hpp>

// load: workers that fill the ring of host slots, and the policy for failed reads
#include <penstock/faults/error_policy.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/load/options.hpp>

// resume: the state of a training loop
#include <penstock/resume/loader_state.hpp>

// transfer: copies that overlap with the work of the consumer
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/options.hpp>
#include <penstock/transfer/transfer.hpp>
