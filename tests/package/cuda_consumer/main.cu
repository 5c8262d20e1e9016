// SPDX-License-Identifier: BSL-1.0
#include "sum.hpp"

__global__ void double_it(int* value) { *value *= 2; }

int main() { return sum_on_host() - sum_of(1, 2, 3); }
