// SPDX-License-Identifier: BSL-1.0
// One program with two kinds of objects. Each kind has its own names for main and the sums.
int main_of_headers();
int main_of_compiled();

int main() { return main_of_headers() + main_of_compiled(); }
