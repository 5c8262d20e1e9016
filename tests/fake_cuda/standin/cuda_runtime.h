// SPDX-License-Identifier: BSL-1.0
#pragma once

// Stands in for the CUDA toolkit's header of this name if there is no toolkit.
#include <fake_cuda/typed_calls.hpp>
