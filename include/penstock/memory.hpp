// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Pinned memory for containers, registration of existing memory, and the memory budget.

#include <penstock/memory/budget.hpp>
#include <penstock/memory/pinned_allocator.hpp>
#include <penstock/memory/pinned_resource.hpp>
#include <penstock/memory/registered_memory.hpp>
