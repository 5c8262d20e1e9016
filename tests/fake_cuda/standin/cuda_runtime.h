// SPDX-License-Identifier: BSL-1.0
#pragma once

// Replaces the CUDA toolkit's header of this name on a machine without a toolkit.
#include <fake_cuda/typed_calls.hpp>
