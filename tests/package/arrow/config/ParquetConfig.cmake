# SPDX-License-Identifier: BSL-1.0
# Replaces Arrow's Parquet package. Has the libraries that `parquet_kinds` names.
foreach(kind IN LISTS parquet_kinds)
  add_library(Parquet::parquet_${kind} INTERFACE IMPORTED)
endforeach()
