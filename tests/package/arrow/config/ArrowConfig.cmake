# SPDX-License-Identifier: BSL-1.0
# Replaces Arrow's package. Has the libraries that `kinds` names.
foreach(kind IN LISTS kinds)
  add_library(Arrow::arrow_${kind} INTERFACE IMPORTED)
endforeach()
