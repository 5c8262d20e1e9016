// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The lock-free batch queue, the worker pool, and worker affinity.

#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/cpu_list.hpp>
#include <penstock/threads/flush_to_zero.hpp>
#include <penstock/threads/worker_pool.hpp>
