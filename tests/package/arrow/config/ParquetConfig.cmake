# SPDX-License-Identifier: BSL-1.0
# A fake Parquet package of Arrow that provides the libraries in `parquet_kinds`.
foreach(kind IN LISTS parquet_kinds)
  add_library(Parquet::parquet_${kind} INTERFACE IMPORTED)
endforeach()
