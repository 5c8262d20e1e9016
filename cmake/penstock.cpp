// SPDX-License-Identifier: BSL-1.0
// penstock::compiled: what loaders and transfers of all datasets and records share, compiled once.
// Compiled with PENSTOCK_COMPILED=1, as all that links it is.
#include <penstock/penstock.hpp>

#if !PENSTOCK_COMPILED
#error "compile with PENSTOCK_COMPILED=1, as the CMake target penstock::compiled does"
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

template class host_ring<cpu_device>;
template class loader_core<cpu_device>;
template class device_ring<cpu_device>;
template class feed_watch<cpu_device>;
template class feed_core<cpu_device>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
