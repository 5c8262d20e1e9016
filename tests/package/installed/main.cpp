// SPDX-License-Identifier: BSL-1.0
#include <penstock/penstock.hpp>
#ifdef WITH_EXTENSIONS
#include <penstock_ext/files.hpp>
#include <penstock_ext/image.hpp>
#endif
#ifdef WITH_CACHE
#include <penstock_ext/store/cache/cached_store.hpp>  // needs xxhash.h from penstock::cache
#include <penstock_ext/store/local_store.hpp>
#endif
#ifdef WITH_LOCKFREE
#include <penstock_ext/lockfree.hpp>  // needs Boost, which comes with penstock::lockfree
#endif
#ifdef WITH_GZIP
#include <zlib.h>  // comes with penstock::gzip
#include <penstock/threads/batch_queue.hpp>

#include <penstock_ext/files/gzip/gzip.hpp>
#endif
#ifdef WITH_AUDIO
#include <penstock_ext/audio/audio_clips.hpp>  // needs sndfile.h, which comes with penstock::audio
#endif
#ifdef WITH_HDF5
#include <penstock_ext/indexed/hdf5/hdf5_dataset.hpp>  // needs hdf5.h, which comes with penstock::hdf5
#endif
#ifdef WITH_HTTP
#include <penstock_ext/store/http/http_store.hpp>  // needs curl.h, which comes with penstock::http
#endif
#ifdef WITH_JPEG
#include <penstock_ext/image/jpeg/jpeg.hpp>  // needs jpeglib.h, which comes with penstock::jpeg
#endif
#ifdef WITH_JSON_LINES
#include <penstock_ext/indexed/json/json_lines.hpp>  // needs simdjson.h
#endif
#ifdef WITH_MDS
#include <penstock_ext/blob/mds/mds_shards.hpp>  // needs nlohmann-json, which comes with penstock::mds
#endif
#ifdef WITH_NVIMGCODEC
#include <penstock_ext/image/nvimgcodec/nvimgcodec_batch.hpp>  // needs nvimgcodec.h
#endif
#ifdef WITH_PNG
#include <penstock_ext/image/png/png.hpp>  // needs png.h, which comes with penstock::png
#endif
#ifdef WITH_SAFETENSORS
#include <penstock_ext/bulk/safetensors/safetensors.hpp>  // needs nlohmann-json
#endif
#ifdef WITH_SEARCH
#include <penstock_ext/search.hpp>  // needs nlohmann-json, which comes with penstock::search
#endif
#ifdef WITH_TORCH
#include <penstock_ext/interop/torch/torch.hpp>  // needs ATen, which comes with penstock::torch
#endif
#ifdef WITH_WEBP
#include <penstock_ext/image/webp/webp.hpp>  // needs webp/decode.h, which comes with penstock::webp
#endif
#ifdef WITH_ZSTD
#include <penstock_ext/files/zstd/zstd.hpp>  // needs zstd.h, which comes with penstock::zstd
#endif

#include <cstdio>

int main() {
#ifdef WITH_AUDIO
  std::printf("%s\n", ::sf_version_string());
  static_assert(penstock::dataset<penstock::audio_clips<float>>);
#endif
#ifdef WITH_CACHE
  std::printf("sum: %llx\n", static_cast<unsigned long long>(penstock::detail::checksum({})));
#endif
#ifdef WITH_GZIP
  std::printf("zlib %s\n", zlibVersion());
#endif
#ifdef WITH_HDF5
  static_assert(
      penstock::dataset<penstock::hdf5_dataset<penstock::record<penstock::field<"x", float>>>>);
#endif
#ifdef WITH_HTTP
  std::printf("curl %d\n", static_cast<int>(penstock::http_options{}.attempts));
  static_assert(penstock::byte_store<penstock::http_store>);
#endif
#ifdef WITH_JPEG
  std::printf("JPEG: %d\n", penstock::jpeg_decoder{}.matches({}));
#endif
#ifdef WITH_JSON_LINES
  using number = penstock::record<penstock::field<"x", float>>;
  static_assert(penstock::dataset<penstock::json_lines<number>>);
  std::printf("simdjson %s\n", simdjson::get_active_implementation()->name().c_str());
#endif
#ifdef WITH_LOCKFREE
  penstock::batch_queue<int, penstock::single_producer_single_consumer> queue{4};
  std::printf("one on either side: %d\n", queue.try_push(1));
#endif
#ifdef WITH_MDS
  static_assert(penstock::blob_source<penstock::mds_shards>);
#endif
#ifdef WITH_NVIMGCODEC
  std::printf("nvImageCodec: %zu\n", penstock::nvimgcodec_batch{}.results().size());
#endif
#ifdef WITH_PNG
  std::printf("PNG: %d\n", penstock::png_decoder{}.matches({}));
#endif
#ifdef WITH_SAFETENSORS
  static_assert(penstock::bulk_sink<penstock::safetensors_sink>);
#endif
#ifdef WITH_SEARCH
  std::printf("trials: %zu\n", penstock::read_trials("[]").size());
#endif
#ifdef WITH_TORCH
  std::printf("torch: %d\n", static_cast<int>(penstock::torch_type<float>));
#endif
#ifdef WITH_WEBP
  std::printf("WebP: %d\n", penstock::webp_decoder{}.matches({}));
#endif
#ifdef WITH_ZSTD
  std::printf("%s\n", penstock::zstd{}.family().c_str());
#endif
  std::printf("penstock %d.%d.%d\n", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
              PENSTOCK_VERSION_PATCH);
}
