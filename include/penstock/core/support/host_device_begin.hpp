// SPDX-License-Identifier: BSL-1.0
// No guard: a header whose functions kernels call includes this last and ends with
// host_device_end.hpp.

#if defined(__CUDACC__)
#define PENSTOCK_HOST_DEVICE __host__ __device__
#else
#define PENSTOCK_HOST_DEVICE
#endif
