// SPDX-License-Identifier: BSL-1.0
// No guard: undoes host_device_begin.hpp.

#undef PENSTOCK_HOST_DEVICE
