// SPDX-License-Identifier: BSL-1.0
// One program of two kinds of objects: each has the main function and the sums by its own name.
int main_of_headers();
int main_of_compiled();

int main() { return main_of_headers() + main_of_compiled(); }
