// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Diagnoses the bottleneck of a loop. Writes statistics as text, as JSON and in Prometheus format,
/// and traces as files.

#include <penstock_ext/report/diagnose.hpp>
#include <penstock_ext/report/report_error.hpp>
#include <penstock_ext/report/stats_prometheus.hpp>
#include <penstock_ext/report/stats_text.hpp>
#include <penstock_ext/report/trace_files.hpp>
