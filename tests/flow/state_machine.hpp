// SPDX-License-Identifier: BSL-1.0
#pragma once

// Random operations on a loader and its feeds, in every possible state, compared with a plain model
// of the expected results. A difference is thrown as `mismatch`, with the seed and the step that
// led to it. For the stress test and the soak test.

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
