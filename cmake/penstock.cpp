// SPDX-License-Identifier: BSL-1.0
// penstock::compiled: what loaders and transfers of all datasets and records share, compiled once.
// Compiled with PENSTOCK_COMPILED=1, as all that links it is.
#include <penstock/penstock.hpp>

#if !PENSTOCK_COMPILED
#error "compile with PENSTOCK_COMPILED=1, as the CMake target penstock::compiled does"
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {

template std::uint64_t uniform(sample_generator&, std::uint64_t, std::uint64_t);
template class device_lease<cpu_device>;

namespace detail {

template struct delete_outside_of_work<cpu_stream_ref>;
template class host_slots<cpu_device>;
template class loader_core<cpu_device>;
template std::shared_ptr<host_slots<cpu_device>> make_slots(const cpu_device&, const slot_layout&,
                                                            const loader_options&);
template class device_slots<cpu_device>;
template class feed_watch<cpu_device>;
template class feed_engine<loader_core<cpu_device>, plain_slots<cpu_device>>;
template slot_plan planned_slots(const loader_core<cpu_device>&, const transfer_options&, bool);

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
