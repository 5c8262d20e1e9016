// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Variable-length samples (blobs): folders of files, tar shards, and objects in a store. MDS
/// shards are in `blob/mds/mds_shards.hpp` (`penstock::mds`).

#include <penstock_ext/blob/blob_list.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/blob/tar/tar_shards.hpp>
#include <penstock_ext/blob/verified_blobs.hpp>
