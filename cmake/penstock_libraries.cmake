# SPDX-License-Identifier: BSL-1.0
# The components that depend on libraries, and how to find these libraries. Installed next to
# penstock-config.cmake, so that this project and its users search in the same way.

set(penstock_components_with_libraries
    audio cache gzip hdf5 http jpeg json_lines lockfree mds nvimgcodec parquet png safetensors search torch webp zstd
)
set(penstock_audio_libraries penstock::libsndfile)
set(penstock_cache_libraries penstock::libxxhash)
set(penstock_gzip_libraries ZLIB::ZLIB)
set(penstock_hdf5_libraries penstock::libhdf5 penstock::libdeflate)
set(penstock_http_libraries CURL::libcurl OpenSSL::Crypto pugixml::pugixml)
set(penstock_jpeg_libraries JPEG::JPEG)
set(penstock_json_lines_libraries simdjson::simdjson)
set(penstock_lockfree_libraries Boost::headers)
set(penstock_mds_libraries nlohmann_json::nlohmann_json OpenSSL::Crypto penstock::libxxhash)
set(penstock_nvimgcodec_libraries penstock::libnvimgcodec)
set(penstock_parquet_libraries penstock::arrow)
set(penstock_png_libraries PNG::PNG)
set(penstock_safetensors_libraries nlohmann_json::nlohmann_json)
set(penstock_search_libraries nlohmann_json::nlohmann_json)
set(penstock_torch_libraries penstock::libtorch)
set(penstock_webp_libraries penstock::libwebp)
set(penstock_zstd_libraries penstock::libzstd)

# Columns: the target; the arguments of find_package, or a file in this folder that defines the
# target; the display name; the package that provides the library.
set(penstock_libraries
    "ZLIB::ZLIB|ZLIB|zlib|Debian: zlib1g-dev"
    "CURL::libcurl|CURL 7.85|libcurl 7.85|Debian: libcurl4-openssl-dev"
    "OpenSSL::Crypto|OpenSSL|OpenSSL's libcrypto|Debian: libssl-dev"
    "pugixml::pugixml|pugixml 1.11|pugixml 1.11|Debian: libpugixml-dev"
    "JPEG::JPEG|JPEG|libjpeg-turbo|Debian: libjpeg62-turbo-dev"
    "PNG::PNG|PNG|libpng|Debian: libpng-dev"
    "nlohmann_json::nlohmann_json|nlohmann_json 3.10|nlohmann-json 3.10|Debian: nlohmann-json3-dev"
    "simdjson::simdjson|simdjson 3.0|simdjson 3.0|Debian: libsimdjson-dev"
    "Boost::headers|penstock_boost.cmake|Boost 1.74|Debian: libboost-dev"
    "penstock::libnvimgcodec|penstock_nvimgcodec.cmake|nvImageCodec 0.9|PyPI: nvidia-nvimgcodec-cu13"
    "penstock::arrow|penstock_arrow.cmake|Arrow C++ with Parquet|pip: pyarrow"
    "penstock::libsndfile|penstock_sndfile.cmake|libsndfile|Debian: libsndfile1-dev"
    "penstock::libdeflate|penstock_libdeflate.cmake|libdeflate|Debian: libdeflate-dev"
    "penstock::libhdf5|penstock_hdf5.cmake|libhdf5 1.10.5|Debian: libhdf5-dev"
    "penstock::libtorch|penstock_torch.cmake|libtorch 1.13|Debian: libtorch-dev"
    "penstock::libwebp|penstock_webp.cmake|libwebp|Debian: libwebp-dev"
    "penstock::libxxhash|penstock_xxhash.cmake|libxxhash 0.8|Debian: libxxhash-dev"
    "penstock::libzstd|penstock_zstd.cmake|libzstd 1.4|Debian: libzstd-dev"
)
set(penstock_libraries_dir "${CMAKE_CURRENT_LIST_DIR}")

# penstock_find_c_library(<name> <package> <target> <header> <library>): defines penstock::<name> if
# <target> of the CMake package <package> is found. Debian's packages of some libraries have no CMake
# package, so this function then searches for the header and the library. Setting
# CMAKE_DISABLE_FIND_PACKAGE_<package> ignores an installed library.
function(penstock_find_c_library name package target header library)
  if(CMAKE_DISABLE_FIND_PACKAGE_${package} OR TARGET penstock::${name})
    return()
  endif()
  find_package(${package} CONFIG QUIET)
  set(link ${target})
  if(NOT TARGET ${target})
    find_path(penstock_${name}_include_dir ${header} HINTS "${${package}_ROOT}" PATH_SUFFIXES include)
    find_library(penstock_${name}_library ${library} HINTS "${${package}_ROOT}" PATH_SUFFIXES lib64 lib)
    mark_as_advanced(penstock_${name}_include_dir penstock_${name}_library)
    if(NOT penstock_${name}_include_dir OR NOT penstock_${name}_library)
      return()
    endif()
    set(link "${penstock_${name}_library}")
  endif()
  add_library(penstock::${name} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(penstock::${name} INTERFACE "${link}")
  if(NOT TARGET ${target})
    target_include_directories(
      penstock::${name} SYSTEM INTERFACE "${penstock_${name}_include_dir}"
    )
  endif()
endfunction()

# penstock_find_libraries(<component>): finds the libraries of a component and sets penstock_missing
# to the names of the missing libraries.
macro(penstock_find_libraries component)
  set(penstock_missing)
  foreach(penstock_target IN LISTS penstock_${component}_libraries)
    foreach(penstock_row IN LISTS penstock_libraries)
      if(penstock_row MATCHES "^${penstock_target}[|]([^|]+)[|]([^|]+)[|]([^|]+)$")
        set(penstock_words "${CMAKE_MATCH_2} (${CMAKE_MATCH_3})")
        set(penstock_how "${CMAKE_MATCH_1}")
        if(TARGET ${penstock_target})
          break()
        elseif(penstock_how MATCHES "cmake$")
          include("${penstock_libraries_dir}/${penstock_how}")
        else()
          separate_arguments(penstock_how)
          find_package(${penstock_how} QUIET)
        endif()
        break()
      endif()
    endforeach()
    if(NOT TARGET ${penstock_target})
      list(APPEND penstock_missing "${penstock_words}")
    endif()
  endforeach()
  list(JOIN penstock_missing " and " penstock_missing)
endmacro()
