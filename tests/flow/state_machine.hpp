// SPDX-License-Identifier: BSL-1.0
#pragma once

// Performs random operations on a loader and its feeds, in every possible state, and compares the
// results with a simple model. Differences throw `mismatch` with the seed and the step that caused
// it. The stress test and the soak test use this header.

#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/machine/act.hpp"
#include "flow/state_machine/machine/disturbances.hpp"
#include "flow/state_machine/machine/leases.hpp"
#include "flow/state_machine/machine/loop.hpp"
#include "flow/state_machine/machine/model.hpp"
#include "flow/state_machine/machine/notes.hpp"
#include "flow/state_machine/machine/ranges.hpp"
#include "flow/state_machine/machine/state.hpp"
#include "flow/state_machine/machine/world.hpp"
