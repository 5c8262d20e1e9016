// SPDX-License-Identifier: BSL-1.0
// A program with two kinds of objects, which have different names for main and the sums.
int main_of_headers();
int main_of_compiled();

int main() { return main_of_headers() + main_of_compiled(); }
