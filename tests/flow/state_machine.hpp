// SPDX-License-Identifier: BSL-1.0
#pragma once

// A loader and the feeds over it, taken through random operations in every state that they can be
// in, beside a plain model of what must come next. What differs is thrown as `mismatch`, with the
// seed and the step that lead there. For the stress test and the soak.

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
