// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>

#include <penstock/observe/stats.hpp>
#include <penstock_ext/report/report_error.hpp>
#include <penstock_ext/report/stats_prometheus.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Writes `to_prometheus(stats)` to a file, for a collector that reads files such as that of
/// node_exporter, whose files end in ".prom":
///
///     ps::write_prometheus(feed.stats(), "/var/lib/node_exporter/train.prom");
///
/// One file for each transfer, and one for each loader that no transfer takes batches from: the file
/// of a transfer has its loader's series too, and a series may be in one file only. A reader sees the file of before or the new one, never a
/// part: it is written to a file in the same folder and renamed. It is not on the disk yet when
/// this returns. Costs some system calls: for once in a while, not for each batch. From any thread,
/// also for one path; throws `report_error`.
inline void write_prometheus(const loader_stats& stats, const std::string& path) {
  detail::write_report(path, "the statistics", to_prometheus(stats));
}
/// Of a transfer, and of its loader if it has one.
inline void write_prometheus(const transfer_stats& stats, const std::string& path) {
  detail::write_report(path, "the statistics", to_prometheus(stats));
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
