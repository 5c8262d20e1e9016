// SPDX-License-Identifier: BSL-1.0
// The library penstock::compiled: code that loaders and transfers of all datasets and records
// share, compiled once. The library and everything that links it are compiled with
// PENSTOCK_COMPILED=1.
#include <penstock/penstock.hpp>

#if !PENSTOCK_COMPILED
#error "compile with PENSTOCK_COMPILED=1, as the CMake target penstock::compiled does"
#endif

template std::string penstock::detail::str_cat<void>(
    std::initializer_list<penstock::detail::str_cat_arg>);
template void penstock::detail::throw_option_error<void>(
    std::string_view, std::initializer_list<penstock::detail::str_cat_arg>);
template std::uint64_t penstock::uniform(penstock::sample_generator&, std::uint64_t, std::uint64_t);
template struct penstock::detail::delete_outside_of_work<penstock::cpu_stream_ref>;
PENSTOCK_LOADERS_ON(template, penstock::cpu_device)
PENSTOCK_TRANSFERS_ON(template, penstock::cpu_device)
