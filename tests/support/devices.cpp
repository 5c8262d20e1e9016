// SPDX-License-Identifier: BSL-1.0
// The code that loaders and transfers share on the devices of the tests, compiled once.
#include <penstock/penstock.hpp>

#include "support/gated_device.hpp"
#include "support/ledger_device.hpp"

PENSTOCK_LOADERS_ON(template, gated_device)
PENSTOCK_TRANSFERS_ON(template, gated_device)
PENSTOCK_LOADERS_ON(template, ledger_device)
PENSTOCK_TRANSFERS_ON(template, ledger_device)
