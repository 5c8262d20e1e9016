// SPDX-License-Identifier: BSL-1.0
// No include guard, because every header with functions for kernels includes this file last, and
// ends with host_device_end.hpp.

#if defined(__CUDACC__)
#define PENSTOCK_HOST_DEVICE __host__ __device__
#else
#define PENSTOCK_HOST_DEVICE
#endif
