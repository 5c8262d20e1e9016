// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/penstock.hpp>

using number = penstock::record<penstock::field<"x", std::uint64_t>>;

std::uint64_t sum_of(const penstock::host_batch<number, penstock::cpu_device>& batch);
