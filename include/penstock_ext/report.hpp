// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The diagnosis of a loop's bottleneck. Statistics as text, as JSON and in the Prometheus format.
/// Traces as files.

#include <penstock_ext/report/diagnose.hpp>
#include <penstock_ext/report/report_error.hpp>
#include <penstock_ext/report/stats_prometheus.hpp>
#include <penstock_ext/report/stats_text.hpp>
#include <penstock_ext/report/trace_files.hpp>
