// SPDX-License-Identifier: BSL-1.0
// No include guard, because this file reverts each host_device_begin.hpp.

#undef PENSTOCK_HOST_DEVICE
