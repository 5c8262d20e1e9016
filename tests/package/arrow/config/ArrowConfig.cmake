# SPDX-License-Identifier: BSL-1.0
# A fake Arrow package that provides the libraries in `kinds`.
foreach(kind IN LISTS kinds)
  add_library(Arrow::arrow_${kind} INTERFACE IMPORTED)
endforeach()
