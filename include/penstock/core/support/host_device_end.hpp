// SPDX-License-Identifier: BSL-1.0
// No guard: ends what host_device_begin.hpp has begun.

#undef PENSTOCK_HOST_DEVICE
