// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>

#include <penstock/core/version.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/transfer/transfer.hpp>

/// What the loaders and transfers of one device share, whatever they read: the queue, the pool, the
/// ring of slots, the engine of a feed. Their templates are instantiated in every object that uses
/// them, unless `extern template` leaves that to another. At global scope, and without a semicolon:
///
///     PENSTOCK_ENGINE_OF(extern template, my::device)   // in the header of a device of your own
///     PENSTOCK_ENGINE_OF(template, my::device)          // in one source
///
/// `penstock::compiled` has that of `cpu_device`, `penstock::compiled_cuda` also that of
/// `cuda_device`. A transfer with a transform has a part of the engine of its own.
#define PENSTOCK_ENGINE_OF(kind, device)                                                     \
  kind struct penstock::detail::delete_outside_of_work<device::stream_ref>;                  \
  kind class penstock::detail::host_slots<device>;                                           \
  kind class penstock::detail::loader_core<device>;                                          \
  kind std::shared_ptr<penstock::detail::host_slots<device>> penstock::detail::make_slots(   \
      const device&, const penstock::detail::slot_layout&, const penstock::loader_options&); \
  kind class penstock::device_lease<device>;                                                 \
  kind class penstock::detail::device_slots<device>;                                         \
  kind class penstock::detail::feed_watch<device>;                                           \
  kind class penstock::detail::feed_engine<penstock::detail::loader_core<device>,            \
                                           penstock::detail::plain_slots<device>>;           \
  kind penstock::detail::slot_plan penstock::detail::planned_slots(                          \
      const penstock::detail::loader_core<device>&, const penstock::transfer_options&, bool);

#if PENSTOCK_COMPILED
extern template std::uint64_t penstock::uniform(penstock::sample_generator&, std::uint64_t,
                                                std::uint64_t);
PENSTOCK_ENGINE_OF(extern template, penstock::cpu_device)
#endif
