# SPDX-License-Identifier: BSL-1.0
# As Arrow's own, of the libraries that `kinds` names.
foreach(kind IN LISTS kinds)
  add_library(Arrow::arrow_${kind} INTERFACE IMPORTED)
endforeach()
