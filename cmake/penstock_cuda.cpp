// SPDX-License-Identifier: BSL-1.0
// The library penstock::compiled_cuda: code that loaders and transfers on CUDA devices share,
// compiled once. The library must be linked together with penstock::compiled.
#include <penstock/cuda.hpp>

#if !PENSTOCK_COMPILED_CUDA
#error \
    "compile with PENSTOCK_COMPILED=1 and PENSTOCK_COMPILED_CUDA=1, as penstock::compiled_cuda does"
#endif

template struct penstock::detail::delete_outside_of_work<penstock::cuda_stream_ref>;
PENSTOCK_LOADERS_ON(template, penstock::cuda_device)
PENSTOCK_TRANSFERS_ON(template, penstock::cuda_device)
